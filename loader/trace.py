"""The order in print: which examples each rank gets in which step, without reading a shard.

manifest, RunShape, world size -> steps T .. T + N - 1 -> one JSON line a step and rank
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from loader.order import OrderError, RunShape, SplitOrder, owned_lanes
from loader.plans import blocks_of_rank
from loader.shards import ShardTable
from manifests import Dataset


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """What to trace. rank: one rank, or None for all in turn. start and num_steps count through epochs."""

    split: str
    shape: RunShape
    world_size: int
    rank: int | None
    start: int
    num_steps: int
    num_workers: int

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise OrderError(f"--world-size is {self.world_size}; give 1 or more")
        if self.rank is not None and not 0 <= self.rank < self.world_size:
            raise OrderError(f"--rank is {self.rank} of --world-size {self.world_size}; ranks are 0 .. world size - 1")
        for option, value in (("--start", self.start), ("--steps", self.num_steps), ("--workers", self.num_workers)):
            if value < 0:
                raise OrderError(f"{option} is {value}; give 0 or more")


@dataclass(frozen=True, kw_only=True)
class _Line:
    step: int
    rank: int
    rows: list[tuple[int, int]]


def trace_lines(dataset: Dataset, request: TraceRequest) -> Iterator[str]:
    """One JSON line a step and rank: {"step":, "rank":, "examples": [[shard path, example number], ...]}.

    Filler rows are not listed. With n workers the lines are written in that many processes, dealt as batches are: step
    number t of the trace by worker t mod n.
    """
    table = ShardTable(dataset=dataset, split=request.split)
    order = SplitOrder(shard_num_examples=table.num_examples, shape=request.shape)
    ranks = range(request.world_size) if request.rank is None else range(request.rank, request.rank + 1)
    steps = zip(*(_lines(order, request, rank) for rank in ranks), strict=True)
    write = partial(_written, [entry.path for entry in table.entries])
    if request.num_workers:
        from loader.workers import made_in_order  # the worker processes, which most traces do not need

        written = made_in_order(steps, write, request.num_workers)
    else:
        written = map(write, steps)
    for lines in written:
        yield from lines


def _written(paths: list[str], lines: Iterable[_Line]) -> list[str]:
    written = []
    for line in lines:
        examples = [[paths[shard], example] for shard, example in line.rows]
        record = {"step": line.step, "rank": line.rank, "examples": examples}
        written.append(json.dumps(record, ensure_ascii=False))
    return written


def _lines(order: SplitOrder, request: TraceRequest, rank: int) -> Iterator[_Line]:
    """The steps of a rank, through as many epochs as they reach."""
    lanes = owned_lanes(rank, request.world_size, order.shape.num_lanes)
    step, end = request.start, request.start + request.num_steps
    while step < end:
        epoch, first = order.at_step(step)
        in_epoch = min(end - step, order.steps_left(first * order.shape.num_lanes))
        for block in blocks_of_rank(order.epoch(epoch), lanes, first, in_epoch):
            for rows in block.steps():
                yield _Line(step=step, rank=rank, rows=rows)
                step += 1
