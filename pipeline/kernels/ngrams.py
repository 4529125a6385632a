"""Repeated runs of words: the top 2-, 3- and 4-gram and the duplicate 5- to 10-grams of Rae et al. 2021, table A1.

The published way builds every n-gram of nine lengths as a string: nine hash tables over all words. But an n-gram that
occurs twice begins and ends with an (n - 1)-gram that occurs twice. So only 2-grams are looked up for every word; each
longer length looks at the places where two neighbours of the length before it both repeated, and names an n-gram by
the pair of their first places: exact, no hashing of words again. In prose one place in five is left at 3-grams and one
in fifty at 5-grams; text that repeats itself, the worst case, costs nine cheap passes.

Places and counts are int32: a document has fewer than 2**31 words, since cleaning limits its bytes long before.
"""

from typing import Any

import numpy as np

from pipeline.kernels import columns
from pipeline.kernels.columns import FIRST_DUPLICATE_NGRAM, FIRST_TOP_NGRAM
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.hashing import MULTIPLIER, hash_word
from pipeline.kernels.scratch import num_between

TOP_NGRAMS = (2, 3, 4)
DUPLICATE_NGRAMS = (5, 6, 7, 8, 9, 10)
_LONGEST_TOP, _FIRST_DUPLICATE, _LONGEST = TOP_NGRAMS[-1], DUPLICATE_NGRAMS[0], DUPLICATE_NGRAMS[-1]


@lean
def count_repetition(scratch: Any, count: Any) -> None:
    """Fill the n-gram columns of `count` for the marked document."""
    edges, keys, first, repeats, candidates = (
        scratch.word_edges,
        scratch.keys,
        scratch.first,
        scratch.repeats,
        scratch.candidates,
    )
    num_words = count[columns.NUM_WORDS]
    num_candidates = _repeated_2grams(scratch, num_words)
    for n in range(2, _LONGEST + 1):
        top_place, top_repeats = np.intp(0), np.intp(1)
        if num_candidates > 0:
            place, top_repeats = _name(keys, first, repeats, candidates, num_candidates, scratch.slots)
            # Where nothing repeats, the first n-gram is the most frequent one.
            top_place = np.intp(place) if top_repeats > 1 else top_place
        if n <= _LONGEST_TOP and num_words >= n:
            num_chars = _num_chars(scratch, top_place, n) + n - 1
            count[FIRST_TOP_NGRAM + 2 * (n - 2)] = top_repeats
            count[FIRST_TOP_NGRAM + 2 * (n - 2) + 1] = top_repeats * num_chars
        num_repeated = np.intp(0)
        for number in range(num_candidates):
            repeated = np.uint32(candidates[np.uint64(number)])
            candidates[np.uint64(num_repeated)] = repeated
            num_repeated += repeats[np.uint32(first[repeated])] > 1
        if n == _FIRST_DUPLICATE:
            for number in range(num_repeated):
                scratch.seen[candidates[number]] = 0
        if n >= _FIRST_DUPLICATE:
            count[FIRST_DUPLICATE_NGRAM + n - _FIRST_DUPLICATE] = _duplicate_chars(n, scratch, num_repeated)
        num_candidates = np.intp(0)
        for number in range(num_repeated - 1):
            place = np.uint32(candidates[np.uint64(number)])
            keys[place] = np.uint64(first[place]) << np.uint64(32) | np.uint64(first[np.uint64(place) + np.uint64(1)])
            candidates[np.uint64(num_candidates)] = place
            num_candidates += candidates[np.uint64(number + 1)] == place + 1
        if num_candidates == 0 and n >= _LONGEST_TOP:
            break


@inlined
def _repeated_2grams(scratch: Any, num_words: Any) -> Any:
    """Leave the key of every 2-gram in `keys` and the places of those that may repeat in `candidates`; return how many.

    A counter a slot, a byte each, in place of a table of keys: no branch, and small enough for the first-level cache.
    What repeats is found for certain; of what does not, one in ten or so is taken along for sharing a slot.
    """
    edges, keys, occurrences, candidates = scratch.word_edges, scratch.keys, scratch.occurrences, scratch.candidates
    num_slots, shift = 64, np.uint64(58)
    while num_slots < 8 * num_words:
        num_slots *= 2
        shift -= np.uint64(1)
    for slot in range(num_slots):
        occurrences[slot] = 0
    before = np.uint64(0)
    for word in range(num_words):
        start, end = np.intp(edges[np.uint64(2 * word)]), np.intp(edges[np.uint64(2 * word + 1)])
        value = hash_word(scratch.text, start, end - start)
        if word:
            # Not symmetric, so that "a b" and "b a" differ; both hashes are well mixed already.
            key = before * MULTIPLIER ^ value
            keys[np.uint64(word - 1)] = key
            slot = (key * MULTIPLIER) >> shift
            occurrences[slot] = min(occurrences[slot] + 1, 2)
        before = value
    num_candidates = np.intp(0)
    for place in range(num_words - 1):
        candidates[np.uint64(num_candidates)] = place
        num_candidates += occurrences[(keys[np.uint64(place)] * MULTIPLIER) >> shift] > 1
    return num_candidates


@inlined
def _num_chars(scratch: Any, place: Any, n: Any) -> Any:
    """Characters in the n words from `place` on."""
    edges = scratch.word_edges
    return num_between(scratch.word_characters, edges[2 * place], edges[2 * (place + n) - 1])


@inlined
def _name(keys: Any, first: Any, repeats: Any, candidates: Any, num_candidates: Any, slots: Any) -> Any:
    """(place, repeats) of the commonest n-gram among the candidates, the first of several; fill `first` (the place
    where the n-gram of a place comes first) and `repeats` (how often, at that first place).
    """
    num_slots, shift = 64, np.uint64(58)
    while num_slots < 2 * num_candidates:
        num_slots *= 2
        shift -= np.uint64(1)
    slots[:num_slots] = 0
    mask = np.uint64(num_slots - 1)
    top_place, top_repeats = candidates[0], np.int32(1)
    # Indices are unsigned: for a signed one numba asks each time whether it counts from the end.
    for number in range(num_candidates):
        place = np.uint32(candidates[np.uint64(number)])
        key = keys[place]
        slot = (key * MULTIPLIER) >> shift
        while True:
            taken = np.uint32(slots[slot])
            if taken == 0:
                slots[slot] = place + 1  # 0 marks a free slot
                first[place], repeats[place] = place, 1
                break
            earlier = np.uint32(taken - np.uint32(1))
            if keys[earlier] == key:
                first[place] = earlier
                repeats[earlier] += 1
                if repeats[earlier] > top_repeats or (repeats[earlier] == top_repeats and earlier < top_place):
                    top_place, top_repeats = earlier, repeats[earlier]
                break
            slot = (slot + np.uint64(1)) & mask
    return top_place, top_repeats


@inlined
def _duplicate_chars(n: Any, scratch: Any, num_repeated: Any) -> Any:
    """Characters in n-grams that occurred before, read from left to right: one that did is skipped whole."""
    candidates, first, seen = scratch.candidates, scratch.first, scratch.seen
    total = np.intp(0)
    next_place = np.intp(0)
    for number in range(num_repeated):
        place = np.intp(candidates[number])
        if place < next_place:
            continue
        if seen[first[place]] == n:
            total += _num_chars(scratch, place, n)
            next_place = place + n
        else:
            seen[first[place]] = n
    return total
