"""`python -m loader check`: what a run will be, before it starts, from the manifest alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loader.budget import SourceNeed, most_needed_by_a_node
from loader.commands.shuffle import Meetings, Moves, meetings, moves, sampled_steps, sources_of_examples
from loader.order import RunShape, SplitOrder, owned_lanes, rows_per_rank
from loader.residency import most_touched, residency
from loader.shards import ShardTable
from manifests import Dataset

# Ranks looked at one by one, spread over the world.
_MAX_RANKS = 64
# Lineage is a file a shard: read for small sets, where it takes a moment.
_MAX_LINEAGE_SHARDS = 64
_BAR_WIDTH = 40


@dataclass(frozen=True, kw_only=True)
class Check:
    """All that is printed. Ranges are (least, most) over the ranks; bytes are of files."""

    num_examples: int
    num_shards: int
    num_bytes: int
    shape: RunShape
    world_size: int
    nodes: int
    steps_per_epoch: int
    left_over: int
    lanes_of_rank: tuple[int, int]
    rows_of_rank: int
    shards_of_rank: tuple[int, int]
    bytes_of_rank: tuple[int, int]
    window_length: int
    windows_per_lane: int
    shards_at_start: int
    bytes_at_start: int
    first_rows_bytes: int
    is_remote: bool
    cache_needed: int
    cache_comfortable: int
    moves: Moves
    shards_in_batch: Meetings
    sources_in_batch: Meetings | None


def checked(dataset: Dataset, *, split: str, shape: RunShape, world_size: int, nodes: int) -> Check:
    """Works everything out; raises UserErrors for numbers that make no order."""
    table = ShardTable(dataset=dataset, split=split)
    order = SplitOrder(shard_num_examples=table.num_examples, shape=shape)
    ranks_per_node = -(-world_size // nodes)
    file_bytes = np.array([entry.num_bytes for entry in table.entries], dtype=np.int64)

    ranks = sorted({round(at) for at in np.linspace(0, world_size - 1, min(_MAX_RANKS, world_size))})
    epoch = order.epoch(0)
    lanes = [owned_lanes(rank, world_size, shape.num_lanes) for rank in ranks]
    held = [residency(epoch, owned, 0) for owned in lanes]
    shards = [len(of.shards) for of in held]
    num_bytes = [int(file_bytes[of.shards].sum()) for of in held]
    first = [of.shards[of.first_windows == 0] for of in held]

    # The batch in work, and two ahead of it.
    open_windows = most_touched(3 * shape.lane_batch, order.window_length)
    needed, comfortable = (
        most_needed_by_a_node(
            [SourceNeed(order=order, shard_num_bytes=file_bytes, open_windows=open_windows + ahead)],
            world_size,
            ranks_per_node,
            (shape.num_lanes,),
        )
        for ahead in (0, 1)
    )
    steps, in_shards, indices = sampled_steps(order)
    sources = sources_of_examples(table, _MAX_LINEAGE_SHARDS)
    in_sources = None
    if sources is not None:
        offsets = np.cumsum(table.num_examples) - table.num_examples
        of_example = np.concatenate(sources[1])
        in_sources = meetings(of_example[offsets[in_shards] + indices], np.bincount(of_example))
    rows = rows_per_rank(world_size, shape)
    return Check(
        num_examples=order.num_examples,
        num_shards=len(table.entries),
        num_bytes=int(file_bytes.sum()),
        shape=shape,
        world_size=world_size,
        nodes=nodes,
        steps_per_epoch=order.steps_per_epoch,
        left_over=order.num_examples - order.steps_per_epoch * shape.global_batch,
        lanes_of_rank=(min(map(len, lanes)), max(map(len, lanes))),
        rows_of_rank=rows,
        shards_of_rank=(min(shards), max(shards)),
        bytes_of_rank=(min(num_bytes), max(num_bytes)),
        window_length=order.window_length,
        windows_per_lane=order.windows_per_lane,
        shards_at_start=max(map(len, first)),
        bytes_at_start=max(int(file_bytes[of].sum()) for of in first),
        first_rows_bytes=2 * rows * dataset.manifest.example.seq_len * dataset.manifest.example.itemsize,
        is_remote=bool(table.bytes_to_fetch.any()),
        cache_needed=needed,
        cache_comfortable=comfortable,
        moves=moves(order, steps, in_shards, indices),
        shards_in_batch=meetings(in_shards, table.num_examples),
        sources_in_batch=in_sources,
    )


def lines(check: Check) -> Iterator[str]:
    """The check as a page for a terminal, 100 columns wide at most."""
    shape = check.shape
    yield f"{check.num_examples:,} examples in {check.num_shards:,} shards, {size(check.num_bytes)}"
    yield ""
    yield (
        f"  order      global batch {shape.global_batch:,} = {shape.num_lanes:,} lanes x {shape.lane_batch}, windows "
        f"of {check.window_length:,} examples, {check.windows_per_lane:,} a lane"
    )
    yield (
        f"  epoch      {check.steps_per_epoch:,} steps; {check.left_over:,} examples left over "
        f"({check.left_over / check.num_examples:.2%}), others in every epoch"
    )
    filler = check.rows_of_rank * check.world_size - shape.global_batch
    yield (
        f"  rank       {spread(check.lanes_of_rank)} lanes, {check.rows_of_rank:,} rows a step "
        f"({filler:,} of {check.rows_of_rank * check.world_size:,} rows are filler), "
        f"{spread(check.shards_of_rank)} shards, {size(check.bytes_of_rank[1])} an epoch"
    )
    yield (
        f"  cache      {check.cache_needed:,} bytes a node at least, {check.cache_comfortable:,} to fetch a window "
        "ahead"
    )
    if not check.is_remote:
        yield "             (from object storage, that is: these shards are local and read in place)"
    yield (
        f"  start      a rank opens {check.shards_at_start:,} shards, {size(check.bytes_at_start)}; its first rows "
        f"come after {size(check.first_rows_bytes)} by ranged reads"
    )
    yield ""
    yield from _drawn(check.moves)
    yield ""
    yield _met("shards", check.shards_in_batch)
    if check.sources_in_batch is None:
        yield "  sources in a batch: not looked at (no lineage, or many shards); see manifests show for their shares"
    else:
        yield _met("sources", check.sources_in_batch)


def _drawn(found: Moves) -> Iterator[str]:
    off = found.mean / found.expected_mean - 1
    yield (
        f"  how far examples move in an epoch: {found.mean:.3f} of the split on average, a full shuffle's is "
        f"{found.expected_mean:.3f} ({off:+.1%})"
    )
    widest = max(found.histogram.max(), found.expected.max())
    for number, (share, expected) in enumerate(zip(found.histogram, found.expected, strict=True)):
        bar = round(share / widest * _BAR_WIDTH) * "#"
        mark = round(expected / widest * _BAR_WIDTH)
        # The bar is what was found, the | what a full shuffle gives.
        drawn = (bar.ljust(mark) + "|" if len(bar) <= mark else bar[:mark] + "|" + bar[mark + 1 :]).ljust(
            _BAR_WIDTH + 1
        )
        yield f"    {number / len(found.histogram):6.1%}  {drawn}  {share:6.2%}   full {expected:6.2%}"


def _met(what: str, found: Meetings) -> str:
    return (
        f"  {what} in a batch: {found.found:.1f} of {found.groups:,}, drawn at random {found.expected:.1f}; their "
        f"shares vary {found.spread:.2f} times as much as at random"
    )


def spread(least_and_most: Sequence[int]) -> str:
    """`3` or `3-4`."""
    least, most = least_and_most
    return f"{least:,}" if least == most else f"{least:,}-{most:,}"


def size(num_bytes: int) -> str:
    """Bytes as a person says them: `1.5 GB`, powers of 1,000."""
    value = float(num_bytes)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1000
    raise AssertionError("the last unit returns")
