"""The order is arithmetic: pinned, complete, and free of ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.order import EpochOrder, OrderError, RunShape, SplitOrder, owned_lanes, rows_per_rank


def order_of(
    sizes: list[int], *, batch: int, lanes: int | None = None, window_shards: int = 1, seed: int = 0
) -> SplitOrder:
    shape = RunShape(global_batch=batch, num_lanes=lanes or batch, window_shards=window_shards, seed=seed)
    return SplitOrder(shard_num_examples=np.array(sizes, dtype=np.int64), shape=shape)


def epoch_batches(order: EpochOrder) -> list[list[tuple[int, int]]]:
    """The epoch's global batches as (shard, example)."""
    shape = order.split.shape
    shards, indices = order.steps(range(shape.num_lanes), 0, order.split.steps_per_epoch)
    return [list(zip(*pair, strict=True)) for pair in zip(shards.tolist(), indices.tolist(), strict=True)]


def test_the_order_of_a_known_case_is_pinned() -> None:
    # Relied on by every run that resumes: an older state must lead to these very examples. Never change them.
    order = order_of([4, 3, 5], batch=4, lanes=2)
    assert (order.lane_length, order.window_length, order.windows_per_lane, order.steps_per_epoch) == (6, 4, 2, 3)
    assert order.epoch(0).shard_order.tolist() == [0, 1, 2]
    assert epoch_batches(order.epoch(0)) == [
        [(0, 1), (0, 0), (1, 2), (2, 0)],
        [(0, 3), (0, 2), (2, 1), (2, 2)],
        [(1, 0), (1, 1), (2, 4), (2, 3)],
    ]
    assert order.epoch(1).shard_order.tolist() == [2, 0, 1]
    assert epoch_batches(order.epoch(1)) == [
        [(2, 1), (2, 3), (0, 2), (0, 3)],
        [(2, 2), (2, 0), (0, 1), (1, 0)],
        [(2, 4), (0, 0), (1, 2), (1, 1)],
    ]


def test_the_worked_example_of_the_docstring_holds() -> None:
    order = order_of([4, 3, 5], batch=4, lanes=2)
    fixed = EpochOrder(split=order, epoch=0, shard_order=np.array([2, 0, 1]), ends=np.array([5, 9, 12]))
    by_lane = zip(*fixed.elements(range(2), 0, 6), strict=True)
    lane_0, lane_1 = (sorted(zip(shards.tolist(), indices.tolist(), strict=True)) for shards, indices in by_lane)
    assert lane_0 == [(0, 0), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4)]
    assert lane_1 == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    sizes=SIZES, lanes=st.integers(1, 6), per_lane=st.integers(1, 3), window=st.integers(1, 3), seed=st.integers(0, 9)
)
def test_an_epoch_holds_no_example_twice_and_leaves_out_fewer_than_a_batch_and_a_lane_each(
    sizes: list[int], lanes: int, per_lane: int, window: int, seed: int
) -> None:
    batch = lanes * per_lane
    if sum(sizes) // lanes < per_lane:
        with pytest.raises(OrderError, match="smaller global batch"):
            order_of(sizes, batch=batch, lanes=lanes)
        return
    order = order_of(sizes, batch=batch, lanes=lanes, window_shards=window, seed=seed)
    for epoch in (0, 1):
        examples = [example for batch_ in epoch_batches(order.epoch(epoch)) for example in batch_]
        assert len(set(examples)) == len(examples) == order.steps_per_epoch * batch
        assert all(0 <= index < sizes[shard] for shard, index in examples)
        assert sum(sizes) - len(examples) < batch + lanes


@settings(max_examples=100, deadline=None)
@given(sizes=SIZES, lanes=st.integers(1, 6), data=st.data())
def test_any_element_is_found_alone_as_in_the_whole(sizes: list[int], lanes: int, data: st.DataObject) -> None:
    if sum(sizes) < lanes:
        return
    order = order_of(sizes, batch=lanes)
    epoch = order.epoch(3)
    element = data.draw(st.integers(0, order.lane_length - 1))
    lane = data.draw(st.integers(0, lanes - 1))
    whole = epoch.elements(range(lanes), 0, order.lane_length)
    alone = epoch.elements(range(lane, lane + 1), element, 1)
    assert [int(a[lane, element]) for a in whole] == [int(a[0, 0]) for a in alone]


