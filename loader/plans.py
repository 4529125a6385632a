"""A rank's steps as rows, and rows as the plans of micro-batches. Pure.

EpochOrder, lanes -> StepRows, one a step -> micro-batches of equal size, the last ones filled up
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loader.order import EpochOrder
from loader.shards import LocalShard

# The order is computed for this many rows at a time: numpy's fixed costs vanish, and it stays a millisecond of work.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True)
class StepRows:
    """The rows of one rank in one step, in the global batch's order: shard numbers and example numbers in the shards.

    windows: of each source (one, but for mixtures), the window of its lanes' first element of the step, counted in the
    epoch; in a mixture, through the run. Shards of a mixture are numbered through its sources.
    """

    shards: list[int]
    examples: list[int]
    windows: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceivedRows:
    """Rows of a shard that came by themselves, since the shard is still on its way. rows: (len(examples), seq_len)."""

    name: str
    examples: tuple[int, ...]
    rows: np.ndarray


# Where a plan's rows are: in a file, in the plan itself, or nowhere (a bad shard that is masked).
RowsOf = LocalShard | ReceivedRows | None


@dataclass(frozen=True, slots=True)
class MicroBatchPlan:
    """All that making one micro-batch takes: small, picklable, and free of the manifest.

    Row i, for i < len(file_of_row), is example `example_of_row[i]` of `files[file_of_row[i]]`; the rows after, up to
    `num_rows`, are filler without labels. window: the time of the run; a file not asked for in this one and the last is
    not asked for soon.
    """

    files: tuple[RowsOf, ...]
    file_of_row: list[int]
    example_of_row: list[int]
    num_rows: int
    window: int


def steps_of_rank(order: EpochOrder, lanes: range, first: int, num_steps: int) -> Iterator[StepRows]:
    """The rows of `lanes` in `num_steps` steps of an epoch, the first one beginning at lane element `first`."""
    lane_batch = order.split.shape.lane_batch
    steps_at_once = max(1, _ROWS_AT_ONCE // max(1, len(lanes) * lane_batch))
    for done in range(0, num_steps, steps_at_once):
        at = first + done * lane_batch
        shards, examples = order.steps(lanes, at, min(steps_at_once, num_steps - done))
        for step, (of_shards, of_examples) in enumerate(zip(shards.tolist(), examples.tolist(), strict=True)):
            window = (at + step * lane_batch) // order.split.window_length
            yield StepRows(shards=of_shards, examples=of_examples, windows=(window,))
