"""How far a run is: the few numbers that, with weights and moments, make up its state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainer.loss_scale import LossScale


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Optimizer steps done, examples consumed over all epochs and ranks, and steps skipped for a non-finite loss.

    loss_scale: in fp16 only. An overflow that a smaller scale can mend is skipped and counted, but not towards the
    skipped steps in a row that end a run.
    """

    step: int = 0
    examples_consumed: int = 0
    num_skipped: int = 0
    num_skipped_in_a_row: int = 0
    loss_scale: LossScale | None = None

    def after(self, *, num_examples: int, applied: bool) -> Progress:
        """The progress after one more step over `num_examples`; a skipped step consumes its data too."""
        mendable = not applied and self.loss_scale is not None and self.loss_scale.factor > 1.0
        return Progress(
            step=self.step + 1,
            examples_consumed=self.examples_consumed + num_examples,
            num_skipped=self.num_skipped + (not applied),
            num_skipped_in_a_row=0 if applied or mendable else self.num_skipped_in_a_row + 1,
            loss_scale=None if self.loss_scale is None else self.loss_scale.after(finite=applied),
        )

    def in_precision(self, precision: str) -> Progress:
        """With a loss scale where `precision` needs one, and without where it does not."""
        if precision != "fp16":
            return replace(self, loss_scale=None)
        return self if self.loss_scale is not None else replace(self, loss_scale=LossScale())

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Progress:
        """What dataclasses.asdict made of one."""
        scale = values.get("loss_scale")
        return cls(**{**values, "loss_scale": None if scale is None else LossScale(**scale)})
