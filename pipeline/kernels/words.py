"""Words alone: the hashes that the text pass leaves, at four times its speed, where nobody asks for statistics.

A document is copied to where it can be read in blocks (scratch.py). Of the arithmetic in blocks.py only what tells
words and their lower case is done to it, then the hash of each word is taken as in text_pass.py.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import text_buffers
from pipeline.kernels.bits import add_where, bits_between, count_trailing_zeros
from pipeline.kernels.blocks import copy_document, cyrillic_leads, emit_places, lower_cyrillic, lower_other
from pipeline.kernels.compiled import lean
from pipeline.kernels.hashing import hash_word
from pipeline.kernels.scratch import AFTER, FIRST
from pipeline.kernels.text import Words
from pipeline.kernels.text_pass import hash_by_character
from pipeline.kernels.unicode import WORD, character_table, decode_multibyte

_0, _1, _63 = np.uint64(0), np.uint64(1), np.uint64(63)


class WordScratch(NamedTuple):
    """Room for the largest document of a batch: see scratch.Scratch."""

    text: np.ndarray  # uint8
    lower: np.ndarray  # uint8
    run_edges: np.ndarray  # int32


def words_of(text: pa.LargeStringArray) -> Words:
    """The words of every document of `text`, as `analyse` gives them. ValueError for nulls or another Arrow type."""
    data, offsets = text_buffers(text)
    hashes = np.empty(most_words(offsets), np.uint64)
    word_offsets = np.zeros(len(offsets), np.int64)
    _words(data, offsets, word_scratch(offsets), character_table(), hashes, word_offsets)
    return Words(hashes=hashes[: word_offsets[-1]], offsets=word_offsets)


def most_words(offsets: np.ndarray) -> int:
    """More than there can be: a word takes two bytes with what parts it from the next."""
    return int(offsets[-1] - offsets[0] + len(offsets)) // 2 + 1


def word_scratch(offsets: np.ndarray) -> WordScratch:
    """Scratch for the documents between `offsets`."""
    longest = int(np.diff(offsets).max(initial=0))
    size = FIRST + longest + AFTER
    return WordScratch(np.empty(size, np.uint8), np.empty(size, np.uint8), np.empty(longest + 12, np.int32))


@lean
def _words(data: Any, offsets: Any, scratch: Any, table: Any, hashes: Any, word_offsets: Any) -> None:
    next_word = np.intp(0)
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        copy_document(data, start, end - start, scratch.text)
        next_word = words_in(scratch, end - start, table, hashes, next_word)
        word_offsets[document + 1] = next_word


@lean
def words_in(scratch: Any, size: Any, table: Any, hashes: Any, next_word: Any) -> Any:
    """Leave the hashes of the words of scratch.text[FIRST : FIRST + size], which stands between spaces, from
    `next_word` on; return their end.
    """
    text, lower, edges = scratch.text, scratch.lower, scratch.run_edges
    copy_document(text, FIRST, size, lower)
    num_edges = np.intp(0)
    was_run = was_cyrillic = run_ahead = _0
    other_lower = False
    for block in range(FIRST >> 6, ((FIRST + size) >> 6) + 1):
        first = block << 6
        capitals = bits_between(text, first, 0x41, 0x5A)
        runs = capitals | bits_between(text, first, 0x61, 0x7A)
        runs |= bits_between(text, first, 0x30, 0x39) | bits_between(text, first, 0x5F, 0x5F)
        add_where(lower, first, capitals, 0x20)
        foreign = bits_between(text, first, 0x80, 0xFF)
        if foreign:  # also where a character goes on from the block before
            cyrillic = cyrillic_leads(text, first)
            both = cyrillic | (cyrillic << _1) | was_cyrillic
            was_cyrillic = cyrillic >> _63
            runs |= both | run_ahead
            lower_cyrillic(text, lower, first)
            run_ahead = _0
            others = foreign & ~both & ~bits_between(text, first, 0x80, 0xBF)
            while others:
                bit = count_trailing_zeros(others)
                others &= others - _1
                place = first + np.intp(bit)
                code_point, after = decode_multibyte(text, place)
                entry = table[code_point]
                if entry & WORD:
                    num_bytes = np.uint64(after - place)
                    all_bytes = (_1 << num_bytes) - _1
                    runs |= all_bytes << bit
                    run_ahead = (all_bytes >> (_63 - bit)) >> _1
                    other_lower |= lower_other(lower, place, num_bytes, entry)
        num_edges = emit_places(edges, num_edges, runs ^ ((runs << _1) | was_run), first, 8)
        was_run = runs >> _63
    num_words = num_edges >> 1
    for number in range(num_words):
        start, end = np.intp(edges[np.uint64(2 * number)]), np.intp(edges[np.uint64(2 * number + 1)])
        hashes[np.uint64(next_word + number)] = (
            hash_by_character(text, start, end, table) if other_lower else hash_word(lower, start, end - start)
        )
    return next_word + num_words
