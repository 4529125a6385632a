"""Copying lists from place to place."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.kernels.ragged import copy_pieces

LISTS = st.lists(st.lists(st.integers(0, 65_534), max_size=5), max_size=20)


def flat(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, lists)])
    return np.array([number for each in lists for number in each], np.uint32), offsets


@settings(max_examples=100, deadline=None)
@given(LISTS, st.randoms(use_true_random=False), st.sampled_from(["uint16", "uint32"]))
def test_pieces_arrive_where_they_are_sent(lists: list[list[int]], random: Random, dtype: str) -> None:
    values, offsets = flat(lists)
    order = list(range(len(lists)))
    random.shuffle(order)
    places = np.zeros(len(lists), np.int64)
    at = 0
    for row in order:
        places[row], at = at, at + len(lists[row])
    target = np.zeros(len(values), dtype)
    copy_pieces(values, offsets[:-1], np.diff(offsets), places, target)
    assert target.tolist() == [number for row in order for number in lists[row]]
