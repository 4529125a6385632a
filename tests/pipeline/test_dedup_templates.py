"""Template lines."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.templates import hash_line, line_hashes, without_lines


def lines_of(*texts: str) -> list[set[int]]:
    hashes, offsets = line_hashes(pa.array(texts, pa.large_string()))
    return [set(hashes[start:end].tolist()) for start, end in pairwise(offsets)]


def core(text: str, *lines: str) -> str:
    table = np.sort(np.array([hash_line(line) for line in lines], np.uint64))
    found: str = without_lines(pa.array([text], pa.large_string()), table)[0][0].as_py()
    return found


def test_a_line_is_the_same_whatever_stands_around_it() -> None:
    assert lines_of("Добрый день!", "  Добрый день! \t\r\nи ещё") == [
        {hash_line("Добрый день!")},
        {hash_line("Добрый день!"), hash_line("и ещё")},
    ]
    assert lines_of("", "\n \n\t\r\n") == [set(), set()]


def test_template_lines_are_taken_out_and_the_rest_stays() -> None:
    assert core("Имя: Иван\n  не печатает\nС уважением,", "Имя: Иван", "С уважением,") == "  не печатает\n"
    assert core("a\nb", "c") == "a\nb\n"
    assert core("a\na\na", "a") == ""


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
    found, removed = without_lines(pa.array(texts, pa.large_string()), table)
    for text, left, is_cut in zip(texts, found.to_pylist(), removed, strict=True):
        lines = text.split("\n")
        stays = [line for line in lines if line.strip(" \t\r") not in ("a", "я b")]
        assert left.split() == " ".join(stays).split()
        assert is_cut == (len(stays) < len(lines))
