"""Mixtures by weight: exact counts, one sequence on any topology, each source once an epoch of its own."""

import logging
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import Loader
from loader.mixture import MixtureOrder, lanes_of_rank
from loader.order import OrderError, RunShape
from loader.position import PositionError
from manifests import UserError
from tests.loader.loader_datasets import named, numbered_dataset


def mixture(
    sizes: list[list[int]], weights: list[float], *, lanes: int = 4, batch: int | None = None, seed: int = 3
) -> MixtureOrder:
    shape = RunShape(global_batch=batch or lanes, num_lanes=lanes, window_shards=1, seed=seed)
    counts = tuple(np.array(of, dtype=np.int64) for of in sizes)
    return MixtureOrder(shard_num_examples=counts, weights=tuple(weights), shape=shape)


def steps(order: MixtureOrder, epoch: int, consumed: int, num_steps: int, rank: int = 0, world_size: int = 1):
    lanes = lanes_of_rank(order, rank, world_size)
    return [step for block in order.blocks(lanes, epoch, consumed, num_steps) for step in block.steps()]


# Relied on by every saved position of a mixture: another order would resume a run in the wrong place.
def test_the_order_of_a_known_mixture_is_pinned() -> None:
    order = mixture([[3, 2], [4]], [3.0, 1.0], lanes=2)
    assert order.source_lanes == (2, 1)
    assert [order.counts(consumed) for consumed in range(0, 10, 2)] == [[0, 0], [1, 1], [3, 1], [4, 2], [6, 2]]
    assert steps(order, 0, 0, 4) == PINNED


PINNED = [[(1, 0), (2, 2)], [(1, 1), (0, 0)], [(0, 1), (2, 1)], [(0, 0), (1, 0)]]

MIXTURES = {
    "sizes": st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4),
    "data": st.data(),
    "lanes": st.integers(1, 5),
    "rows": st.integers(1, 3),
}


def drawn(sizes: list[list[int]], data: st.DataObject, lanes: int, rows: int) -> MixtureOrder | None:
    weights = data.draw(st.lists(st.floats(0.01, 50), min_size=len(sizes), max_size=len(sizes)))
    try:
        order = mixture(sizes, weights, lanes=lanes, batch=lanes * rows)
        _ = order.sources
    except OrderError:
        return None  # fewer examples than a batch, or than a source's lanes
    return order


@settings(max_examples=100, deadline=None)
@given(**MIXTURES)
def test_counts_add_up_never_go_back_and_stay_near_the_weights(
    sizes: list[list[int]], data: st.DataObject, lanes: int, rows: int
) -> None:
    order = drawn(sizes, data, lanes, rows)
    if order is None:
        return
    total = sum(map(Fraction, order.weights))
    before = [0] * len(sizes)
    for consumed in range(0, 20 * lanes * rows, lanes * rows):
        counts = order.counts(consumed)
        assert sum(counts) == consumed
        for number, (now, then) in enumerate(zip(counts, before, strict=True)):
            assert then <= now <= then + order.source_lanes[number] * rows
            assert abs(now - consumed * Fraction(order.weights[number]) / total) <= number + 1
        before = counts


