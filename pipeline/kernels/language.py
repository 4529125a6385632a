"""The language of each text: fastText's arithmetic over the bytes of a batch, with the labels of its own binding.

A text's vector is the mean of a vector a word and one a character n-gram of each word, of 2 to 4 characters: 17 looked
up for a word of six letters, which is what caps fastText at 6-8 MB a core-second. But the sum over one word depends on
nothing around it, and words recur: a table remembers the sums of the words it saw last. What a sum is never depends on
the table, so neither does a label on the batch. The tree of labels is walked best branch first, as fastText does.
"""

import math
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import aligned, text_buffers
from pipeline.kernels.bits import add_rows, bits_between, count_ones, load_uint64
from pipeline.kernels.blocks import copy_document, emit_places
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.hashing import hash_word
from pipeline.kernels.language_model import (
    DIMENSION,
    MAX_NGRAM,
    MIN_NGRAM,
    NUM_BUCKETS,
    language_labels,
    language_model,
)
from pipeline.kernels.scratch import AFTER, FIRST

NUM_REMEMBERED = 1 << 18
"""Words whose sums each thread remembers, 20 MB. A fourth of that was slower by a third: to sum a word anew costs more
than to fetch its sum from memory.
"""
NUM_AT_ONCE = 256
"""Words of a document, or n-grams of a word, that are added up at once."""
MIN_LETTERS = 20
"""Below this many letters a label says nothing: it calls "OK" Polish, and every number English."""
_FNV_START, _FNV_PRIME = np.uint32(2_166_136_261), np.uint32(16_777_619)
_BEGIN, _END = ord("<"), ord(">")
_EPSILON = 1e-5  # fastText adds it inside each logarithm
_UNLIKELY = -1e30
_1, _63 = np.uint64(1), np.uint64(63)
_BELOW = np.uint64(NUM_REMEMBERED - 1)
_PAIR, _IS_PAIR = np.uint64(0xC0E0C0E0C0E0C0E0), np.uint64(0x80C080C080C080C0)
_FOUR_80 = np.uint64(0x80808080)
_TAKEN = _1 << _63  # set in every word's hash, so that none is 0
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
    model = language_model()
    scratch = _Scratch(
        text=np.empty(FIRST + longest + AFTER, np.uint8),
        edges=np.empty(longest + 10, np.int32),
        word=np.empty(longest + 2 + 8, np.uint8),
        rows=np.empty(NUM_AT_ONCE, np.int32),
        slots=np.empty(NUM_AT_ONCE, np.int32),
        vector=np.empty((1, DIMENSION), np.float32),
        nodes=np.empty(len(model.left), np.int32),
        scores=np.empty(len(model.left), np.float64),
    )
    _detect_batch(data, offsets, model, *_memory(), scratch, label, score)
    return Languages(label=label, score=score)


class _Scratch(NamedTuple):
    """Room for the largest document of a batch."""

    text: np.ndarray  # uint8, as scratch.py has it
    edges: np.ndarray  # int32: where each word begins and ends, two numbers each
    word: np.ndarray  # uint8: a word between < and >, and eight bytes that are read with it
    rows: np.ndarray  # int32 (NUM_AT_ONCE,): of n-grams
    slots: np.ndarray  # int32 (NUM_AT_ONCE,): of words
    vector: np.ndarray  # float32 (1, DIMENSION): of the document
    nodes: np.ndarray  # of the tree, still to be looked at: int32, and their logarithms of probability: float64
    scores: np.ndarray


def _memory() -> tuple[np.ndarray, np.ndarray]:
    """This thread's words and their sums.

    Words are hashes whose lowest bits, which say the place, make room for how many rows are in the sum; 0 is free.
    """
    if not hasattr(_remembered, "arrays"):
        _remembered.arrays = (
            np.zeros(NUM_REMEMBERED, np.uint64),
            aligned(np.zeros((NUM_REMEMBERED, DIMENSION), np.float32)),
        )
    arrays: tuple[np.ndarray, np.ndarray] = _remembered.arrays
    return arrays


@lean
def _detect_batch(
    data: Any, offsets: Any, model: Any, known: Any, sums: Any, scratch: Any, label: Any, score: Any
) -> None:
    """Words are found, hashed and looked up without a branch that depends on the text; their sums are added
    NUM_AT_ONCE at a time, so that the memory is asked for many of them at once.
    """
    text, edges, slots, vector = scratch.text, scratch.edges, scratch.slots, scratch.vector
    for document in range(len(offsets) - 1):
        for i in range(DIMENSION):
            vector[0, i] = model.rows[model.end_of_line, i]
        num_rows, num_slots = np.intp(1), np.intp(0)
        num_words = _mark_words(data, offsets[document], offsets[document + 1], text, edges)
        for number in range(num_words):
            start, end = np.intp(edges[np.uint64(2 * number)]), np.intp(edges[np.uint64(2 * number + 1)])
            value = hash_word(text, start, end - start) | _TAKEN
            slot = value & _BELOW
            if known[slot] ^ value > _BELOW:
                # Its place may be that of a word whose sum is still to be added.
                add_rows(vector, 0, sums, slots, num_slots)
                num_slots = np.intp(0)
                of_word = _sum_word(text, start, end, model, scratch, sums, slot)
                # A word of so many n-grams that there is no room for their number is not remembered.
                known[slot] = (value & ~_BELOW) | np.uint64(of_word) if of_word <= _BELOW else np.uint64(0)
                num_rows += of_word
            else:
                num_rows += np.intp(known[slot] & _BELOW)
            slots[np.uint64(num_slots)] = np.int32(slot)
            num_slots += 1
            if num_slots == NUM_AT_ONCE:
                add_rows(vector, 0, sums, slots, num_slots)
                num_slots = np.intp(0)
        add_rows(vector, 0, sums, slots, num_slots)
        for i in range(DIMENSION):
            vector[0, i] /= np.float32(num_rows)
        label[document], score[document] = _best(
            vector, model.output, model.left, model.right, scratch.nodes, scratch.scores
        )


