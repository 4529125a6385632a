"""Words without statistics: the same as the text pass finds, and as plain Python does."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.kernels.hashing import word_hash
from pipeline.kernels.text import analyse
from pipeline.kernels.words import words_of
from tests.pipeline.kernels_corpus import sample_texts
from tests.pipeline.plain_statistics import plain_words

PIECES = st.sampled_from(
    [
        *(" ", "\n", "-", "_", "…", "«", "a", "Z", "7", "the", "AND", "seven77", "eightLTR", "nineLETTER", "x" * 64),
        *("и", "НЕ", "ё", "Ё", "Ђ", "Ѡ", "ѡ", "Ҁ", "преИмущество", "ПРИВЕТ", "приветКАК", "кафе-бар", "naïve", "café"),
        *("İ", "Ⱥ", "K", "ß", "ﬁ", "٣", "漢字", "𝒳", "𐐀", "e\u0301", "\x00", "@", "[", "`", "{", "/", ":", "😀"),
    ]
)


def check(texts: Sequence[str]) -> None:
    expected = [[word_hash(word) for word in plain_words(text)] for text in texts]
    assert [hashes.tolist() for hashes in words_of(pa.array(texts, pa.large_string()))] == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join), max_size=4))
@example([])
@example(["", "", ""])
def test_words_are_those_of_plain_python(texts: list[str]) -> None:
    check(texts)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 70), st.integers(1, 140), st.sampled_from("aЯß"))
def test_a_word_may_lie_across_any_bound_of_eight_or_sixty_four_bytes(before: int, length: int, letter: str) -> None:
    check([" " * before + letter * length, letter * length, "." * before + letter * length + "."])


def test_words_of_a_slice_are_its_own() -> None:
    texts = pa.array(["one two", "три четыре пять", "six"], pa.large_string())
    assert [len(hashes) for hashes in words_of(texts.slice(1, 1))] == [3]
    assert words_of(texts.slice(1)).hashes.tolist() == words_of(texts).hashes[2:].tolist()


def test_words_of_real_texts_are_those_of_the_text_pass(corpus_dir: Path) -> None:
    texts = pa.array(sample_texts(corpus_dir), pa.large_string())
    _, expected = analyse(texts)
    found = words_of(texts)
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert found.hashes.tolist() == expected.hashes.tolist()
