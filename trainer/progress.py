"""How far a run is: the few numbers that, with weights and moments, make up its state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Optimizer steps done, examples consumed over all epochs and ranks, and steps skipped for a non-finite loss."""

    step: int = 0
    examples_consumed: int = 0
    num_skipped: int = 0
    num_skipped_in_a_row: int = 0

    def after(self, *, num_examples: int, applied: bool) -> Progress:
        """The progress after one more step over `num_examples`; a skipped step consumes its data too."""
        return Progress(
            step=self.step + 1,
            examples_consumed=self.examples_consumed + num_examples,
            num_skipped=self.num_skipped + (not applied),
            num_skipped_in_a_row=0 if applied else self.num_skipped_in_a_row + 1,
        )
