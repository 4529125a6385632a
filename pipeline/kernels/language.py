"""The language of each text: fastText's arithmetic over the bytes of a batch, with the labels of its own binding.

A text's vector is the mean of a vector a word and one a character n-gram of each word, of 2 to 4 characters: 17 looked
up for a word of six letters, which is what caps fastText at 6-8 MB a core-second. But the sum over one word depends on
nothing around it, and words recur: a table remembers the sums of the words it saw last. What a sum is never depends on
the table, so neither does a label on the batch. The tree of labels is walked best branch first, as fastText does.
"""

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import aligned, text_buffers
from pipeline.kernels.bits import EVERY_7F, add_rows, bytes_between, bytes_equal, count_trailing_zeros, load_uint64
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.hashing import START, absorb, mix64
from pipeline.kernels.language_model import (
    DIMENSION,
    MAX_NGRAM,
    MIN_NGRAM,
    NO_ROW,
    NUM_BUCKETS,
    language_labels,
    language_model,
)

NUM_REMEMBERED = 1 << 18
"""Words whose sums each thread remembers, 20 MB. A fourth of that was slower by a third: to sum a word anew costs more
than to fetch its sum from memory.
"""
NUM_FOUND = 256
"""N-grams of a word whose rows are added at once."""
MIN_LETTERS = 20
"""Below this many letters a label says nothing: it calls "OK" Polish, and every number English."""
_FNV_START, _FNV_PRIME = np.uint32(2_166_136_261), np.uint32(16_777_619)
_BEGIN, _END = ord("<"), ord(">")
_EPSILON = 1e-5  # fastText adds it inside each logarithm
_UNLIKELY = -1e30
# What fastText takes for white space: ASCII's, and NUL. A no-break space is part of a word to it.
_NUL, _TAB, _RETURN, _SPACE = (np.uint64(byte) for byte in (0, 9, 13, 32))
_IS_SPACE = np.zeros(256, np.bool_)
_IS_SPACE[[0, 9, 10, 11, 12, 13, 32]] = True
_remembered = threading.local()


@dataclass(frozen=True, kw_only=True)
class Languages:
    """The model's first choice for each document, and how sure it is (0 to 1; a little above 1 by its rounding)."""

    label: np.ndarray  # int16 (n,): index into language_labels()
    score: np.ndarray  # float32 (n,)

    def code(self, number: int) -> str:
        """ISO code of document `number`'s language."""
        return language_labels()[self.label[number]]


def detect(text: pa.LargeStringArray) -> Languages:
    """Languages of whole texts, line ends taken as spaces. Raises UserError where the model is not installed."""
    data, offsets = text_buffers(text)
    label, score = np.zeros(len(text), np.int16), np.zeros(len(text), np.float32)
    longest = int(np.diff(offsets).max(initial=0))
    word, vector = np.empty(longest + 2, np.uint8), np.empty((1, DIMENSION), np.float32)
    found = np.empty(NUM_FOUND, np.int32)
    model = language_model()
    nodes, scores = np.empty(len(model.left), np.int32), np.empty(len(model.left), np.float64)
    _detect_batch(data, offsets, *model, *_memory(), word, found, vector, nodes, scores, label, score)
    return Languages(label=label, score=score)


def _memory() -> tuple[np.ndarray, np.ndarray]:
    """This thread's words and their sums: (a hash, 0 in free places, and how many rows are in the sum; sums)."""
    if not hasattr(_remembered, "arrays"):
        _remembered.arrays = (
            np.zeros((NUM_REMEMBERED, 2), np.uint64),
            aligned(np.zeros((NUM_REMEMBERED, DIMENSION), np.float32)),
        )
    arrays: tuple[np.ndarray, np.ndarray] = _remembered.arrays
    return arrays


@lean
def _detect_batch(
    data: Any,
    offsets: Any,
    rows: Any,
    bucket_rows: Any,
    word_slots: Any,
    word_hashes: Any,
    word_bytes: Any,
    word_offsets: Any,
    end_of_line: Any,
    output: Any,
    left: Any,
    right: Any,
    known: Any,
    sums: Any,
    marked: Any,
    found: Any,
    vector: Any,
    stack_nodes: Any,
    stack_scores: Any,
    label: Any,
    score: Any,
) -> None:
    for document in range(len(offsets) - 1):
        position, end = offsets[document], offsets[document + 1]
        for i in range(DIMENSION):
            vector[0, i] = rows[end_of_line, i]
        size = np.intp(1)
        while position < end:
            if _IS_SPACE[data[position]]:
                position += 1
                continue
            start = position
            position, value = _word(data, start, end)
            slot = value & np.uint64(NUM_REMEMBERED - 1)
            if known[slot, 0] != value:
                known[slot, 0] = value
                word = _find(data, start, position, word_slots, word_hashes, word_bytes, word_offsets)
                marked[0], marked[position - start + 1] = _BEGIN, _END
                for place in range(start, position):
                    marked[place - start + 1] = data[place]
                num_rows = _sum_word(marked, position - start + 2, word, rows, bucket_rows, found, sums, slot)
                known[slot, 1] = np.uint64(num_rows)
            size += np.intp(known[slot, 1])
            found[0] = np.int32(slot)
            add_rows(vector, 0, sums, found, 1)
        for i in range(DIMENSION):
            vector[0, i] /= np.float32(size)
        label[document], score[document] = _best(vector, output, left, right, stack_nodes, stack_scores)


