"""What the seconds of a step go to, by the device's own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch

Phase = Literal["forward", "backward", "update"]


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Seconds of one step on this rank. forward and backward: of all micro-batches, with the exchanges inside them.

    update: the gradient norm, clipping, the optimizer.
    """

    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0


class PhaseClock:
    """Marks where phases end. On CUDA the marks are events in the stream, so that nothing waits for them until read."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks = [("", self._now())]

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch annotates a part
        event.record()
        return event

    def ends(self, phase: Phase) -> None:
        """What was done since the last mark was `phase`."""
        self._marks.append((phase, self._now()))

    def read(self) -> Phases:
        """Waits for the last mark."""
        sums = {"forward": 0.0, "backward": 0.0, "update": 0.0}
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            if isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event):
                after.synchronize()
                sums[phase] += before.elapsed_time(after) / 1e3
            elif isinstance(before, float) and isinstance(after, float):
                sums[phase] += after - before
        return Phases(**sums)
