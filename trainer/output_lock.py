"""One run at a time writes into an output folder, and all its ranks see the same one."""

from __future__ import annotations

import errno
import fcntl
import secrets
import time
from pathlib import Path
from typing import IO

from manifests.yaml_config import ConfigError

# A network file system may show a file of another node a few seconds late.
_LONGEST_LOOK_S = 10.0


class OutputLock:
    """<output>/lock, held from `acquire` to `release`; the kernel lets go when the process ends, however it ends."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._stream: IO[bytes] | None = None

    def acquire(self) -> str | None:
        """What it wrote into the file, for `look`; None where a full disk took nothing. Rank 0's work alone.

        Raises ConfigError where another process holds it: two runs would clear each other's unfinished saves. Likewise
        where the folder cannot be made or written.
        """
        try:
            self._output.mkdir(parents=True, exist_ok=True)
            stream = (self._output / "lock").open("ab", buffering=0)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # that may pass: no wrong request
                raise
            raise ConfigError(
                "output", f"{self._output} cannot be written into: {error.strerror}; give another folder"
            ) from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise ConfigError(
                "output", f"another run is training into {self._output}; wait for it, or give another output"
            ) from None
        self._stream = stream
        mark = secrets.token_hex(8)
        stream.truncate(0)
        try:
            stream.write(f"{mark}\n".encode())
        except OSError:
            return None
        return mark

    def look(self, mark: str | None, rank: int) -> None:
        """Raises ConfigError where this rank does not see what rank 0 wrote: no checkpoint would ever be whole, and a
        resume would find parts of several.
        """
        deadline = time.monotonic() + _LONGEST_LOOK_S
        while mark is not None and not self._holds(mark):
            if time.monotonic() > deadline:
                raise ConfigError(
                    "output",
                    f"rank {rank} does not see the {self._output} that rank 0 writes into;"
                    " give a folder that all nodes share",
                )
            time.sleep(0.1)

    def _holds(self, mark: str) -> bool:
        try:
            return (self._output / "lock").read_text(encoding="utf-8").strip() == mark
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
