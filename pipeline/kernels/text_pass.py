"""The loop behind `analyse`: what it does a document is the price of the whole text path, so it is written for it.

A document is copied to where it can be read in blocks (scratch.py) and walked while it is in the cache, each time with
few things to keep in registers and hardly a branch that depends on the text:

1. blocks.py  every byte's class, sixty-four at a time; where words, runs of \\w and lines begin and end
2. here       the hash of each run, in lower case: what deduplication compares; stop words among them
3. lines.py   lines and paragraphs, with prose.py;  4. ngrams.py  repeated runs of words
"""

from typing import Any

import numpy as np

from pipeline.kernels import columns
from pipeline.kernels.bits import count_ones
from pipeline.kernels.blocks import mark_document
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.hashing import START, absorb, hash_word, mix64
from pipeline.kernels.lines import count_lines
from pipeline.kernels.ngrams import count_repetition
from pipeline.kernels.unicode import LOWER_MASK, LOWER_SIZE_MASK, LOWER_SIZE_SHIFT, decode_multibyte, encode_four


@lean
def analyse_batch(
    data: Any,
    offsets: Any,
    table: Any,
    stop_words: Any,
    scratch: Any,
    counts: Any,
    hashes: Any,
    word_offsets: Any,
) -> None:
    """Fill `counts` (n, fields) int64, `hashes` (enough) uint64 and `word_offsets` (n + 1) int64 for every document."""
    next_run = np.intp(0)
    for document in range(len(offsets) - 1):
        count = counts[document]
        end, num_runs, other_lower, has_long_words = mark_document(
            data, offsets[document], offsets[document + 1], scratch, table, count
        )
        found = _hash_runs(scratch, num_runs, other_lower, table, stop_words, hashes, next_run)
        next_run += num_runs
        word_offsets[document + 1] = next_run
        for language in range(len(stop_words.language_masks)):
            count[len(columns.COUNTED) + language] = count_ones(found & stop_words.language_masks[language])
        markers = np.uint64(0)
        for marker in range(len(stop_words.marker_masks)):
            markers |= np.uint64(found & stop_words.marker_masks[marker] != 0) << np.uint64(marker)
        count_lines(scratch, end, table, markers, has_long_words, count)
        count_repetition(scratch, count)


@inlined
def _hash_runs(
    scratch: Any, num_runs: Any, other_lower: Any, table: Any, stop_words: Any, hashes: Any, next_run: Any
) -> Any:
    """Leave the hash of every \\w run from `next_run` on; return the set of stop words among them."""
    lower, edges = scratch.lower, scratch.run_edges
    mask = np.uint64(len(stop_words.hashes) - 1)
    found = np.uint64(0)
    for run in range(num_runs):
        start, end = np.intp(edges[np.uint64(2 * run)]), np.intp(edges[np.uint64(2 * run + 1)])
        value = (
            hash_by_character(scratch.text, start, end, table) if other_lower else hash_word(lower, start, end - start)
        )
        hashes[np.uint64(next_run + run)] = value
        slot = (value >> stop_words.shift) & mask
        found |= stop_words.bits[slot] * np.uint64(stop_words.hashes[slot] == value)
    return found


@lean
def hash_by_character(text: Any, start: Any, end: Any, table: Any) -> Any:
    """The hash of a run whose lower case may be longer or shorter: `chunk` gathers eight of its bytes at a time."""
    value, chunk, filled, num_bytes = START, np.uint64(0), np.intp(0), np.intp(0)
    position = start
    while position < end:
        code_point, after = np.uint32(text[position]), position + 1
        if code_point >= 0x80:
            code_point, after = decode_multibyte(text, position)
        position = after
        entry = table[code_point]
        encoded, size = np.uint64(entry & LOWER_MASK), np.intp((entry >> LOWER_SIZE_SHIFT) & LOWER_SIZE_MASK)
        if size == 4:
            encoded = encode_four(encoded)
        num_bytes += size
        chunk |= encoded << np.uint64(8 * filled)
        filled += size
        if filled >= 8:
            value = absorb(value, chunk)
            filled -= 8
            # What did not fit: its last `filled` bytes. None is a case of its own, since a shift by 64 is not defined.
            chunk = encoded >> np.uint64(8 * (size - filled)) if filled else np.uint64(0)
    return mix64(absorb(value, chunk) ^ np.uint64(num_bytes))
