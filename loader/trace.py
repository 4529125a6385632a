"""The order in print: which examples each rank gets in which step, without reading a shard.

manifest, RunShape, world size -> steps T .. T + N - 1 -> one JSON line a step and rank
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from loader.mixture import MixtureOrder, blocks_of, lanes_of_rank, order_of
from loader.order import OrderError, RunShape, SplitOrder
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


def trace_lines(datasets: Sequence[Dataset], weights: Sequence[float], request: TraceRequest) -> Iterator[str]:
    """One JSON line a step and rank: {"step":, "rank":, "examples": [[shard path, example number], ...]}.

    weights: of the datasets, which are then mixed, and their shards named by their whole paths; none for one dataset.
    Filler rows are not listed. With n workers the lines are written in that many processes, dealt as batches are: step
    number t of the trace by worker t mod n.
    """
    tables = [ShardTable(dataset=dataset, split=request.split) for dataset in datasets]
    order = order_of([table.num_examples for table in tables], weights, request.shape)
    paths = [
        table.url(number) if weights else entry.path for table in tables for number, entry in enumerate(table.entries)
    ]
    ranks = range(request.world_size) if request.rank is None else range(request.rank, request.rank + 1)
    steps = zip(*(_lines(order, request, rank) for rank in ranks), strict=True)
    write = partial(_written, paths)
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


def _lines(order: SplitOrder | MixtureOrder, request: TraceRequest, rank: int) -> Iterator[_Line]:
    """The steps of a rank, through as many epochs as they reach."""
    lanes = lanes_of_rank(order, rank, request.world_size)
    step, end = request.start, request.start + request.num_steps
    while step < end:
        epoch, consumed = order.at_step(step)
        in_epoch = min(end - step, order.steps_left(consumed))
        for block in blocks_of(order, lanes, epoch, consumed, in_epoch):
            for rows in block.steps():
                yield _Line(step=step, rank=rank, rows=rows)
                step += 1
