"""SIGTERM and SIGINT become a wish to stop, which the loop reads between steps.

A handler may only set a flag: collectives from inside it could meet a rank that is already in another one. The loop
adds the flag to the all-reduce it makes every step anyway, so all ranks stop at the same step.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType

# sysexits.h EX_TEMPFAIL: "try again later". A supervisor that sees it starts the same command again.
EXIT_RESUME_ME = 75


# linux/prctl.h: the signal a process gets when the one that started it is gone.
_PR_SET_PDEATHSIG = 1


def die_with_launcher() -> None:
    """Under torchrun on Linux: be killed when torchrun is.

    Its ranks live in sessions of their own, so a killed torchrun would leave them training on, into the folder that the
    command started next resumes from. Started by anything else (a shell that closes, say), nothing changes.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class StopSignal:
    """Which signal asked this process to stop, if one did."""

    def __init__(self) -> None:
        self.name: str | None = None

    def install(self) -> None:
        """Catch SIGTERM (schedulers, torchrun) and SIGINT (Ctrl-C) from now on."""
        signal.signal(signal.SIGTERM, self._remember)
        signal.signal(signal.SIGINT, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's handler interface
        self.name = signal.Signals(number).name

    @property
    def asked(self) -> bool:
        return self.name is not None
