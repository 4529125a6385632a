"""timeline.jsonl: what a run spent its time on, over all its attempts; goodput.py reads it.

    {"kind": "start", "at": 1764454000.1, "seconds": 9.2, "step": 0, "world_size": 8}    process born -> ready to step
    {"kind": "step", "at": 1764454001.3, "seconds": 1.1, "data_wait_s": 0.01, "step": 1}
    {"kind": "save", "at": ..., "seconds": 0.4}           the steps held by a checkpoint
    {"kind": "evaluation", "at": ..., "seconds": 3.0}
    {"kind": "end", "at": ..., "seconds": 0.0, "reason": "done"}      missing where the process was killed

`at` is the wall clock (seconds since 1970) when the span ended, `seconds` how long it was. Unlike metrics.jsonl nothing
is ever taken back: a step made, lost and made again stands here twice.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.append import AppendedLines


class Timeline:
    """The open file of one attempt; one process writes it."""

    def __init__(self, path: Path, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        torn = path.exists() and path.read_bytes()[-1:] not in (b"\n", b"")
        self._lines = AppendedLines(path, say)
        if torn:  # ended here, so that only it is lost
            self._lines.write("")
            say(f"warning: the last line of {path} was cut short by a kill: its seconds count as down")
        self._clock = clock

    def note(self, kind: str, *, seconds: float, **values: Any) -> None:
        line = {"kind": kind, "at": round(self._clock(), 6), "seconds": round(seconds, 6), **values}
        self._lines.write(json.dumps(line))

    def close(self) -> None:
        self._lines.close()


def read_events(path: Path) -> list[dict[str, Any]]:
    """The lines of a timeline in the file's order, without those a kill cut short, which `Timeline` warned of."""
    if not path.exists():
        return []
    events = []
    for line in path.read_bytes().split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        events.append(event)
    return events


def process_age_s() -> float:
    """Seconds since this process was started, interpreter and imports included (Linux: /proc)."""
    # proc(5): field 22, starttime, in clock ticks since boot; the name in field 2 may hold spaces and brackets.
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
