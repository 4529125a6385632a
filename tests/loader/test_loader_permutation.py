"""The keyed permutation: a bijection, well mixed, and the same for ever."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.permutation import permute

KEYS = st.integers(0, 2**64 - 1)


# Every loader's order and every saved position rests on these: were they to change, runs could not be resumed.
GOLDEN = [
    (5, 0, [2, 0, 4, 1, 3]),
    (10, 12345, [7, 2, 5, 8, 3, 6, 0, 9, 4, 1]),
    (1_000_000_007, 2**64 - 1, [16030223, 636541534, 797682955, 218420487, 929375211, 611993346]),
]


@pytest.mark.parametrize(("length", "key", "expected"), GOLDEN)
def test_the_permutation_is_pinned(length: int, key: int, expected: list[int]) -> None:
    assert permute(np.arange(len(expected)), length, key).tolist() == expected


def by_the_docstring(index: int, length: int, key: int) -> int:
    """The algorithm as permutation.py's docstring gives it, in plain integers."""
    bits = length.bit_length()
    low = bits // 2
    high = bits - low
    mask = 2**64 - 1

    def mix(z: int) -> int:
        z &= mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    x = index
    while True:
        for r in range(24):
            if r % 2 == 0:
                x ^= (mix(key + r * 0x9E3779B97F4A7C15 + (x & (2**low - 1))) & (2**high - 1)) << low
            else:
                x ^= mix(key + r * 0x9E3779B97F4A7C15 + (x >> low)) & (2**low - 1)
        if x < length:
            return x


@settings(max_examples=200, deadline=None)
@given(length=st.integers(1, 2**53), key=KEYS, data=st.data())
def test_the_docstring_says_all_it_takes_to_write_it_again(length: int, key: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, length - 1))
    assert int(permute(index, length, key)) == by_the_docstring(index, length, key)


@settings(max_examples=200, deadline=None)
@given(length=st.integers(1, 3000), key=KEYS)
def test_it_is_a_bijection_for_every_length_and_key(length: int, key: int) -> None:
    assert sorted(permute(np.arange(length), length, key).tolist()) == list(range(length))


def test_lengths_and_keys_may_differ_from_element_to_element() -> None:
    indices = np.arange(5)
    together = permute(indices[None, :], np.array([[5], [9]]), np.array([[3], [4]], dtype=np.uint64))
    assert together.tolist() == [permute(indices, 5, 3).tolist(), permute(indices, 9, 4).tolist()]


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_every_order_of_a_few_elements_is_about_as_frequent_as_any_other(length: int) -> None:
    num_keys = 20_000
    keys = np.random.default_rng(20_26).integers(0, 2**64, size=(num_keys, 1), dtype=np.uint64)
    orders = permute(np.arange(length)[None, :], length, keys)
    codes = (orders * length ** np.arange(length)).sum(axis=1)
    counts = np.unique(codes, return_counts=True)[1]
    num_orders = math.factorial(length)
    assert len(counts) == num_orders
    expected = num_keys / num_orders
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = num_orders - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("length", [6, 7, 8, 9, 10, 16, 100])
def test_every_element_comes_to_every_place_about_equally_often(length: int) -> None:
    num_keys = 5_000
    keys = np.random.default_rng(20_26).integers(0, 2**64, size=(num_keys, 1), dtype=np.uint64)
    orders = permute(np.arange(length)[None, :], length, keys)
    counts = np.stack([np.bincount(orders[:, index], minlength=length) for index in range(length)])
    expected = num_keys / length
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = (length - 1) ** 2
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_elements_move_as_far_as_in_a_full_shuffle() -> None:
    length = 60_000
    moves = np.abs(permute(np.arange(length), length, 7) - np.arange(length))
    assert moves.mean() / length == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize(("index", "length"), [(5, 5), (-1, 5), (0, 0), (0, 2**53 + 1)])
def test_what_lies_outside_is_refused(index: int, length: int) -> None:
    with pytest.raises(ValueError, match="lie"):
        permute(index, length, 0)
