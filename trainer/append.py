"""Lines at the end of a file, none lost to a disk that is full for a while."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock


class AppendedLines:
    """What cannot be written is kept in memory and tried again with every later line, in order; one warning tells it.

    A line may end up half on disk meanwhile; its rest follows first. Safe from several threads.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        """Raises OSError where `path` cannot be opened, which a full disk allows."""
        self._path, self._say = path, say
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._unwritten = b""
        self._has_warned = False
        self._lock = Lock()

    def write(self, line: str) -> None:
        """line: without its end."""
        with self._lock:
            self._unwritten += line.encode() + b"\n"
            try:
                self._flush()
            except OSError as error:
                if not self._has_warned:
                    self._say(f"warning: {self._path} cannot be written: {error}; its lines are kept and tried again")
                self._has_warned = True

    def _flush(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        if self._has_warned:
            self._say(f"{self._path} is written again, nothing left out")
            self._has_warned = False

    def sync(self) -> None:
        """Make all lines durable. Raises OSError where some cannot be written."""
        with self._lock:
            self._flush()
            os.fsync(self._file)

    def close(self) -> None:
        """Tries once more; what is left then is lost, and said."""
        with self._lock:
            try:
                self._flush()
            except OSError as error:
                num_lines = self._unwritten.count(b"\n")
                self._say(f"warning: the last {num_lines} lines of {self._path} are lost: {error}")
            os.close(self._file)
