"""How well an order mixes: how far examples move, and how many sources meet in a batch. Pure, but for lineage files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loader.order import SplitOrder
from loader.shards import ShardTable
from manifests.lineage import lineage_path, read_lineage

# Steps looked at, spread over the epoch, where an epoch has more.
_MAX_STEPS = 2000
_NUM_BARS = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Moves:
    """How far examples move from their place in the manifest to their place in an epoch, as fractions of the split.

    histogram: the fraction of examples in each of 16 equal parts of 0 .. 1; expected: a full shuffle's. mean and
    expected_mean likewise (a full shuffle's is 1/3).
    """

    mean: float
    expected_mean: float
    histogram: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Meetings:
    """Of the groups (shards, or sources) that examples come from: how many different ones meet in one batch.

    found: the mean over batches. expected: the mean where each example of a batch is drawn at random.
    spread: how much a group's share of a batch varies, as a multiple of the multinomial's standard deviation: 1 for a
    full shuffle, below 1 where batches are more even, above 1 where they clump.
    """

    groups: int
    found: float
    expected: float
    spread: float


def sampled_steps(order: SplitOrder, epoch: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(steps, shards, indices) of up to 2,000 whole global batches of an epoch: (k,), (k, B), (k, B)."""
    count = min(_MAX_STEPS, order.steps_per_epoch)
    steps = np.unique(np.linspace(0, order.steps_per_epoch - 1, count).astype(np.int64))
    of_epoch, lanes = order.epoch(epoch), range(order.shape.num_lanes)
    if count == order.steps_per_epoch:
        shards, indices = of_epoch.steps(lanes, 0, count)
        return steps, shards, indices
    rows = [of_epoch.steps(lanes, int(step) * order.shape.lane_batch, 1) for step in steps]
    return steps, np.concatenate([shards for shards, _ in rows]), np.concatenate([indices for _, indices in rows])


def moves(order: SplitOrder, steps: np.ndarray, shards: np.ndarray, indices: np.ndarray) -> Moves:
    """How far the examples of these global batches have moved."""
    starts = np.cumsum(order.shard_num_examples) - order.shard_num_examples
    before = (starts[shards] + indices) / order.num_examples
    batch = order.shape.global_batch
    after = (steps[:, None] * batch + np.arange(batch)) / (order.steps_per_epoch * batch)
    far = np.abs(after - before).ravel()
    edges = np.linspace(0, 1, _NUM_BARS + 1)
    histogram = np.histogram(far, edges)[0] / far.size
    # Two places drawn at random are d apart with density 2 (1 - d).
    expected = np.diff(2 * edges - edges**2)
    return Moves(mean=float(far.mean()), expected_mean=1 / 3, histogram=histogram, expected=expected)


def meetings(groups: np.ndarray, sizes: np.ndarray) -> Meetings:
    """groups: (k, B), the group of each example of k batches. sizes: examples of each group in the whole split."""
    batch = groups.shape[1]
    share = sizes / sizes.sum()
    found = np.sort(groups, axis=1)
    distinct = (np.diff(found, axis=1) != 0).sum(axis=1) + 1
    expected = float((1 - (1 - share) ** batch).sum())
    # The groups one by one where they are few; the few largest where there are many shards.
    squares = []
    for group in np.argsort(-sizes, kind="stable")[:64]:
        variance = batch * share[group] * (1 - share[group])
        if variance > 0:
            counts = (groups == group).sum(axis=1)
            squares.append(float(((counts - batch * share[group]) ** 2).mean() / variance))
    spread = float(np.sqrt(np.mean(squares))) if squares else 1.0
    return Meetings(groups=len(sizes), found=float(distinct.mean()), expected=expected, spread=spread)


def sources_of_examples(table: ShardTable, max_shards: int) -> tuple[list[str], list[np.ndarray]] | None:
    """The names of the sources, and for each shard the source of each of its examples' first token.

    From the lineage files; None where the split has more than `max_shards`, or a shard has no lineage.
    """
    if len(table.entries) > max_shards:
        return None
    names: dict[str, int] = {}
    by_shard = []
    for entry in table.entries:
        try:
            runs = read_lineage(table.dataset.resolve(lineage_path(entry.path)))
        except FileNotFoundError:
            return None
        numbers = [names.setdefault(source, len(names)) for source in runs["source"].to_pylist()]
        first = runs["first_example"].to_numpy()
        # Runs stand in order of place: the last one that begins at or before an example covers its first token, but
        # where one begins inside it, and then that one, the next, says nearly the same.
        at = np.searchsorted(first, np.arange(entry.num_examples), side="left")
        at = np.where(
            (at < len(first)) & (first[np.minimum(at, len(first) - 1)] == np.arange(entry.num_examples)), at, at - 1
        )
        by_shard.append(np.array(numbers, dtype=np.int64)[np.clip(at, 0, None)])
    return list(names), by_shard