@settings(max_examples=60, deadline=None)
@given(world_size=st.integers(1, 6), start=st.integers(0, 8), **MIXTURES)
def test_a_mixture_is_one_sequence_on_any_number_of_ranks_and_from_any_place(
    sizes: list[list[int]], data: st.DataObject, lanes: int, rows: int, world_size: int, start: int
) -> None:
    order = drawn(sizes, data, lanes, rows)
    if order is None:
        return
    batch = lanes * rows
    whole = steps(order, 1, 0, 12)
    by_rank = [steps(order, 1, start * batch, 12 - start, rank, world_size) for rank in range(world_size)]
    together = [[row for rank in step for row in rank] for step in zip(*by_rank, strict=True)]
    assert together == whole[start:]
    most = -(-order.num_lanes // world_size) * rows
    assert max(len(step) for of_rank in by_rank for step in of_rank) <= most


@settings(max_examples=60, deadline=None)
@given(**MIXTURES)
def test_each_source_gives_no_example_twice_in_an_epoch_of_its_own(
    sizes: list[list[int]], data: st.DataObject, lanes: int, rows: int
) -> None:
    order = drawn(sizes, data, lanes, rows)
    if order is None:
        return
    shard_source = [number for number, of in enumerate(sizes) for _ in of]
    seen: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for step in steps(order, 0, 0, 30):
        for row in step:
            seen[shard_source[row[0]]].append(row)
    for number, rows_seen in enumerate(seen):
        epoch_length = order.sources[number].lane_length * order.source_lanes[number]
        # Rows of a batch stand by lane, so only what is surely of the first epoch is counted.
        assert (
            max(Counter(rows_seen[: max(0, epoch_length - order.source_lanes[number] * rows)]).values(), default=1) == 1
        )


@settings(deadline=None)
@given(**MIXTURES, epoch=st.integers(0, 3))
def test_what_is_left_over_is_what_the_next_epoch_begins_behind(
    sizes: list[list[int]], data: st.DataObject, lanes: int, rows: int, epoch: int
) -> None:
    order = drawn(sizes, data, lanes, rows)
    if order is None:
        return
    left = order.left_over(epoch)
    batch = order.shape.global_batch
    assert sum(left) == order.epoch_length - order.steps_per_epoch * batch < batch
    given_in_epochs = [
        order.counts(at * order.epoch_length + order.steps_per_epoch * batch * is_end)
        for at, is_end in ((epoch, True), (epoch + 1, False))
    ]
    assert [last + over for last, over in zip(given_in_epochs[0], left, strict=True)] == given_in_epochs[1]


def test_the_log_names_what_a_mixtures_epoch_leaves_over_of_each_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = numbered_dataset(tmp_path / "a", (6, 7)), numbered_dataset(tmp_path / "b", (5, 5))
    loader = Loader({first: 1.0, second: 1.0}, global_batch=8, lanes=4)
    with caplog.at_level(logging.INFO, logger="loader"):
        assert len(list(loader)) == 2
    # 23 examples in 4 lanes: 20 in an epoch, of which 16 are given; each source has 2 lanes.
    assert [record.getMessage() for record in caplog.records if record.name.startswith("loader")] == [
        "epoch 0 of a mixture of 2 sources: 2 steps of 8 examples; left over at its end, and in no lane in an epoch of "
        f"the source's own: 2 and 1 of {first}, 2 and 0 of {second}"
    ]


@pytest.fixture
def two(tmp_path: Path) -> dict[str, float]:
    return {numbered_dataset(tmp_path / "a", (9, 6, 5)): 2.0, numbered_dataset(tmp_path / "b", (7, 8)): 1.0}


def rows_of(loader: Loader, num_steps: int) -> list[list[tuple[int, int]]]:
    found = []
    for batch, _ in zip(loader, range(num_steps), strict=False):
        found.append(named(batch["input_ids"][:, 0].tolist()))
        loader.advance()
    return found


def test_a_loader_of_a_mixture_reads_what_its_order_says_and_resumes_on_other_world_sizes(
    two: dict[str, float],
) -> None:
    whole = Loader(two, global_batch=3, seed=4)
    assert whole.steps_per_epoch == 11  # 35 examples
    expected, read = [], []
    for batch in whole:
        expected.append([(shard - 3 if shard > 2 else shard, row) for shard, row in whole.global_batch_examples()])
        read.append(named(batch["input_ids"][:, 0].tolist()))
        whole.advance()
    assert read == expected
    assert len(read) == 11
    assert whole.epoch == 1
    saved = Loader(two, global_batch=3, seed=4)
    for _ in range(5):
        saved.advance()
    ranks = []
    for rank in range(2):
        loader = Loader(two, global_batch=3, seed=4, rank=rank, world_size=2, num_workers=rank)
        loader.load_state_dict(saved.state_dict())
        ranks.append(rows_of(loader, 6))
        loader.close()
    assert [[*first, *second] for first, second in zip(*ranks, strict=True)] == expected[5:]


def test_a_mixtures_position_is_of_its_weights(two: dict[str, float]) -> None:
    state = Loader(two, global_batch=3).state_dict()
    other = Loader({manifest: weight + 1 for manifest, weight in two.items()}, global_batch=3)
    with pytest.raises(PositionError, match="the data differ"):
        other.load_state_dict(state)


def test_mixtures_that_cannot_be_are_refused(two: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"a source's weight is 0; give a number above 0"):
        Loader(dict.fromkeys(two, 0), global_batch=3)
    with pytest.raises(UserError, match="the mixture holds no source"):
        Loader({}, global_batch=3)
