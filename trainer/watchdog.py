"""A rank that makes no step ends, loudly, so that whoever started it can start it again.

One stuck rank (a dead file system, a lost network, a stopped process) holds all others inside a collective, where they
would wait in silence. Each rank therefore promises a sign of life every `hang_minutes`; where none comes, it prints the
stack of each of its threads and exits with 1. torchrun then ends the other ranks and, with --max-restarts, starts all
of them again. In the stacks, the rank that is not inside a collective is the one the others waited for.

The timer is faulthandler's: a C thread, which needs no lock that a stuck Python thread could hold.
"""

from __future__ import annotations

import faulthandler


class Watchdog:
    """Silent until the first `beat`, and after `rest`."""

    def __init__(self, minutes: float | None) -> None:
        """minutes: longest time between two beats; None never ends anything."""
        self._minutes = minutes

    def beat(self, *, extra_minutes: float = 0.0) -> None:
        """A sign of life; the next one is due within hang_minutes + `extra_minutes`. Costs some 30 microseconds."""
        if self._minutes is not None:
            faulthandler.dump_traceback_later(60 * (self._minutes + extra_minutes), exit=True)

    def rest(self) -> None:
        faulthandler.cancel_dump_traceback_later()
