"""`python -m loader check` of a mixture: what each source gives a run, and what the run takes, before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loader.budget import SourceNeed, most_needed_by_a_node
from loader.commands.check import size, spread
from loader.commands.shuffle import moves, sampled_steps
from loader.mixture import MixtureOrder, lanes_of_rank
from loader.order import RunShape
from loader.residency import most_touched
from loader.shards import ShardTable
from manifests import Dataset

# Batches whose shares are looked at, from the start of the run: quotas repeat, more or less, in far fewer.
_MAX_BATCHES = 2000


@dataclass(frozen=True, kw_only=True)
class SourceCheck:
    """One source. rows_in_batch: (least, most). epochs: its own in one of the mixture. move: a full shuffle's is 1."""

    url: str
    share: float
    num_examples: int
    num_bytes: int
    num_lanes: int
    rows_in_batch: tuple[int, int]
    epochs: float
    move: float


@dataclass(frozen=True, kw_only=True)
class MixtureCheck:
    """All that is printed. Ranges are (least, most) over the ranks; bytes are of files, of one node."""

    sources: tuple[SourceCheck, ...]
    shape: RunShape
    world_size: int
    num_lanes: int
    num_examples: int
    steps_per_epoch: int
    lanes_of_rank: tuple[int, int]
    rows_of_rank: int
    cache_needed: int
    cache_comfortable: int


def checked(
    datasets: Sequence[Dataset],
    weights: Sequence[float],
    *,
    split: str,
    shape: RunShape,
    world_size: int,
    nodes: int,
) -> MixtureCheck:
    """Works everything out from the manifests alone; raises UserErrors for numbers that make no order."""
    tables = [ShardTable(dataset=dataset, split=split) for dataset in datasets]
    counts = tuple(table.num_examples for table in tables)
    order = MixtureOrder(shard_num_examples=counts, weights=tuple(weights), shape=shape)
    file_bytes = [np.array([entry.num_bytes for entry in table.entries], dtype=np.int64) for table in tables]

    num_batches = min(_MAX_BATCHES, order.steps_per_epoch)
    given = np.diff([order.counts(batch * shape.global_batch) for batch in range(num_batches + 1)], axis=0)
    whole_epoch = order.counts(order.epoch_length)
    sources = []
    for number, (dataset, source) in enumerate(zip(datasets, order.sources, strict=True)):
        found = moves(source, *sampled_steps(source))
        sources.append(
            SourceCheck(
                url=dataset.url,
                share=weights[number] / sum(weights),
                num_examples=source.num_examples,
                num_bytes=int(file_bytes[number].sum()),
                num_lanes=order.source_lanes[number],
                rows_in_batch=(int(given[:, number].min()), int(given[:, number].max())),
                epochs=whole_epoch[number] / source.num_examples,
                move=found.mean / found.expected_mean,
            )
        )
    lanes = [len(lanes_of_rank(order, rank, world_size)) for rank in range(world_size)]
    # The batch in work, and two ahead of it; a source may begin in the middle of a step.
    elements = 3 * shape.lane_batch + 1
    needed, comfortable = (
        most_needed_by_a_node(
            [
                SourceNeed(
                    order=source,
                    shard_num_bytes=num_bytes,
                    open_windows=most_touched(elements, source.window_length) + ahead,
                    open_epochs=most_touched(elements, source.lane_length),
                )
                for source, num_bytes in zip(order.sources, file_bytes, strict=True)
            ],
            world_size,
            -(-world_size // nodes),
            order.source_lanes,
        )
        for ahead in (0, 1)
    )
    return MixtureCheck(
        sources=tuple(sources),
        shape=shape,
        world_size=world_size,
        num_lanes=order.num_lanes,
        num_examples=order.num_examples,
        steps_per_epoch=order.steps_per_epoch,
        lanes_of_rank=(min(lanes), max(lanes)),
        rows_of_rank=-(-order.num_lanes // world_size) * shape.lane_batch,
        cache_needed=needed,
        cache_comfortable=comfortable,
    )


def lines(check: MixtureCheck) -> Iterator[str]:
    """The check as a page for a terminal."""
    shape = check.shape
    yield f"{check.num_examples:,} examples in a mixture of {len(check.sources)} sources"
    yield ""
    for source in check.sources:
        yield f"  {source.url}"
        yield (
            f"      share {source.share:.2%}, {source.num_examples:,} examples, {size(source.num_bytes)}; "
            f"{spread(source.rows_in_batch)} rows of a batch from {source.num_lanes:,} lanes"
        )
        yield (
            f"      read {source.epochs:.2f} times in an epoch of the mixture; examples move {source.move:.3f} of "
            "what a full shuffle moves them"
        )
    yield ""
    yield (
        f"  order      global batch {shape.global_batch:,}, {shape.num_lanes:,} lanes asked for, {check.num_lanes:,} "
        f"given; {check.steps_per_epoch:,} steps an epoch"
    )
    filler = check.rows_of_rank * check.world_size - shape.global_batch
    yield (
        f"  rank       {spread(check.lanes_of_rank)} lanes, {check.rows_of_rank:,} rows a step "
        f"({filler:,} of {check.rows_of_rank * check.world_size:,} rows are filler)"
    )
    yield (
        f"  cache      {check.cache_needed:,} bytes a node at least, {check.cache_comfortable:,} to fetch a window "
        "ahead (shards on local disk need none)"
    )
