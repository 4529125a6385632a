"""Content hashes."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.dedup.exact import content_hashes, groups, text_hashes


def hashes(*texts: str) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in content_hashes(pa.array(texts, pa.large_string()))]


def plain_hash(text: str) -> tuple[int, int]:
    digest = hashlib.sha256(" ".join(text.split()).encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


SPACES = st.sampled_from(
    [" ", "\n", "\t", "\r", "\x1f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000"]
)
LIKE_SPACES = st.sampled_from(["\u200b", "\u180e", "\u2060", "\ufeff", "Â", "Ë", "ሀ", "漢", "é", "\x7f", "\x00"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(SPACES | LIKE_SPACES | st.text(max_size=2), max_size=20).map("".join), max_size=4))
@example(["", " ", "\u2003"])
def test_the_hash_is_sha256_of_the_text_with_single_spaces(texts: list[str]) -> None:
    assert hashes(*texts) == [plain_hash(text) for text in texts]


@settings(max_examples=150, deadline=None)
@given(st.integers(58, 66), st.lists(SPACES | LIKE_SPACES, min_size=1, max_size=6).map("".join), st.integers(0, 130))
@example(63, "\u2003", 64)
@example(62, "\u2003\u3000", 62)
@example(64, " ", 0)
def test_white_space_across_two_blocks_of_64_bytes_is_one_space(before: int, between: str, after: int) -> None:
    text = "a" * before + between + "b" * after
    assert hashes(text, text) == 2 * [plain_hash(text)]


def test_content_hashes_never_change() -> None:
    # Relied on by every version whose content hashes are stored for the next one to compare with.
    assert hashes("Принтер  не\nпечатает ", "") == [
        (0x07C523A83315F81D, 0x032CACE213D6248C),
        (0x141CFC9842C4B0E3, 0x24B96F99C8F4FB9A),
    ]


def test_white_space_makes_no_difference_and_everything_else_does() -> None:
    same = hashes("a b", " a  b\n", "a\u00a0b", "\ta\r\nb")
    assert len(set(same)) == 1
    assert len({*hashes("a b", "A b", "ab", "a b.", "b a")}) == 5


def test_two_numbers_a_document_and_none_for_none() -> None:
    assert content_hashes(pa.array([], pa.large_string())).shape == (0, 2)
    assert content_hashes(pa.array(["", "a"], pa.large_string())).dtype == np.uint64


def test_a_slice_is_hashed_like_a_copy() -> None:
    whole = pa.array(["один", "two", "три"], pa.large_string())
    assert (
        content_hashes(whole.slice(1)).tolist() == content_hashes(pa.array(["two", "три"], pa.large_string())).tolist()
    )


def test_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 1 texts are null"):
        content_hashes(pa.array([None], pa.large_string()))


def test_equal_hashes_are_one_group() -> None:
    one = np.array([[1, 2], [1, 3], [1, 2], [0, 9]], np.uint64)
    group = groups(one)
    assert group[0] == group[2]
    assert len(set(group.tolist())) == 3
    assert groups(one[:0]).tolist() == []


def test_text_hashes_tell_white_space_apart() -> None:
    values = text_hashes(pa.array(["a b", "a  b", "a b"], pa.large_string()))
    assert values[0] == values[2] != values[1]
