"""One run at a time writes into an output folder."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from manifests.yaml_config import ConfigError


class OutputLock:
    """<output>/lock, held from `acquire` to `release`; the kernel lets go when the process ends, however it ends."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._stream: IO[str] | None = None

    def acquire(self) -> None:
        """Raises ConfigError where another process holds it: two runs would clear each other's unfinished saves."""
        self._output.mkdir(parents=True, exist_ok=True)
        stream = (self._output / "lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise ConfigError(
                "output", f"another run is training into {self._output}; wait for it, or give another output"
            ) from None
        self._stream = stream

    def release(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
