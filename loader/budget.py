"""How the bytes of a cache folder are divided, and whether they are enough. Pure.

The ranks of a node share a folder, and each may hold its own part of the limit there: a rank that runs ahead can then
never take the room that another one waits for, and the folder never holds more than the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loader.cache import CacheError
from loader.order import SplitOrder, owned_lanes
from loader.residency import most_bytes_held


@dataclass(frozen=True, kw_only=True)
class SourceNeed:
    """What a source's lanes need: its order, the bytes to fetch by shard, and the windows open at once in an epoch.

    open_epochs: epochs of the source open at once: above one in a mixture alone, whose batches cross a source's end.
    """

    order: SplitOrder
    shard_num_bytes: np.ndarray
    open_windows: int
    open_epochs: int = 1


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Bytes of this rank, by source, at the least and at the most; and what its node needs at the least."""

    needed: tuple[int, ...]
    limits: tuple[int, ...]
    node_needed: int


def ranks_of_node(rank: int, world_size: int, ranks_per_node: int) -> range:
    """The ranks on the node of this one: ranks are numbered node by node."""
    first = rank // ranks_per_node * ranks_per_node
    return range(first, min(first + ranks_per_node, world_size))


def divided(
    sources: Sequence[SourceNeed], owned: dict[int, tuple[int, ...]], rank: int, cache_bytes: int | None
) -> Budget:
    """This rank's budget.

    owned: by rank of this node, how many lanes of each source it owns. cache_bytes: the limit of the folder; None for
    what the open windows and the next ones take. Raises CacheError, naming the bytes needed, where it is too small.
    """
    # Ranks own one of two numbers of lanes, and a need takes sorting all shards: each is worked out once.
    needs = {counts: _needs(sources, counts, ahead=0) for counts in set(owned.values())}
    node_needed = sum(sum(needs[counts]) for counts in owned.values())
    mine = needs[owned[rank]]
    if cache_bytes is None:
        limits = _needs(sources, owned[rank], ahead=1)
        return Budget(needed=mine, limits=limits, node_needed=node_needed)
    if cache_bytes < node_needed:
        others = f" and of {len(owned) - 1} more ranks of its node" if len(owned) > 1 else ""
        raise CacheError(
            f"cache_bytes is {cache_bytes}, but the shards that {sum(owned[rank])} lanes (rank {rank}{others}) have "
            f"open at once take {node_needed} bytes; give cache_bytes={node_needed} or more, or fewer lanes a rank"
            + (", or the right ranks_per_node" if others else "")
        )
    spare = cache_bytes - node_needed
    limits = tuple(need + (spare * need // node_needed if node_needed else 0) for need in mine)
    return Budget(needed=mine, limits=limits, node_needed=node_needed)


def most_needed_by_a_node(
    sources: Sequence[SourceNeed], world_size: int, ranks_per_node: int, source_lanes: Sequence[int]
) -> int:
    """The bytes that `divided` asks of the node that needs most: where W does not divide L, nodes own unequal lanes."""
    nodes = [
        lanes_by_rank(ranks_of_node(first, world_size, ranks_per_node), world_size, source_lanes).values()
        for first in range(0, world_size, ranks_per_node)
    ]
    needs = {counts: sum(_needs(sources, counts, ahead=0)) for counts in {counts for node in nodes for counts in node}}
    return max(sum(needs[counts] for counts in node) for node in nodes)


def lanes_by_rank(ranks: range, world_size: int, source_lanes: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """How many lanes of each source each rank owns, the lanes of all sources standing in one line."""
    starts = np.cumsum([0, *source_lanes])
    counts = {}
    for rank in ranks:
        lanes = owned_lanes(rank, world_size, int(starts[-1]))
        inside = np.clip([lanes.start, lanes.stop], starts[:-1, None], starts[1:, None])
        counts[rank] = tuple((inside[:, 1] - inside[:, 0]).tolist())
    return counts


def _needs(sources: Sequence[SourceNeed], num_lanes: Sequence[int], ahead: int) -> tuple[int, ...]:
    return tuple(
        min(
            # Every epoch lays the shards in another order, so what two hold at once may have nothing in common.
            source.open_epochs
            * most_bytes_held(source.order, count, source.shard_num_bytes, source.open_windows + ahead),
            int(source.shard_num_bytes.sum()),
        )
        for source, count in zip(sources, num_lanes, strict=True)
    )
