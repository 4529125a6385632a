"""A rank's steps as rows, and rows as the plans of micro-batches. Pure.

EpochOrder, lanes -> StepBlocks, many steps at a time -> micro-batches of equal size, the last of a step filled up
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from loader.order import EpochOrder
from loader.shards import LocalShard

# The order is computed for this many rows at a time, 3 ms of work: numpy's fixed costs are 1.5 ms of it for any number.
_ROWS_AT_ONCE = 16_384
# But for the first time, since a first batch waits for it.
_ROWS_AT_FIRST = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBlock:
    """Neighbouring steps of one rank that lie in the same windows, rows in the global batches' order.

    shards, examples: int64, the rows' shard numbers and example numbers in the shards. cuts: step number s of the block
    has the rows cuts[s] .. cuts[s + 1] - 1. windows: of each source (one, but for mixtures) the window of its lanes'
    first element of a step, counted through the run. Shards of a mixture are numbered through its sources.
    """

    shards: np.ndarray
    examples: np.ndarray
    cuts: list[int]
    windows: tuple[int, ...]

    @property
    def num_steps(self) -> int:
        return len(self.cuts) - 1

    def steps(self) -> Iterator[list[tuple[int, int]]]:
        """Each step's (shard number, example number) pairs."""
        rows = list(zip(self.shards.tolist(), self.examples.tolist(), strict=True))
        for start, stop in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            yield rows[start:stop]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceivedRows:
    """Rows of a shard that came by themselves, since the shard is still on its way. rows: (len(examples), seq_len)."""

    name: str
    examples: tuple[int, ...]
    rows: np.ndarray


# Where a plan's rows are: in a file, in the plan itself, or nowhere (a bad shard that is masked).
RowsOf = LocalShard | ReceivedRows | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretch:
    """The rows of neighbouring micro-batches: row i is example `example_of_row[i]` of `files[file_of_row[i]]`.

    file_of_row, example_of_row: int64. window: the time of the run; a file not asked for in this one and the last is
    not asked for soon. Picklable, and free of the manifest.
    """

    files: tuple[RowsOf, ...]
    file_of_row: np.ndarray
    example_of_row: np.ndarray
    window: int


class MicroBatchPlan(NamedTuple):
    """All that making one micro-batch takes: `num_examples` rows of the stretch from row `first` on.

    The rows after, up to the loader's micro-batch, are filler without labels.
    """

    stretch: Stretch
    first: int
    num_examples: int


def blocks_of_rank(order: EpochOrder, lanes: range, first: int, num_steps: int) -> Iterator[StepBlock]:
    """The rows of `lanes` in `num_steps` steps of an epoch, the first one beginning at lane element `first`."""
    lane_batch, window_length = order.split.shape.lane_batch, order.split.window_length
    num_rows = len(lanes) * lane_batch
    first_window = order.epoch * order.split.windows_per_lane
    done = 0
    while done < num_steps:
        steps_at_once = max(1, (_ROWS_AT_ONCE if done else _ROWS_AT_FIRST) // max(1, num_rows))
        at = first + done * lane_batch
        window = at // window_length
        # The steps whose first element lies in this window still.
        in_window = -(-((window + 1) * window_length - at) // lane_batch)
        count = min(steps_at_once, num_steps - done, in_window)
        shards, examples = order.steps(lanes, at, count)
        yield StepBlock(
            shards=shards.ravel(),
            examples=examples.ravel(),
            cuts=list(range(0, (count + 1) * num_rows, num_rows)) if num_rows else [0] * (count + 1),
            windows=(first_window + window,),
        )
        done += count
