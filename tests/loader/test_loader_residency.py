"""Which shards are needed when, against the order itself; and the bytes that takes, against the worst it does."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.order import RunShape, SplitOrder, owned_lanes
from loader.residency import most_bytes_held, most_touched, residency

STRIDE = 100
END = 10


def order_of(sizes: list[int], lanes: int, window_shards: int) -> SplitOrder:
    shape = RunShape(global_batch=lanes, num_lanes=lanes, window_shards=window_shards, seed=5)
    return SplitOrder(shard_num_examples=np.array(sizes, dtype=np.int64), shape=shape)


CASES = {
    "sizes": st.lists(st.integers(1, 12), min_size=1, max_size=14),
    "lanes": st.integers(1, 6),
    "window_shards": st.integers(1, 2),
    "world_size": st.integers(1, 4),
    "data": st.data(),
}


@settings(max_examples=150, deadline=None)
@given(**CASES)
def test_a_shard_is_held_from_its_first_window_to_its_last(
    sizes: list[int], lanes: int, window_shards: int, world_size: int, data: st.DataObject
) -> None:
    if sum(sizes) < lanes:
        return
    order = order_of(sizes, lanes, window_shards)
    owned = owned_lanes(data.draw(st.integers(0, world_size - 1)), world_size, lanes)
    start = data.draw(st.integers(0, order.windows_per_lane - 1))
    epoch = order.epoch(1)
    windows_of: dict[int, list[int]] = {}
    for element in range(start * order.window_length, order.lane_length):
        for shard in epoch.elements(owned, element, 1)[0].ravel().tolist():
            windows_of.setdefault(shard, []).append(element // order.window_length)
    held = residency(epoch, owned, start)
    found = dict(zip(held.shards.tolist(), zip(held.first_windows, held.last_windows, strict=True), strict=True))
    assert found == {shard: (min(windows), max(windows)) for shard, windows in windows_of.items()}
    assert held.first_windows.tolist() == sorted(held.first_windows.tolist())


@settings(max_examples=150, deadline=None)
@given(**CASES)
def test_the_bytes_needed_bound_every_epoch(
    sizes: list[int], lanes: int, window_shards: int, world_size: int, data: st.DataObject
) -> None:
    if sum(sizes) < lanes:
        return
    order = order_of(sizes, lanes, window_shards)
    owned = owned_lanes(data.draw(st.integers(0, world_size - 1)), world_size, lanes)
    num_windows = data.draw(st.integers(1, 3))
    num_bytes = np.array(sizes) * STRIDE + END
    bound = most_bytes_held(order, len(owned), num_bytes, num_windows)
    for epoch in range(4):
        held = residency(order.epoch(epoch), owned, 0)
        for window in range(order.windows_per_lane):
            open_now = (held.first_windows < window + num_windows) & (held.last_windows >= window)
            assert num_bytes[held.shards[open_now]].sum() <= bound
    assert bound <= num_bytes.sum()


def test_the_bound_is_tight_for_equal_shards() -> None:
    order = order_of([10] * 30, 3, 1)
    # A window of 10 examples reaches into two shards of 1,010 bytes at most; two lanes share one more between them.
    assert most_bytes_held(order, 1, np.full(30, 1010), 1) == 2 * 1010
    assert most_bytes_held(order, 2, np.full(30, 1010), 1) == 5 * 1010


def test_shards_on_local_disk_need_no_bytes() -> None:
    assert most_bytes_held(order_of([10] * 30, 3, 1), 3, np.zeros(30, dtype=np.int64), 2) == 0


def test_items_in_a_row_touch_one_group_more_than_they_fill() -> None:
    assert [most_touched(items, 10) for items in (1, 2, 11, 12, 21)] == [1, 2, 2, 3, 3]
    assert [most_touched(items, 1) for items in (1, 2, 3)] == [1, 2, 3]
