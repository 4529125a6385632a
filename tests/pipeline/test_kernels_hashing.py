"""Hashes that are stored: pinned, since signatures kept beside every version rest on them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.kernels.bits import bits_between
from pipeline.kernels.compiled import lean
from pipeline.kernels.hashing import hash_bytes, hash_padded, hash_word, word_hash

# Relied on by every stored signature, and so by every incremental build: a change here is a new code format version.
GOLDEN_WORD_HASHES = {
    "": 0x1D331B2D8FC1954D,
    "a": 0xE1852B604901EFC3,
    "printer": 0xA1F8DCD31C49490D,
    "password": 0xE7A20C9DEE4FE77B,
    "passwords": 0xA1A0014225196400,
    "принтер": 0x601CADFFB3F73D04,
    "преимущество": 0x3E1652A9AB40115E,
}


@pytest.mark.parametrize(("word", "expected"), GOLDEN_WORD_HASHES.items())
def test_word_hashes_never_change(word: str, expected: int) -> None:
    assert word_hash(word) == expected


def plain_hash(data: bytes) -> int:
    """The definition, written with Python's own integers."""
    wrap, multiplier, value = 2**64 - 1, 0x9E3779B97F4A7C15, 0x243F6A8885A308D3
    for start in range(0, len(data) // 8 * 8 + 1, 8):
        value = (value ^ int.from_bytes(data[start : start + 8], "little")) * multiplier & wrap
        value ^= value >> 33
    value ^= len(data)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & wrap
    return value ^ value >> 33


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 3))
def test_bytes_are_hashed_by_the_definition_at_any_place(data: bytes, shift: int) -> None:
    buffer = np.frombuffer(b"x" * shift + data + b"xyz", dtype=np.uint8)
    assert int(hash_bytes(buffer, shift, shift + len(data))) == plain_hash(data)
    padded = np.concatenate([buffer, np.full(64, 0x20, np.uint8)])
    assert int(hash_padded(padded, shift, len(data))) == plain_hash(data)
    if data:
        assert int(hash_word(padded, shift, len(data))) == plain_hash(data)


@lean
def compared(data: Any, place: Any, first: Any, last: Any) -> Any:
    return bits_between(data, place, first, last)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=70, max_size=70), st.integers(0, 6), st.integers(0, 255), st.integers(0, 255))
def test_a_block_of_bytes_is_compared_as_its_bytes_one_by_one(data: bytes, place: int, one: int, other: int) -> None:
    first, last = sorted((one, other))
    expected = sum(1 << i for i in range(64) if first <= data[place + i] <= last)
    assert int(compared(np.frombuffer(data, np.uint8), place, first, last)) == expected


def test_distinct_texts_of_one_alphabet_do_not_collide() -> None:
    words = [f"{left}{middle}{right}" for left in "abcdefgh" for middle in "абвгдежз" for right in range(300)]
    assert len({word_hash(word) for word in words}) == len(words)


def test_a_change_in_a_shared_kernel_source_is_compiled_anew(tmp_path: Path) -> None:
    """numba alone would run the old machine code: the kernel's own file did not change."""
    package = tmp_path / "pipeline"
    shutil.copytree(Path(__file__).parents[2] / "pipeline", package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def hash_in_a_new_process() -> int:
        program = "from pipeline.kernels import hashing; print(hashing.__file__, hashing.word_hash('more than eight'))"
        output = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        file, value = output.split()
        assert file.startswith(str(tmp_path)), "the copy was not what ran"
        return int(value)

    before = hash_in_a_new_process()
    assert before == word_hash("more than eight")
    assert any((tmp_path / "cache").rglob("*.nbc")), "nothing was cached, so the next line would prove nothing"
    bits = package / "kernels" / "bits.py"
    load = "builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)"
    assert bits.read_text().count(load) == 1
    bits.write_text(bits.read_text().replace(load, f"builder.not_({load})"))
    assert hash_in_a_new_process() != before
