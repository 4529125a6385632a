"""Keeps the remote copies up to date with the newest checkpoint, beside the training. Rank 0's work alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from trainer import checkpoint_files as files
from trainer import remote
from trainer.background import Background


class Copier:
    """Copies one checkpoint at a time; of those finished meanwhile the newest is next, the others stay local.

    A store out of reach must not stop the training: the local checkpoint stands, and the next save tries again.
    """

    def __init__(self, root: Path, where: str, keep: int, say: Callable[[str], None]) -> None:
        """root: <output>/checkpoints. where: the folder or prefix of the copies."""
        self._root, self._where, self._keep, self._say = root, where, keep, say
        self._background = Background("checkpoint copy")
        self._lock = Lock()
        self._wanted: int | None = None
        self._copying: int | None = None
        self._working = False

    def copy(self, step: int) -> None:
        """Copy step-N as soon as the one being copied is done."""
        with self._lock:
            self._wanted = step
            if self._working:
                return
            self._working = True
        self._background.wait()  # its thread may be at its very last line
        self._background.start(self._work)

    def _work(self) -> None:
        while (step := self._next()) is not None:
            try:
                remote.replicate(files.folder_of(self._root, step), step, self._where, self._keep)
            except Exception as error:  # whatever it is: unsaid, it would end all copies of the run in silence
                self._say(f"warning: step-{step} was not copied to {self._where}: {error}; the next save tries again")

    def _next(self) -> int | None:
        with self._lock:
            self._copying, self._wanted = self._wanted, None
            self._working = self._copying is not None
            return self._copying

    @property
    def copying(self) -> int | None:
        """The step being copied, which rotation must leave where it is."""
        return self._copying

    def wait(self, timeout_s: float) -> bool:
        """Whether nothing is being copied, after at most `timeout_s` seconds."""
        return self._background.wait(timeout_s)