@inlined
def _mark_words(data: Any, start: Any, end: Any, text: Any, edges: Any) -> Any:
    """Copy data[start:end] to `text` and leave the edges of its words; return how many words there are.

    What fastText takes for white space: ASCII's, and NUL. A no-break space is part of a word to it.
    """
    copy_document(data, start, end - start, text)
    num_edges = np.intp(0)
    was_filled = np.uint64(0)
    for block in range(FIRST >> 6, ((FIRST + end - start) >> 6) + 1):
        first = block << 6
        spaces = bits_between(text, first, 0x09, 0x0D) | bits_between(text, first, 0x20, 0x20)
        filled = ~(spaces | bits_between(text, first, 0x00, 0x00))
        num_edges = emit_places(edges, num_edges, filled ^ ((filled << _1) | was_filled), first, 8)
        was_filled = filled >> _63
    return num_edges >> 1


@inlined
def _fnv(value: Any, byte: Any) -> Any:
    """One step of language_model.fnv1a."""
    return np.uint32((value ^ np.uint32(np.int32(np.int8(byte)))) * _FNV_PRIME)


@lean
def _find(text: Any, start: Any, end: Any, model: Any) -> Any:
    """The dictionary's number of the word text[start:end]; -1 if it is none of them."""
    word_slots, word_bytes, word_offsets = model.word_slots, model.word_bytes, model.word_offsets
    value = _FNV_START
    for position in range(start, end):
        value = _fnv(value, text[position])
    slot = value % np.uint32(len(word_slots))
    while word_slots[slot]:
        word = word_slots[slot] - 1
        if model.word_hashes[word] == value and word_offsets[word + 1] - word_offsets[word] == end - start:
            same = True
            for i in range(end - start):
                same &= word_bytes[word_offsets[word] + i] == text[start + i]
            if same:
                return np.int64(word)
        slot = (slot + np.uint32(1)) % np.uint32(len(word_slots))
    return np.int64(-1)


@lean
def _sum_word(text: Any, start: Any, end: Any, model: Any, scratch: Any, sums: Any, slot: Any) -> Any:
    """Leave the sum of the rows of a word and of its n-grams in sums[slot]; return how many rows they are.

    First which rows, without a branch on whether an n-gram was pruned, then their sum in one register.
    """
    marked, found, rows = scratch.word, scratch.rows, model.rows
    length = end - start + 2
    marked[0], marked[length - 1] = _BEGIN, _END
    for place in range(start, end):
        marked[place - start + 1] = text[place]
    word = _find(text, start, end, model)
    for i in range(DIMENSION):
        sums[slot, i] = rows[word, i] if word >= 0 else np.float32(0)
    added = np.intp(word >= 0)
    num_found = np.intp(0)
    for first in range(length):
        if marked[first] & 0xC0 == 0x80:
            continue
        eight = load_uint64(marked, first)
        if first + 4 <= length and eight & _FOUR_80 == 0:  # four letters of ASCII
            two = _fnv(_fnv(_FNV_START, marked[first]), marked[first + 1])
            three = _fnv(two, marked[first + 2])
            num_found = _add_row(model, two, found, num_found)
            num_found = _add_row(model, three, found, num_found)
            num_found = _add_row(model, _fnv(three, marked[first + 3]), found, num_found)
        elif first + 8 <= length and eight & _PAIR == _IS_PAIR:  # four of two bytes: Cyrillic
            two = _fnv(_fnv(_FNV_START, marked[first]), marked[first + 1])
            two = _fnv(_fnv(two, marked[first + 2]), marked[first + 3])
            three = _fnv(_fnv(two, marked[first + 4]), marked[first + 5])
            num_found = _add_row(model, two, found, num_found)
            num_found = _add_row(model, three, found, num_found)
            four = _fnv(_fnv(three, marked[first + 6]), marked[first + 7])
            num_found = _add_row(model, four, found, num_found)
        else:
            num_found = _add_ngrams(model, marked, first, length, found, num_found)
        if num_found >= NUM_AT_ONCE - MAX_NGRAM or first == length - 1:
            add_rows(sums, np.intp(slot), model.rows, found, num_found)
            added += num_found
            num_found = np.intp(0)
    return added


@inlined
def _add_ngrams(model: Any, marked: Any, first: Any, length: Any, found: Any, num_found: Any) -> Any:
    """The n-grams that begin at `first`, of characters of any size."""
    value = _FNV_START
    place, num_chars = first, 1
    while place < length and num_chars <= MAX_NGRAM:
        value = _fnv(value, marked[place])
        place += 1
        while place < length and marked[place] & 0xC0 == 0x80:
            value = _fnv(value, marked[place])
            place += 1
        if num_chars >= MIN_NGRAM:
            num_found = _add_row(model, value, found, num_found)
        num_chars += 1
    return num_found


@inlined
def _add_row(model: Any, value: Any, found: Any, num_found: Any) -> Any:
    """Append the row of the n-gram with hash `value` to `found`, if it was kept; return how many there are then."""
    bucket = np.uint64(value % np.uint32(NUM_BUCKETS))
    block, bit = bucket >> np.uint64(6), bucket & _63
    bits = model.kept[block, 0]
    found[np.uint64(num_found)] = np.int32(model.kept[block, 1] + np.uint64(count_ones(bits & ((_1 << bit) - _1))))
    return num_found + np.intp((bits >> bit) & _1)


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
