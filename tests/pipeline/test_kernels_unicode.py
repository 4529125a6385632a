"""The pinned table of characters."""

import unicodedata
from pathlib import Path

import pytest

from pipeline.kernels import generate_unicode_ranges, unicode_ranges
from pipeline.kernels.unicode import LETTER, LOWER_MASK, SPACE, WORD, character_table


def test_the_table_says_what_a_few_known_characters_are() -> None:
    table = character_table()
    classes = {"a": WORD | LETTER, "Я": WORD | LETTER, "_": WORD, "7": WORD, " ": SPACE, "\n": SPACE, "#": 0, "…": 0}
    all_classes = WORD | LETTER | SPACE
    assert {character: int(table[ord(character)] & all_classes) for character in classes} == classes


def test_lower_case_is_kept_as_the_bytes_of_its_utf8() -> None:
    table = character_table()
    for capital, small in {"A": "a", "Я": "я", "Ё": "ё", "ẞ": "ß", "İ": "i", "7": "7", "漢": "漢"}.items():
        assert int(table[ord(capital)] & LOWER_MASK) == int.from_bytes(small.encode(), "little")


def test_the_file_is_what_its_generator_writes() -> None:
    if unicodedata.unidata_version != unicode_ranges.UNICODE_VERSION:
        pytest.skip(f"this Python has Unicode {unicodedata.unidata_version}, the file {unicode_ranges.UNICODE_VERSION}")
    assert Path(unicode_ranges.__file__).read_text(encoding="utf-8") == generate_unicode_ranges.module()
