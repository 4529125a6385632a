"""Template lines."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.templates import core_words, find_lines, hash_line, line_hashes
from pipeline.kernels.hashing import word_hash
from tests.pipeline.plain_statistics import plain_words


def lines_of(*texts: str) -> list[set[int]]:
    hashes, offsets = line_hashes(pa.array(texts, pa.large_string()))
    return [set(hashes[start:end].tolist()) for start, end in pairwise(offsets)]


def core(text: str, *lines: str) -> list[int] | None:
    table = np.sort(np.array([hash_line(line) for line in lines], np.uint64))
    words, removed = core_words(pa.array([text], pa.large_string()), table)
    return words.hashes.tolist() if removed[0] else None


def hashes(text: str) -> list[int]:
    return [word_hash(word) for word in plain_words(text)]


def test_a_line_is_the_same_whatever_stands_around_it() -> None:
    assert lines_of("Добрый день!", "  Добрый день! \t\r\nи ещё") == [
        {hash_line("Добрый день!")},
        {hash_line("Добрый день!"), hash_line("и ещё")},
    ]
    assert lines_of("", "\n \n\t\r\n") == [set(), set()]


def test_template_lines_are_taken_out_and_the_words_of_the_rest_stay() -> None:
    assert core("Имя: Иван\n  не печатает\nС уважением,", "Имя: Иван", "С уважением,") == hashes("не печатает")
    assert core("a\nb", "c") is None
    assert core("a\na\na", "a") == []


def test_the_text_of_a_line_is_found_by_its_hash_wherever_it_stands_first() -> None:
    text = pa.array(["", "один\n  два  \n", "три\nдва"], pa.large_string())
    wanted = np.array([hash_line(line) for line in ("три", "нет", "два")], np.uint64)
    assert find_lines(text, wanted) == ["три", None, "два"]
    assert find_lines(text.slice(2), wanted[:1]) == ["три"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab \n\tя"), max_size=30), max_size=4))
def test_lines_are_those_of_plain_python(texts: list[str]) -> None:
    expected = [{hash_line(line) for line in text.split("\n") if line.strip(" \t\r")} for text in texts]
    assert lines_of(*texts) == expected
    _, offsets = line_hashes(pa.array(texts, pa.large_string()))
    assert np.diff(offsets).tolist() == [len(lines) for lines in expected], "each once a document"


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab \nя"), max_size=30), max_size=4))
def test_cores_are_those_of_plain_python(texts: list[str]) -> None:
    table = np.sort(np.array([hash_line("a"), hash_line("я b")], np.uint64))
    found, removed = core_words(pa.array(texts, pa.large_string()), table)
    for text, left, is_cut in zip(texts, found, removed, strict=True):
        lines = text.split("\n")
        stays = [line for line in lines if line.strip(" \t\r") not in ("a", "я b")]
        assert is_cut == (len(stays) < len(lines))
        assert left.tolist() == (hashes("\n".join(stays)) if is_cut else []), (
            "who has no template line has no words here"
        )
