"""A rank that makes no step ends, loudly, so that whoever started it can start it again.

One stuck rank (a dead file system, a lost network, a stopped process) holds all others inside a collective, where they
would wait in silence. Each rank therefore promises a sign of life every `hang_minutes`; where none comes, it prints the
stack of each of its threads and exits with 1. torchrun then ends the other ranks and, with --max-restarts, starts all
of them again. In the stacks, the rank that is not inside a collective is the one the others waited for.

The start, in which nothing is stepped yet, is watched phase by phase: `enter` names the phase, which has
`start_minutes`, since 112 GB take their time to be hashed, fetched or read.

The timer is faulthandler's: a C thread, which needs no lock that a stuck Python thread could hold. It can print no
words of ours, so the phase's name comes from a Python timer a moment earlier, which may stay silent where it does not.
"""

from __future__ import annotations

import faulthandler
import sys
from threading import Timer

# How long before the end the phase is named.
_NAMED_BEFORE_S = 0.5


class Watchdog:
    """Silent until the first `enter` or `beat`, and after `rest`."""

    def __init__(self, minutes: float | None, *, start_minutes: float | None, rank: int) -> None:
        """minutes: longest time between two beats. start_minutes: longest phase. None never ends anything."""
        self._minutes, self._start_minutes, self._rank = minutes, start_minutes, rank
        self._namer: Timer | None = None

    def enter(self, phase: str) -> None:
        """A sign of life in the start: what comes next is `phase`, and the next sign is due within start_minutes."""
        self._unname()
        if self._start_minutes is not None:
            seconds = 60 * self._start_minutes
            faulthandler.dump_traceback_later(seconds, exit=True)
            self._namer = Timer(max(0.0, seconds - _NAMED_BEFORE_S), self._name, [phase, seconds])
            self._namer.daemon = True
            self._namer.start()

    def _name(self, phase: str, seconds: float) -> None:
        sys.stderr.write(f"rank {self._rank}: {phase} took more than {seconds:g} s (start_minutes); the stacks:\n")
        sys.stderr.flush()

    def _unname(self) -> None:
        if self._namer is not None:
            self._namer.cancel()
            self._namer = None

    def beat(self, *, extra_minutes: float = 0.0) -> None:
        """A sign of life; the next one is due within hang_minutes + `extra_minutes`. Costs some 30 microseconds."""
        self._unname()
        if self._minutes is None:
            faulthandler.cancel_dump_traceback_later()  # the start's
        else:
            faulthandler.dump_traceback_later(60 * (self._minutes + extra_minutes), exit=True)

    def rest(self) -> None:
        self._unname()
        faulthandler.cancel_dump_traceback_later()
