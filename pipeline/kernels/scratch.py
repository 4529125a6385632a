"""What the text pass keeps of the document it is at: memory of a thread's own, used again for every document.

A document is copied between spaces, so that a block of 64 bytes or a word of eight can be read at any place of it:
`text[FIRST : FIRST + size]`. Places are places in `text`; block b is text[64 * b : 64 * (b + 1)].
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.kernels.bits import count_ones
from pipeline.kernels.compiled import inlined

FIRST = 64
AFTER = 192
"""Spaces behind a document: the rest of its last block, one more that is looked ahead at, 24 bytes read with a word."""
MAX_DOCUMENT_BYTES = 2**31 - 1 - FIRST - AFTER


class Marks(NamedTuple):
    """Marked places: a bit each, and how many there are before each block."""

    bits: np.ndarray  # (blocks,) uint64
    before: np.ndarray  # (blocks,) int64


class Scratch(NamedTuple):
    """Room for the largest document. Nothing is kept from one document to the next."""

    text: np.ndarray  # uint8
    lower: np.ndarray  # uint8: the same in lower case, where that takes no other number of bytes
    characters: Marks  # first bytes of all characters
    word_characters: Marks  # of those in words
    words: Marks  # where words begin
    sentences: Marks  # the place behind each word whose last byte is one of . ? !
    closing: np.ndarray  # (blocks,) uint64: the place behind each word whose last byte may belong to a closing mark
    word_edges: np.ndarray  # int32: where each word begins and ends, two numbers each
    run_edges: np.ndarray  # the same of the runs of \\w
    newlines: np.ndarray  # int32
    keys: np.ndarray  # uint64, a word each: hashes of n-grams (ngrams.py), as are all below
    occurrences: np.ndarray  # uint8, a power of two
    candidates: np.ndarray  # int32, a word each
    names: np.ndarray
    first: np.ndarray
    repeats: np.ndarray
    seen: np.ndarray
    longest: np.ndarray  # uint8
    hashes: np.ndarray  # uint64, a power of two: of lines and paragraphs
    slots: np.ndarray  # int32, a power of two


def make_scratch(num_bytes: int) -> Scratch:
    """Scratch for documents of up to `num_bytes`. Memory that is never written is never really taken."""
    size = FIRST + num_bytes + AFTER
    num_blocks = size // 64 + 1
    # A word takes two bytes with what parts it from the next; edges are written some more at a time.
    num_words = num_bytes // 2 + 2
    num_slots = 1 << (2 * num_words - 1).bit_length()

    def marks() -> Marks:
        return Marks(np.zeros(num_blocks, np.uint64), np.zeros(num_blocks, np.int64))

    def edges() -> np.ndarray:
        return np.empty(2 * num_words + 8, np.int32)

    def places() -> np.ndarray:
        return np.empty(num_words, np.int32)

    return Scratch(
        text=np.empty(size, np.uint8),
        lower=np.empty(size, np.uint8),
        characters=marks(),
        word_characters=marks(),
        words=marks(),
        sentences=marks(),
        closing=np.zeros(num_blocks, np.uint64),
        word_edges=edges(),
        run_edges=edges(),
        newlines=np.empty(num_bytes + 8, np.int32),
        keys=np.empty(num_words, np.uint64),
        occurrences=np.empty(1 << (8 * num_words - 1).bit_length(), np.uint8),
        candidates=places(),
        names=places(),
        first=places(),
        repeats=places(),
        seen=places(),
        longest=np.empty(num_words, np.uint8),
        hashes=np.empty(1 << (2 * num_bytes + 3).bit_length(), np.uint64),
        slots=np.empty(num_slots, np.int32),
    )


@inlined
def num_before(marks: Any, place: Any) -> Any:
    """How many marked places lie before `place`."""
    block = np.uint64(place) >> np.uint64(6)
    below = (np.uint64(1) << (np.uint64(place) & np.uint64(63))) - np.uint64(1)
    return marks.before[block] + count_ones(marks.bits[block] & below)


@inlined
def num_between(marks: Any, start: Any, end: Any) -> Any:
    """How many marked places lie in start..end - 1."""
    return num_before(marks, end) - num_before(marks, start)
