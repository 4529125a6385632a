"""Cleaning: each rule by its examples, all of them together by their promises."""

import sys
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.transforms
from pipeline.config import CleanConfig
from pipeline.transforms import TRANSFORMS, clean, clean_text
from pipeline.transforms.scan import flags_of

ON = CleanConfig(
    mojibake="repair", quoted_replies="remove", forwarded_headers="remove", signatures="remove", disclaimers="remove"
)
KEEP = CleanConfig(unicode="none", control_characters="keep", newlines="keep", zero_width="keep")
CASES = [(transform, before, after) for transform in TRANSFORMS for before, after in transform.examples]


def cleaned(texts: list[str | None], config: CleanConfig | None = None) -> list[str | None]:
    return clean(pa.array(texts, pa.large_string()), config or CleanConfig()).text.to_pylist()


@pytest.mark.parametrize(("transform", "before", "after"), CASES, ids=lambda value: getattr(value, "name", None))
def test_every_example_in_a_transforms_page_holds(transform, before, after):
    assert transform.apply(before) == after
    assert transform.apply(after) == after


def test_every_file_in_the_folder_is_in_the_table():
    folder = Path(pipeline.transforms.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "mail_parts", "scan", "transform"}
    assert files == {transform.name for transform in TRANSFORMS}


def test_every_transform_has_its_field_in_the_config_and_can_be_left_out():
    fields = {name: getattr(KEEP, name) for name in vars(KEEP)}
    assert fields == {transform.name: transform.off for transform in TRANSFORMS}
    for transform in TRANSFORMS:
        only = CleanConfig(**{**fields, transform.name: getattr(ON, transform.name)})
        for before, after in transform.examples:
            assert cleaned([before], only) == [after]
            assert cleaned([before], KEEP) == [before]


def test_clean_text_passes_by_reference():
    texts = pa.array(["Обычный текст, с ё и й.\n\tvar x² №7", "", None, "日本語 👍🏽 🇷🇺"], pa.large_string())
    result = clean(texts, CleanConfig())
    assert result.text is texts
    assert not result.changed.any()


def test_changed_says_which_texts_are_others_now():
    texts = ["a", "b\r\n", None, "c\0", "e\u0301", "👨\u200d👩", "d"]
    result = clean(pa.array(texts, pa.large_string()), CleanConfig())
    assert result.text.to_pylist() == ["a", "b\n", None, "c", "é", "👨\u200d👩", "d"]
    assert result.changed.tolist() == [False, True, False, True, True, False, False]


def test_a_slice_of_an_array_is_cleaned_like_the_whole():
    texts = pa.array(["\0x", "y\r", "z", None, "w\u200b"], pa.large_string())
    assert clean(texts.slice(1, 4), CleanConfig()).text.to_pylist() == ["y\n", "z", None, "w"]
    assert clean(texts.slice(5), CleanConfig()).text.to_pylist() == []


def test_nfc_and_nfd_of_one_text_are_one_text():
    text = "Ёжик пошёл в йогуртовый цех. Café déjà vu, 한글"
    assert cleaned([unicodedata.normalize("NFD", text)]) == cleaned([unicodedata.normalize("NFC", text)]) == [text]


def test_a_zero_width_character_between_letter_and_accent_does_not_keep_them_apart():
    assert cleaned(["e\u200b\u0301", "e\u200d\u0301", "e\0\u0301", "\r\0\n"]) == ["é", "é", "é", "\n"]


def test_a_text_of_nothing_visible_becomes_empty():
    assert cleaned(["\u200b\u200b\ufeff", "\0\x1b[0m"]) == ["", ""]


def test_the_scan_finds_every_character_that_nfc_can_touch():
    # Exhaustive: a character that NFC changes, alone or after any base that composes, must carry the flag.
    bit = 1 << [transform.name for transform in TRANSFORMS].index("unicode")
    characters = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]
    flags = flags_of(pa.array(characters, pa.large_string()), pipeline.transforms._table())
    unflagged = [one for one, flag in zip(characters, flags, strict=True) if not flag & bit]
    assert all(unicodedata.is_normalized("NFC", one) and not unicodedata.combining(one) for one in unflagged)
    joined = "".join(unflagged)
    assert unicodedata.is_normalized("NFC", joined)
    assert unicodedata.is_normalized("NFC", joined[::-1])
    assert 1000 < int((flags & bit).astype(bool).sum()) < 3500


# Letters, accents, joiners, controls and emoji that act on each other, beside any character at all.
TROUBLE = (
    "aе\u0301\u0308\u05b0\u0338<\u200b\u200c\u200d\ufeff\u00ad\0\r\n\f\x1b[0m\x85"
    "\u212a\u1100\u1161\u11a8क\u094dم👨\ufe0f"
)
TEXT = st.text(st.one_of(st.sampled_from(TROUBLE), st.characters(exclude_categories=("Cs",))), max_size=30)


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_cleaning_twice_is_cleaning_once_and_the_result_is_nfc(text):
    once = clean_text(text)
    assert clean_text(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not set(once) & set("\0\r\x1b\ufeff\u200b")


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXT, max_size=8), which=st.integers(0, 2 ** len(TRANSFORMS) - 1))
def test_the_batch_gives_what_the_rules_give_one_by_one(texts, which):
    chosen = tuple(transform for index, transform in enumerate(TRANSFORMS) if which >> index & 1)
    values = {one.name: getattr(ON if one in chosen else KEEP, one.name) for one in TRANSFORMS}
    result = clean(pa.array(texts, pa.large_string()), CleanConfig(**values))
    expected = [clean_text(text, chosen) for text in texts]
    assert result.text.to_pylist() == expected
    assert result.changed.tolist() == [old != new for old, new in zip(texts, expected, strict=True)]
    assert result.changed.dtype == np.bool_
