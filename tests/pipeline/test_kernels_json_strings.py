"""JSON strings lose their quotes and escapes, all of a block at once."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.kernels.json_strings import text_array

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | TEXTS), st.booleans())
@example(["", '"', "\\", "\n", "a" * 7, "a" * 8, '"' * 9, "😀\u0435\x00", None], True)
def test_text_comes_out_as_json_reads_it(texts: list[str | None], ascii_only: bool) -> None:
    spelled = [json.dumps(text, ensure_ascii=ascii_only).encode() for text in texts]
    array = text_array(spelled, scalars=False)
    assert array is not None
    array.validate(full=True)
    assert array.to_pylist() == texts


def test_every_escape_has_its_meaning() -> None:
    spelled = [rb'"\"\\\/\b\f\n\r\t"', rb'"\u0435\u20ac\u0041\uD83D\ude00"']
    array = text_array(spelled, scalars=False)
    assert array is not None
    assert array.to_pylist() == ['"\\/\b\f\n\r\t', "е€A😀"]


@pytest.mark.parametrize(
    "value", [b"1", b"1.5", b"true", b"{}", b"[1,\n2]", rb'"\ud83d"', rb'"\ude00\ud83d"', b'"\xff"']
)
def test_what_is_no_plain_text_wants_a_closer_look(value: bytes) -> None:
    assert text_array([b'"a"', value, b"null"], scalars=False) is None


def test_integers_and_truth_values_may_stand_for_themselves() -> None:
    array = text_array([b"1", b"-20", b"0", b"true", b"false", b"null", b'"1"'], scalars=True)
    assert array is not None
    assert array.to_pylist() == ["1", "-20", "0", "true", "false", None, "1"]


@pytest.mark.parametrize("value", [b"1.0", b"1e5", b"-0", b"1" * 19, b"{}", b"[]"])
def test_other_numbers_want_a_closer_look(value: bytes) -> None:
    assert text_array([b'"a"', value], scalars=True) is None
