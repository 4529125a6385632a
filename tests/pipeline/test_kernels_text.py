"""The text pass against plain Python that does one obvious thing after another."""

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.kernels.hashing import word_hash
from pipeline.kernels.text import Statistics, Words, analyse
from pipeline.kernels.unicode_ranges import UNICODE_VERSION
from tests.pipeline.kernels_corpus import sample_texts
from tests.pipeline.plain_statistics import lower, plain_statistics, plain_words


def array(texts: Sequence[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def check_against_plain(texts: Sequence[str]) -> None:
    statistics, words = analyse(array(texts))
    plain = [plain_statistics(text) for text in texts]
    for name, column in statistics.columns().items():
        assert column.tolist() == [one[name] for one in plain], name
    expected = [[word_hash(word) for word in plain_words(text)] for text in texts]
    assert [hashes.tolist() for hashes in words] == expected


# What the pass treats specially, so that it comes up: marks, all kinds of white space, letters of one to four bytes,
# capitals whose lower case is longer or shorter in UTF-8 (İ, Ⱥ, K), words of seven to nine bytes, combining marks.
PIECES = st.sampled_from(
    [
        *(
            "#",
            ".",
            "..",
            "...",
            "…",
            "•",
            "-",
            "\n",
            "\n\n",
            " ",
            "\t",
            "\r\n",
            "\x1c",
            "\x85",
            "\xa0",
            "\u2028",
            "\u3000",
        ),
        *(
            "a",
            "Z",
            "_",
            "7",
            "the",
            "The",
            "AND",
            "и",
            "НЕ",
            "ё",
            "Ё",
            "İ",
            "Ⱥ",
            "K",
            "ß",
            "Σ",
            "ﬁ",
            "٣",
            "漢字",
            "𝒳",
            "𐐀",
            "e\u0301",
        ),
        *("seven77", "eightLTR", "nineLETTER", "naïve", "преИмущество", "x" * 16, "        ", "same line\n"),
        *("\x00", "\x7f", "@", "[", "`", "{", "/", ":", "😀"),
        *(
            "one two three.",
            "Lorem ipsum ",
            "JavaScript",
            "terms of use.",
            "[12]",
            "[edit]",
            "[",
            "]",
            ".)",
            "!»",
            '"',
            "'",
        ),
        *("a b ", "a b ", "c ", "один два ", "x y z x y z x y z x y z ", "１", "。", "？", "w" * 1001),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=4))
@example([])
@example(["", "", ""])
@example(["a", "", "b"])
def test_the_pass_counts_what_plain_python_counts(texts: list[str]) -> None:
    check_against_plain(texts)


@pytest.mark.parametrize(
    "piece",
    [
        "..",
        "...",
        ".......",
        "…",
        "НЕ",
        "Ёж",
        "ѫ",
        "漢字。",
        "İ",
        "ẞ",
        "É",
        "𐐀",
        "\u3000",
        "\xa0",
        "»",
        "the",
        "_",
        "--",
        "\n",
    ],
)
def test_what_lies_across_two_blocks_is_counted_as_inside_one(piece: str) -> None:
    """The pass goes 64 bytes at a time: every piece stands at every place around the end of a block, between others."""
    before = "Ab. " * 20
    check_against_plain(
        [
            before[:size] + between + piece + between + after
            for size in range(54, 66)
            for between in (" ", "", "я")
            for after in ("", "end.\n")
        ]
    )


def test_longer_and_longer_words_are_hashed_as_one_obvious_loop_hashes_them() -> None:
    check_against_plain(
        [" ".join("абвгдежзийклмнопрст"[:size] for size in range(1, 20)), "x" * 23 + " " + "x" * 24 + " " + "x" * 25]
    )


def test_a_ticket_is_counted_by_hand() -> None:
    statistics, words = analyse(array(["Принтер #2 не печатает...\n\n- The paper is in\n- The paper is in\n"]))
    counts = {name: int(column[0]) for name, column in statistics.columns().items()}
    assert counts == {
        "num_bytes": 80,
        "num_chars": 63,
        "num_letters": 41,
        "num_cyrillic_letters": 17,
        "num_digits": 1,
        "num_words": 14,
        "num_word_chars": 48,
        "num_symbol_words": 2,  # the bullets
        "num_symbol_word_chars": 2,
        "num_alphabetic_words": 11,
        "num_hash_signs": 1,
        "num_ellipses": 1,
        "num_curly_brackets": 0,
        "num_lines": 4,
        "num_bullet_lines": 2,
        "num_ellipsis_lines": 1,
        "num_nonempty_lines": 3,
        "num_duplicate_lines": 1,
        "num_duplicate_line_chars": 17,
        "num_filled_lines": 3,
        "num_terminal_lines": 1,
        "num_short_lines": 3,
        "num_duplicate_filled_line_chars": 17,
        "num_newlines": 4,
        "num_paragraphs": 2,
        "num_duplicate_paragraphs": 0,
        "num_duplicate_paragraph_chars": 0,
        "num_prose_lines": 0,
        "num_prose_sentences": 0,
        "num_curly_bracket_lines": 0,
        "num_lorem_ipsum_lines": 0,
        "num_top_2gram_repeats": 2,  # "- The", twice five characters
        "num_top_2gram_chars": 10,
        "num_top_3gram_repeats": 2,
        "num_top_3gram_chars": 22,
        "num_top_4gram_repeats": 2,
        "num_top_4gram_chars": 28,
        "num_duplicate_5gram_chars": 13,  # "-ThePaperisin"
        "num_duplicate_6gram_chars": 0,
        "num_duplicate_7gram_chars": 0,
        "num_duplicate_8gram_chars": 0,
        "num_duplicate_9gram_chars": 0,
        "num_duplicate_10gram_chars": 0,
        "num_stop_words_en": 1,
        "num_stop_words_ru": 1,
    }
    assert np.diff(words.offsets).tolist() == [12]


def test_every_character_of_unicode_is_classed_as_python_classes_it() -> None:
    characters = [chr(code_point) for code_point in range(0x110000) if not 0xD800 <= code_point < 0xE000]
    check = [f"a{character}b C{character}" for character in characters]
    statistics, words = analyse(array(check))
    # A Python of another Unicode version classes new characters otherwise; those of version 3.2 stay as they are.
    same = unicodedata.unidata_version == UNICODE_VERSION
    known = np.array([same or unicodedata.ucd_3_2_0.category(character) != "Cn" for character in characters])
    num_words = np.array([len(text.split()) for text in check])
    num_runs = np.array([len(re.findall(r"\w+", text)) for text in check])
    assert np.array_equal(statistics.num_words[known], num_words[known])
    assert np.array_equal(np.diff(words.offsets)[known], num_runs[known])
    for number in range(0, len(characters), 97):
        if known[number]:
            expected = [word_hash(word) for word in plain_words(check[number])]
            assert words.hashes[words.offsets[number] : words.offsets[number + 1]].tolist() == expected, check[number]


def test_case_of_every_letter_makes_no_difference() -> None:
    letters = [chr(code_point) for code_point in range(0x250, 0x590) if chr(code_point).isalpha()]
    _, capital = analyse(array(["A" + letter for letter in letters]))
    _, small = analyse(array(["a" + lower(letter) for letter in letters]))
    assert np.array_equal(capital.hashes, small.hashes)


def test_the_end_of_one_text_does_not_run_into_the_next() -> None:
    texts = ["wor", "d eight", "bytes", "при", "нтер", "…", "..", ".", "-", ""]
    check_against_plain(texts)


def test_a_slice_of_an_array_is_analysed_like_a_copy_of_it() -> None:
    whole = array(["первый документ", "second document", "", "третий"])
    statistics, words = analyse(whole.slice(1, 2))
    expected_statistics, expected_words = analyse(array(["second document", ""]))
    assert np.array_equal(words.hashes, expected_words.hashes)
    assert np.array_equal(words.offsets, expected_words.offsets)
    for name, column in statistics.columns().items():
        assert np.array_equal(column, expected_statistics.columns()[name]), name


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_nothing_is_analysed_to_nothing(texts: list[str]) -> None:
    statistics, words = analyse(array(texts))
    assert len(statistics) == len(words) == len(texts)
    assert statistics.num_words.tolist() == [0] * len(texts)
    assert words.hashes.tolist() == []


def test_a_megabyte_without_a_space_is_one_word() -> None:
    statistics, words = analyse(array(["я" * 500_000, "=" * 300_000, "a" * 1_000_000]))
    assert statistics.num_words.tolist() == [1, 1, 1]
    assert np.diff(words.offsets).tolist() == [1, 0, 1]


def test_a_document_of_many_short_lines_finds_its_duplicates() -> None:
    statistics, _ = analyse(array(["".join(f"{number % 10_000}\n" for number in range(30_000)), "a\na"]))
    assert statistics.num_lines.tolist() == [30_000, 2]
    assert statistics.num_duplicate_lines.tolist() == [20_000, 1]


def test_nulls_are_refused_with_their_number() -> None:
    with pytest.raises(ValueError, match="1 of 2 texts are null"):
        analyse(array(["a", None]))  # type: ignore[list-item]  # the mistake under test


def test_another_arrow_type_is_refused_with_the_cast_to_make() -> None:
    with pytest.raises(ValueError, match=r"not string: cast it to pa\.large_string\(\)"):
        analyse(pa.array(["a"], pa.string()))


def test_words_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="not int64 with int64"):
        Words(hashes=np.array([1]), offsets=np.array([0, 1]))


def test_columns_of_different_lengths_are_refused() -> None:
    columns = dict.fromkeys(analyse(array(["a"]))[0].columns(), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="one entry a document"):
        Statistics(**columns | {"num_words": np.zeros(2, np.int64)})


def test_real_documents_are_counted_as_plain_python_counts_them(corpus_dir: Path) -> None:
    check_against_plain(sample_texts(corpus_dir)[::4])
