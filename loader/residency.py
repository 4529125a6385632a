"""From when until when a rank needs each shard, and how many bytes that can come to. Pure arithmetic.

All lanes move together, so all of them enter a window at the same step: "window w" is a time of the epoch for the whole
rank. A shard is needed from the first window of an owned lane that reaches into it until the last one. Between two
owned lanes lies at most one shard that the first needs at its end and the second at its start: it is held in between,
since every shard is fetched once an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loader.order import EpochOrder, SplitOrder


@dataclass(frozen=True, kw_only=True, eq=False)
class Residency:
    """Three int64 arrays of one length, in the order of first use: shard numbers, first and last window of need."""

    shards: np.ndarray
    first_windows: np.ndarray
    last_windows: np.ndarray


def residency(order: EpochOrder, lanes: range, from_window: int) -> Residency:
    """The shards that `lanes` need from window `from_window` on, to the end of the epoch."""
    split = order.split
    if not len(lanes):
        nothing = np.zeros(0, dtype=np.int64)
        return Residency(shards=nothing, first_windows=nothing, last_windows=nothing)
    starts = order.lane_starts(lanes)
    stops = starts + split.lane_length
    first_places = np.searchsorted(order.ends, starts, side="right")
    last_places = np.searchsorted(order.ends, stops - 1, side="right")

    # One entry for each (lane, shard that it reaches into): lane l has the places first_places[l] .. last_places[l].
    num_places = last_places - first_places + 1
    lane = np.repeat(np.arange(len(lanes)), num_places)
    place = np.arange(num_places.sum()) - np.repeat(np.cumsum(num_places) - num_places, num_places) + first_places[lane]
    begins = order.ends[place] - split.shard_num_examples[order.shard_order[place]]
    first_element = np.maximum(begins, starts[lane]) - starts[lane]
    last_element = np.minimum(order.ends[place], stops[lane]) - 1 - starts[lane]
    first_window = np.maximum(first_element // split.window_length, from_window)
    last_window = last_element // split.window_length

    ahead = last_window >= from_window
    place, first_window, last_window = place[ahead], first_window[ahead], last_window[ahead]
    # Lanes are neighbours on the line, so a shard's entries of several lanes stand together.
    distinct, at = np.unique(place, return_index=True)
    if not distinct.size:
        return Residency(shards=distinct, first_windows=distinct, last_windows=distinct)
    first = np.minimum.reduceat(first_window, at)
    last = np.maximum.reduceat(last_window, at)
    by_need = np.lexsort((distinct, first))
    return Residency(
        shards=order.shard_order[distinct][by_need], first_windows=first[by_need], last_windows=last[by_need]
    )


def most_touched(num_items: int, group_length: int) -> int:
    """The most groups of `group_length` that `num_items` items in a row can lie in.

    >>> most_touched(1, 10), most_touched(2, 10), most_touched(12, 10)
    (1, 2, 3)
    """
    return (num_items - 1 + group_length - 1) // group_length + 1


def most_bytes_held(split: SplitOrder, num_lanes: int, shard_num_bytes: np.ndarray, num_windows: int) -> int:
    """A bound, good for every epoch, on the bytes that neighbouring lanes need at once during `num_windows` windows.

    shard_num_bytes: int64, zero for shards that need no cache. Every epoch lays the shards in another order, so this
    asks for the worst order: each lane's stretch begins and ends in a large shard and holds as many small ones as fit.
    Tight where all shards are of one size.
    """
    if not num_lanes or not shard_num_bytes.any():
        return 0
    stretch = min(num_windows * split.window_length, split.lane_length)
    shared = int(shard_num_bytes.max()) * (num_lanes - 1)
    each_lane = _most_bytes_overlapped(stretch, split.shard_num_examples, shard_num_bytes)
    whole_rank = num_lanes * -(-split.num_examples // split.shape.num_lanes)
    return min(
        each_lane * num_lanes + shared,
        _most_bytes_overlapped(whole_rank, split.shard_num_examples, shard_num_bytes),
    )


def _most_bytes_overlapped(num_examples: int, shard_num_examples: np.ndarray, shard_num_bytes: np.ndarray) -> int:
    """The most bytes of shards that a stretch of `num_examples` can reach into, in any order of the shards.

    Two shards can stick out at the ends by all but one example each; whole shards inside share num_examples - 2.
    """
    largest_first = np.sort(shard_num_bytes)[::-1]
    if num_examples <= 1:
        return int(largest_first[:1].sum())
    inside = num_examples - 2
    num_inside = int(np.searchsorted(np.cumsum(np.sort(shard_num_examples)), inside, side="right"))
    by_count = int(largest_first[: num_inside + 2].sum())
    bytes_per_example = float((shard_num_bytes / np.maximum(shard_num_examples, 1)).max())
    by_size = int(largest_first[:2].sum()) + int(np.ceil(inside * bytes_per_example))
    return min(by_count, by_size)
