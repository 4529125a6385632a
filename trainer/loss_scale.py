"""The factor that keeps small fp16 gradients from vanishing, and how it follows overflows. Pure.

Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2; numbers as in torch.amp.GradScaler. Powers of two:
scaling and its undoing change no bit of a gradient that neither vanishes nor overflows.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 2.0**16
LARGEST = 2.0**24
GROWTH_INTERVAL = 2000


@dataclass(frozen=True, kw_only=True)
class LossScale:
    """factor: of the loss now. good_steps: since it last changed."""

    factor: float = FIRST
    good_steps: int = 0

    def after(self, *, finite: bool) -> LossScale:
        """Halved by an overflow, doubled by GROWTH_INTERVAL good steps in a row."""
        if not finite:
            return LossScale(factor=max(1.0, self.factor / 2))
        if self.good_steps + 1 == GROWTH_INTERVAL:
            return LossScale(factor=min(LARGEST, self.factor * 2))
        return LossScale(factor=self.factor, good_steps=self.good_steps + 1)
