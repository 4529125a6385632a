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

from pipeline.kernels.bits import EVERY_01, count_ones, load_uint64
from pipeline.kernels.columns import FIRST_DUPLICATE_NGRAM, FIRST_TOP_NGRAM
from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.hashing import MULTIPLIER, START, absorb, mix64

TOP_NGRAMS = (2, 3, 4)
DUPLICATE_NGRAMS = (5, 6, 7, 8, 9, 10)
_LONGEST_TOP, _FIRST_DUPLICATE, _LONGEST = TOP_NGRAMS[-1], DUPLICATE_NGRAMS[0], DUPLICATE_NGRAMS[-1]


@kernel
def count_repetition(
    data: Any, starts: Any, ends: Any, num_words: Any, keys: Any, chars: Any, places: Any, slots: Any, count: Any
) -> None:
    """Fill the n-gram columns of `count` for the words data[starts[i] : ends[i]].

    Scratch, at least num_words + 1 long and overwritten: keys uint64, chars int64 (characters before each word),
    places int32 (4, num_words + 1); slots int32, a power of two above 2 * num_words.
    """
    first, repeats, candidates, seen = places[0], places[1], places[2], places[3]
    chars[0] = 0
    for word in range(num_words):
        keys[word], num_chars = _word(data, starts[word], ends[word])
        chars[word + 1] = chars[word] + num_chars
    num_candidates = num_words - 1
    for place in range(num_candidates):
        # Not symmetric, so that "a b" and "b a" differ; both hashes are well mixed already.
        keys[place] = keys[place] * MULTIPLIER ^ keys[place + 1]
        candidates[place] = place
    for n in range(2, _LONGEST + 1):
        if num_candidates > 0:
            top_place, top_repeats = _name(keys, first, repeats, candidates, num_candidates, slots)
        else:
            top_place, top_repeats = 0, 1
        if n <= _LONGEST_TOP and num_words >= n:
            # Where nothing repeats, the first n-gram is the most frequent one.
            place = top_place if top_repeats > 1 else 0
            num_chars = chars[place + n] - chars[place] + n - 1
            count[FIRST_TOP_NGRAM + 2 * (n - 2)] = top_repeats
            count[FIRST_TOP_NGRAM + 2 * (n - 2) + 1] = top_repeats * num_chars
        num_repeated = 0
        for number in range(num_candidates):
            repeated = np.uint32(candidates[np.uint64(number)])
            candidates[np.uint64(num_repeated)] = repeated
            num_repeated += repeats[np.uint32(first[repeated])] > 1
        if n == _FIRST_DUPLICATE:
            for number in range(num_repeated):
                seen[candidates[number]] = 0
        if n >= _FIRST_DUPLICATE:
            count[FIRST_DUPLICATE_NGRAM + n - _FIRST_DUPLICATE] = _duplicate_chars(
                n, chars, first, candidates, num_repeated, seen
            )
        num_candidates = 0
        for number in range(num_repeated - 1):
            place = candidates[number]
            if candidates[number + 1] == place + 1:
                keys[place] = np.uint64(first[place]) << np.uint64(32) | np.uint64(first[place + 1])
                candidates[num_candidates] = place
                num_candidates += 1
        if num_candidates == 0 and n >= _LONGEST_TOP:
            break


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
def _duplicate_chars(n: Any, chars: Any, first: Any, candidates: Any, num_repeated: Any, seen: Any) -> Any:
    """Characters in n-grams that occurred before, read from left to right: one that did is skipped whole."""
    total = np.int64(0)
    next_place = 0
    for number in range(num_repeated):
        place = candidates[number]
        if place < next_place:
            continue
        if seen[first[place]] == n:
            total += chars[place + n] - chars[place]
            next_place = place + n
        else:
            seen[first[place]] = n
    return total


@inlined
def _word(data: Any, start: Any, end: Any) -> Any:
    """(hash of the bytes data[start:end], characters in them)."""
    value = START
    continuing = np.int64(0)
    position = start
    while position + 8 <= end:
        eight = load_uint64(data, position)
        continuing += _continuing(eight)
        value = absorb(value, eight)
        position += 8
    rest = end - position
    chunk = np.uint64(0)
    if position + 8 <= len(data):
        chunk = load_uint64(data, position) & ((np.uint64(1) << np.uint64(8 * rest)) - np.uint64(1))
    else:
        for byte in range(rest):
            chunk |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
    continuing += _continuing(chunk)
    return mix64(absorb(value, chunk) ^ np.uint64(end - start)), end - start - continuing


@inlined
def _continuing(eight: Any) -> Any:
    """How many of eight bytes continue a character (10xxxxxx)."""
    return np.int64(count_ones((eight >> np.uint64(7)) & ~(eight >> np.uint64(6)) & EVERY_01))
