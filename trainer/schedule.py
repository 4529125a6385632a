"""The learning rate as a closed form of consumed examples: no counter to save, nothing to drift on resume.

rate
 |      ______                      1. warm-up: straight line from 0 to the peak
 |     /      \\__                  2. cosine or linear fall to the floor at the last example,
 |    /          \\___ floor           or constant, with a linear fall over the last decay_fraction
 +---+----------------+--> examples consumed
     warmup          total
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Counts are examples of the whole run, over all ranks. `peak` and the result are learning rates."""

    peak: float
    total: int
    warmup: int
    shape: Literal["cosine", "linear", "constant"]
    floor_fraction: float
    decay_fraction: float = 0.0

    def rate(self, consumed: int) -> float:
        """The rate of the step that brings the count to `consumed`: its own batch is included, so the first step moves.

        Worked example: peak 1.0, warmup 32, batch 8: steps 1..4 have rates 0.25, 0.5, 0.75, 1.0.
        """
        if consumed < self.warmup:
            return self.peak * consumed / self.warmup
        start = self.warmup
        if self.shape == "constant":
            start = max(start, self.total - round(self.decay_fraction * self.total))
        if consumed <= start:
            return self.peak
        progress = min(1.0, (consumed - start) / (self.total - start)) if self.total > start else 1.0
        if self.shape == "constant" and self.decay_fraction == 0.0:
            return self.peak
        fall = 0.5 * (1.0 + math.cos(math.pi * progress)) if self.shape == "cosine" else 1.0 - progress
        return self.peak * (self.floor_fraction + (1.0 - self.floor_fraction) * fall)


def warmup_examples(*, total: int, examples: int | None, fraction: float) -> int:
    """Examples of warm-up: as stated, else a fraction of the run; never more than the run."""
    return min(total, round(fraction * total) if examples is None else examples)


def scaled_rate(rate: float, *, batch: int, reference: int | None, rule: Literal["linear", "sqrt", "none"]) -> float:
    """`rate` chosen for a batch of `reference` examples, for one of `batch`. No reference: unchanged.

    linear: Goyal et al. 2017, arXiv:1706.02677, section 2.1. sqrt: for Adam, Malladi et al. 2022, arXiv:2205.10287.
    """
    if reference is None or rule == "none":
        return rate
    ratio = batch / reference
    return rate * (ratio if rule == "linear" else math.sqrt(ratio))
