"""Repeated runs of words: the top 2-, 3- and 4-gram and the duplicate 5- to 10-grams of Rae et al. 2021, table A1.

The published way builds every n-gram of nine lengths as a string: nine hash tables over all words. But an n-gram that
occurs twice begins and ends with an (n - 1)-gram that occurs twice. So only the 2-grams of all words are counted, in a
table of bytes that cannot miss a repeated one. What is left (a third of the places of the development corpus, a fifth
at 3-grams, a tenth at 5-grams) is named by the place where it comes first: an n-gram by the names of the two (n - 1)-
grams in it, mostly without looking anything up. Exact, and no word is hashed again.

Places and counts are int32: scratch.py holds documents of fewer than 2**31 bytes.
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
    candidates, repeats, longest = scratch.candidates, scratch.repeats, scratch.longest
    shorter, first = scratch.names, scratch.first  # the names of (n - 1)-grams and of n-grams
    num_words = count[columns.NUM_WORDS]
    num_candidates = _repeated_2grams(scratch, num_words)
    for n in range(2, _LONGEST + 1):
        if n == 2:
            _name_2grams(scratch.keys, first, repeats, candidates, num_candidates, scratch.slots)
        else:
            _name_longer(n, scratch.keys, shorter, first, repeats, candidates, num_candidates, longest, scratch.slots)
        if n <= _LONGEST_TOP:
            top_place, top_repeats = _top(first, repeats, candidates, num_candidates)
            if num_words >= n:
                num_chars = _num_chars(scratch, np.intp(top_place), n) + n - 1
                count[FIRST_TOP_NGRAM + 2 * (n - 2)] = top_repeats
                count[FIRST_TOP_NGRAM + 2 * (n - 2) + 1] = top_repeats * num_chars
        else:
            count[FIRST_DUPLICATE_NGRAM + n - _FIRST_DUPLICATE] = _duplicate_chars(n, scratch, first, num_candidates)
        # An (n + 1)-gram may repeat where its first n words and its last n words do.
        num_longer = np.intp(0)
        last_repeated = np.uint32(0xFFFFFFFF)
        for number in range(num_candidates):
            place = np.uint32(candidates[np.uint64(number)])
            longest[place] = n
            is_repeated = repeats[np.uint32(first[place])] > 1
            candidates[np.uint64(num_longer)] = place - np.uint32(1)
            num_longer += is_repeated & (np.uint32(last_repeated + np.uint32(1)) == place) & (place > 0)
            last_repeated = place if is_repeated else last_repeated
        num_candidates = num_longer
        if num_candidates == 0 and n >= _LONGEST_TOP:
            break
        shorter, first = first, shorter


@inlined
def _top(first: Any, repeats: Any, candidates: Any, num_candidates: Any) -> Any:
    """(place, repeats) of the commonest n-gram, the first of several; where nothing repeats, the first of all."""
    place, most = np.uint32(0), np.int32(1)
    for number in range(num_candidates):
        name = np.uint32(first[np.uint32(candidates[np.uint64(number)])])
        if repeats[name] > most:
            place, most = name, repeats[name]
    return place, most


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
    for word in range(num_words):
        scratch.longest[word] = 0
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
def _name_2grams(keys: Any, first: Any, repeats: Any, candidates: Any, num_candidates: Any, slots: Any) -> None:
    """Fill `first`, the place where the 2-gram of a place comes first: its name; and `repeats`, how often, by name."""
    mask, shift = _cleared(slots, num_candidates)
    # Indices are unsigned: for a signed one numba asks each time whether it counts from the end.
    for number in range(num_candidates):
        place = np.uint32(candidates[np.uint64(number)])
        _look_up(place, keys, first, repeats, slots, mask, shift)


@inlined
def _name_longer(
    n: Any,
    keys: Any,
    shorter: Any,
    first: Any,
    repeats: Any,
    candidates: Any,
    num_candidates: Any,
    longest: Any,
    slots: Any,
) -> None:
    """The same for n-grams, from `shorter`, the names of (n - 1)-grams, valid where `longest` is at least n - 1.

    Where the (n - 1)-gram of a place came first, its n-gram is almost always the same as here, or there is none before
    at all. Only what goes on in another way than there is looked up in the table.
    """
    mask, shift = _cleared(slots, num_candidates)
    for number in range(num_candidates):
        place = np.uint32(candidates[np.uint64(number)])
        earlier = np.uint32(shorter[place])
        if earlier == place:
            first[place], repeats[place] = place, 1
            continue
        following = np.uint32(shorter[place + np.uint32(1)])
        after = earlier + np.uint32(1)
        if longest[after] >= n - 1 and np.uint32(shorter[after]) == following:
            first[place] = earlier
            repeats[earlier] += 1
        else:
            keys[place] = np.uint64(earlier) << np.uint64(32) | np.uint64(following)
            _look_up(place, keys, first, repeats, slots, mask, shift)


@inlined
def _look_up(place: Any, keys: Any, first: Any, repeats: Any, slots: Any, mask: Any, shift: Any) -> None:
    key = keys[place]
    slot = (key * MULTIPLIER) >> shift
    while True:
        taken = np.uint32(slots[slot])
        if taken == 0:
            slots[slot] = place + np.uint32(1)  # 0 marks a free slot
            first[place], repeats[place] = place, 1
            break
        earlier = taken - np.uint32(1)
        if keys[np.uint32(earlier)] == key:
            first[place] = earlier
            repeats[np.uint32(earlier)] += 1
            break
        slot = (slot + np.uint64(1)) & mask


@inlined
def _cleared(slots: Any, num_entries: Any) -> Any:
    """(mask, shift) of a table of free slots, at most half full: slot = key >> shift, the next one & mask."""
    num_slots, shift = 64, np.uint64(58)
    while num_slots < 2 * num_entries:
        num_slots *= 2
        shift -= np.uint64(1)
    for slot in range(num_slots):
        slots[slot] = 0
    return np.uint64(num_slots - 1), shift


@inlined
def _duplicate_chars(n: Any, scratch: Any, first: Any, num_candidates: Any) -> Any:
    """Characters in n-grams that occurred before, read from left to right: one that did is skipped whole."""
    candidates, seen = scratch.candidates, scratch.seen
    if n == _FIRST_DUPLICATE:
        for number in range(num_candidates):
            seen[np.uint32(candidates[np.uint64(number)])] = 0
    total = np.intp(0)
    next_place = np.intp(0)
    for number in range(num_candidates):
        place = np.intp(candidates[np.uint64(number)])
        if place < next_place:
            continue
        name = np.uint32(first[np.uint64(place)])
        if seen[name] == n:
            total += _num_chars(scratch, place, n)
            next_place = place + n
        else:
            seen[name] = n
    return total
