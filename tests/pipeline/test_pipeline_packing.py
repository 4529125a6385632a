"""Packing: places out of lengths, every token once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.kernels.best_fit import best_fit_rows
from pipeline.packing import MIN_GROUP_TOKENS, Layout, best_fit, concat, num_groups_for

LENGTHS = st.lists(st.integers(1, 50), max_size=40)


def rows_of(layout: Layout, num_rows: int, seq_len: int, names: str) -> list[str]:
    """Each row as one letter a token, "." for padding."""
    places = ["."] * (num_rows * seq_len)
    for document, num, place in zip(layout.document, layout.num_tokens, layout.place, strict=True):
        assert places[place : place + num] == ["."] * num, "a place is given once"
        places[place : place + num] = names[document] * num
    return ["".join(places[i : i + seq_len]) for i in range(0, len(places), seq_len)]


def test_the_worked_example_of_the_docstring() -> None:
    layout, num_rows = best_fit(np.array([5, 3, 20, 2, 6]), 8)
    assert rows_of(layout, num_rows, 8, "ABCDE") == ["CCCCCCCC", "CCCCCCCC", "CCCC....", "AAAAABBB", "DDEEEEEE"]
    assert layout.document_offset.tolist() == [0, 16, 0, 0, 0, 0]


def test_of_rows_with_equal_space_the_one_that_came_to_it_last_is_taken() -> None:
    rows, num_rows = best_fit_rows(np.array([5, 5, 3, 3]), 8)
    assert (rows.tolist(), num_rows) == ([0, 1, 1, 0], 2)


def test_a_document_of_exactly_a_row_one_less_one_more_and_ten_rows() -> None:
    layout, num_rows = best_fit(np.array([8, 7, 9, 80]), 8)
    assert rows_of(layout, num_rows, 8, "ABCD") == ["C" * 8, "BBBBBBBC", *["D" * 8] * 10, "A" * 8]
    assert layout.num_tokens.tolist() == [8, 7, 1, 80, 8]


def test_nothing_packs_into_nothing() -> None:
    layout, num_rows = best_fit(np.array([], np.int64), 8)
    assert (len(layout.place), num_rows) == (0, 0)


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(2, 20))
def test_best_fit_gives_every_token_one_place_and_cuts_only_what_is_longer_than_a_row(
    lengths: list[int], seq_len: int
) -> None:
    layout, num_rows = best_fit(np.array(lengths, np.int64), seq_len)
    places = np.full(num_rows * seq_len, -1)
    for document, offset, num, place in zip(
        layout.document, layout.document_offset, layout.num_tokens, layout.place, strict=True
    ):
        assert (places[place : place + num] == -1).all()
        places[place : place + num] = document
        if lengths[document] <= seq_len:
            assert (offset, num) == (0, lengths[document])
            assert place // seq_len == (place + num - 1) // seq_len
    assert np.bincount(places[places >= 0], minlength=len(lengths)).tolist() == lengths
    rows = places.reshape(num_rows, seq_len)
    assert not ((rows[:, :-1] < 0) & (rows[:, 1:] >= 0)).any(), "padding stands at a row's end"
    assert (rows[:, 0] >= 0).all(), "no row is empty"
    assert (np.diff(layout.place) > 0).all()


def slow_best_fit(lengths: list[int], seq_len: int) -> list[int]:
    """The definition, word by word: the fullest row that takes it, the latest to come to that space."""
    space: list[int] = []
    touched: list[int] = []
    rows = []
    for step, length in enumerate(lengths):
        fitting = [row for row in range(len(space)) if space[row] >= length]
        if fitting:
            row = min(fitting, key=lambda row: (space[row], -touched[row]))
        else:
            row = len(space)
            space.append(seq_len)
            touched.append(step)
        space[row] -= length
        touched[row] = step
        rows.append(row)
    return rows


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 33).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), max_size=60))))
def test_the_kernel_does_what_best_fit_means_in_any_order_of_lengths(case: tuple[int, list[int]]) -> None:
    seq_len, lengths = case
    rows, num_rows = best_fit_rows(np.array(lengths, np.int64), seq_len)
    assert rows.tolist() == slow_best_fit(lengths, seq_len)
    assert num_rows == max(rows.tolist(), default=-1) + 1


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.data())
def test_a_window_holds_what_lies_in_it(lengths: list[int], data: st.DataObject) -> None:
    layout = concat(np.array(lengths, np.int64))
    total = sum(lengths)
    first = data.draw(st.integers(-3, total))
    end = data.draw(st.integers(first, total + 3))
    stream = [(document, i) for document, num in enumerate(lengths) for i in range(num)]
    window = layout.between(first, end)
    found = {
        place + i + first: (document, offset + i)
        for document, offset, num, place in zip(
            window.document, window.document_offset, window.num_tokens, window.place, strict=True
        )
        for i in range(num)
    }
    assert found == {place: stream[place] for place in range(max(0, first), min(end, total))}


def test_short_documents_and_a_mix_with_many_that_nearly_fill_a_row_are_padded_little() -> None:
    """Case 23: a packer that is fed too few documents at a time pads two thirds (sandyresearch/parcae#8)."""
    rng = np.random.default_rng(5)
    short = rng.integers(1, 2 * 4096 // 5, 20_000)
    _, num_rows = best_fit(short, 4096)
    assert 1 - short.sum() / (num_rows * 4096) < 0.001
    mixed = np.concatenate([np.full(2_000, 4095), short])
    _, num_rows = best_fit(rng.permutation(mixed), 4096)
    assert 1 - mixed.sum() / (num_rows * 4096) < 0.002


def test_rows_stand_in_no_order_of_length() -> None:
    """A shard may be cut out of a group's middle: its first rows must be as mixed as its last."""
    rng = np.random.default_rng(6)
    shares = []
    for _ in range(20):
        lengths = np.clip(rng.lognormal(5.5, 1.2, 20_000).astype(np.int64), 1, 8_000)
        layout, num_rows = best_fit(lengths, 2048)
        half = layout.between(0, num_rows // 2 * 2048)
        short = lengths[half.document] < 300
        shares.append(half.num_tokens[short].sum() / lengths[lengths < 300].sum())
    # Rows of equally long documents lie together, so one group scatters by 4 %; their mean must not lean.
    assert abs(np.mean(shares) - 0.5) < 0.02


@pytest.mark.parametrize(
    ("num_tokens", "seq_len", "num_groups"),
    [
        (0, 4096, 1),
        (2 * MIN_GROUP_TOKENS - 1, 2048, 1),
        (2 * MIN_GROUP_TOKENS, 2048, 2),
        (2 * MIN_GROUP_TOKENS, 4096, 1),
        (2**41, 4096, 2**20),
        (2**41, 2**20, 2**16),
    ],
)
def test_groups_follow_from_tokens_and_seq_len_alone(num_tokens: int, seq_len: int, num_groups: int) -> None:
    assert num_groups_for(num_tokens, seq_len) == num_groups