@inlined
def _word(data: Any, start: Any, end: Any) -> Any:
    """(end, hash) of the run without white space that begins at `start`."""
    position = start
    value, chunk, filled = START, np.uint64(0), np.uint64(0)
    while position + 8 <= end:
        eight = load_uint64(data, position)
        spaces = bytes_between(eight & EVERY_7F, _TAB, _RETURN) & ~eight
        spaces |= bytes_equal(eight, _SPACE) | bytes_equal(eight, _NUL)
        if spaces:
            bits = count_trailing_zeros(spaces) & np.uint64(0x38)
            position += np.int64(bits >> np.uint64(3))
            value = absorb(value, eight & ((np.uint64(1) << bits) - np.uint64(1)))
            return position, max(mix64(value ^ np.uint64(position - start)), np.uint64(1))
        value = absorb(value, eight)
        position += 8
    while position < end and not _IS_SPACE[data[position]]:
        chunk |= np.uint64(data[position]) << filled
        filled += np.uint64(8)
        position += 1
        if filled == 64:
            value = absorb(value, chunk)
            chunk, filled = np.uint64(0), np.uint64(0)
    return position, max(mix64(absorb(value, chunk) ^ np.uint64(position - start)), np.uint64(1))


@inlined
def _fnv(value: Any, byte: Any) -> Any:
    """One step of language_model.fnv1a."""
    return np.uint32((value ^ np.uint32(np.int32(np.int8(byte)))) * _FNV_PRIME)


@lean
def _find(
    data: Any, start: Any, end: Any, word_slots: Any, word_hashes: Any, word_bytes: Any, word_offsets: Any
) -> Any:
    """The dictionary's number of the word data[start:end]; -1 if it is none of them."""
    value = _FNV_START
    for position in range(start, end):
        value = _fnv(value, data[position])
    slot = value % np.uint32(len(word_slots))
    while word_slots[slot]:
        word = word_slots[slot] - 1
        if word_hashes[word] == value and word_offsets[word + 1] - word_offsets[word] == end - start:
            same = True
            for i in range(end - start):
                same &= word_bytes[word_offsets[word] + i] == data[start + i]
            if same:
                return np.int64(word)
        slot = (slot + np.uint32(1)) % np.uint32(len(word_slots))
    return np.int64(-1)


@inlined
def _sum_word(
    marked: Any, length: Any, word: Any, rows: Any, bucket_rows: Any, found: Any, sums: Any, slot: Any
) -> Any:
    """Leave the sum of the rows of a word and of its n-grams in sums[slot]; return how many rows they are.

    marked[:length] is `<word>`. First which rows (`found`: scratch, int32), without a branch on whether an n-gram was
    pruned, then their sum in one register.
    """
    for i in range(DIMENSION):
        sums[slot, i] = rows[word, i] if word >= 0 else np.float32(0)
    added = np.int32(word >= 0)
    num_found = np.intp(0)
    for first in range(length):
        if marked[first] & 0xC0 == 0x80:
            continue
        value = _FNV_START
        place, num_chars = first, 1
        while place < length and num_chars <= MAX_NGRAM:
            value = _fnv(value, marked[place])
            place += 1
            while place < length and marked[place] & 0xC0 == 0x80:
                value = _fnv(value, marked[place])
                place += 1
            if num_chars >= MIN_NGRAM:
                row = bucket_rows[value % np.uint32(NUM_BUCKETS)]
                found[np.uint64(num_found)] = np.int32(row)
                num_found += row != NO_ROW
            num_chars += 1
        if num_found >= NUM_FOUND - MAX_NGRAM or first == length - 1:
            add_rows(sums, np.intp(slot), rows, found, num_found)
            added += np.int32(num_found)
            num_found = np.intp(0)
    return added


@lean
def _best(vector: Any, output: Any, left: Any, right: Any, nodes: Any, scores: Any) -> Any:
    """(label, score) of the leaf with the largest product of probabilities on its way from the root."""
    num_leaves = len(output)
    best, best_score = np.int16(0), np.float64(_UNLIKELY)
    nodes[0], scores[0] = len(left) - 1, 0.0
    depth = 1
    while depth:
        depth -= 1
        node, score = nodes[depth], scores[depth]
        if score < best_score:
            continue
        if left[node] < 0:
            best, best_score = np.int16(node), score
            continue
        product = np.float32(0)
        for i in range(DIMENSION):
            product += output[node - num_leaves, i] * vector[0, i]
        right_share = 1.0 / (1.0 + math.exp(-product))
        left_score = score + math.log(1.0 - right_share + _EPSILON)
        right_score = score + math.log(right_share + _EPSILON)
        # The likelier branch last, so that it is walked first and the other can be cut off.
        if left_score > right_score:
            nodes[depth], scores[depth] = right[node], right_score
            nodes[depth + 1], scores[depth + 1] = left[node], left_score
        else:
            nodes[depth], scores[depth] = left[node], left_score
            nodes[depth + 1], scores[depth + 1] = right[node], right_score
        depth += 2
    return best, np.float32(math.exp(best_score))