def test_a_window_holds_the_examples_of_its_stretch_only() -> None:
    order = order_of([10] * 6, batch=2, window_shards=2)
    epoch = order.epoch(0)
    assert (order.lane_length, order.window_length) == (30, 20)
    shards, _ = epoch.elements(range(2), 0, 20)
    assert set(shards[0].tolist()) == set(epoch.shard_order[:2].tolist())
    assert set(shards[1].tolist()) == set(epoch.shard_order[3:5].tolist())


def test_epochs_and_seeds_differ_and_no_sum_of_them_repeats() -> None:
    orders = {
        (seed, epoch): tuple(order_of([9] * 8, batch=2, seed=seed).epoch(epoch).shard_order.tolist())
        for seed in (42, 43)
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4


def test_steps_are_counted_through_epochs() -> None:
    order = order_of([4, 3, 5], batch=4, lanes=2)
    assert [order.at_step(step) for step in range(5)] == [(0, 0), (0, 4), (0, 8), (1, 0), (1, 4)]


def test_steps_left_counts_whole_batches_only() -> None:
    order = order_of([5, 5], batch=4, lanes=2)  # lanes of 5, two elements a step
    assert [order.steps_left(consumed) for consumed in (0, 2, 4, 6, 8, 10)] == [2, 2, 1, 1, 0, 0]


@settings(max_examples=200, deadline=None)
@given(num_lanes=st.integers(1, 600), world_size=st.integers(1, 700))
def test_ranks_own_every_lane_once_and_none_more_than_it_has_rows_for(num_lanes: int, world_size: int) -> None:
    owned = [owned_lanes(rank, world_size, num_lanes) for rank in range(world_size)]
    assert [lane for lanes in owned for lane in lanes] == list(range(num_lanes))
    shape = RunShape(global_batch=2 * num_lanes, num_lanes=num_lanes, window_shards=1, seed=0)
    assert max(2 * len(lanes) for lanes in owned) == rows_per_rank(world_size, shape)


def test_lane_starts_are_exact_for_a_million_million_examples() -> None:
    num_lanes = 999_983
    sizes = [10**12 // 7 + 1] * 7
    order = order_of(sizes, batch=num_lanes)
    lanes = range(num_lanes - 3, num_lanes)
    expected = [lane * sum(sizes) // num_lanes for lane in lanes]
    assert order.epoch(0).lane_starts(lanes).tolist() == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"global_batch": 0}, "global_batch is 0; give a whole number of at least 1"),
        ({"global_batch": 2.0}, "global_batch is 2.0; give a whole number"),
        ({"seed": -1}, "seed is -1; give a whole number of at least 0"),
        ({"window_shards": 0}, "window_shards is 0;"),
        ({"global_batch": 10, "num_lanes": 4}, "global batch of 10 examples is not a multiple of the 4 lanes"),
    ],
)
def test_impossible_numbers_are_refused_by_name(fields: dict[str, int], message: str) -> None:
    with pytest.raises(OrderError, match=message):
        RunShape(**{"global_batch": 8, "num_lanes": 4, "window_shards": 1, "seed": 0} | fields)


def test_more_than_the_split_holds_is_refused_with_both_numbers() -> None:
    with pytest.raises(OrderError, match="holds 5 examples in 3 shards, fewer than one global batch of 8"):
        order_of([2, 1, 2], batch=8)


def test_elements_past_the_end_of_a_lane_are_refused() -> None:
    with pytest.raises(OrderError, match=r"elements 5 .. 6 were asked of lanes of 6"):
        order_of([4, 3, 5], batch=2).epoch(0).elements(range(2), 5, 2)
