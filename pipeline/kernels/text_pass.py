"""The loop behind `analyse`: what it does at each byte is the price of the whole text path, so it is written for it.

A document is walked three times while it is in the cache, each time with few things to keep in registers: characters
and newlines (eight bytes a step), words, lines (eight bytes a step: lines.py). English words go eight bytes a step too:
classes and lower case come from arithmetic on a whole register. Everything else, Russian first, goes by character
through the table. What the word pass leaves (where words begin and end) serves the lines and the n-grams (ngrams.py).
"""

from typing import Any

import numpy as np

from pipeline.kernels import columns
from pipeline.kernels.bits import (
    EVERY_7F,
    EVERY_80,
    bytes_between,
    count_ones,
    count_trailing_zeros,
    load_uint64,
)
from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.hashing import START, absorb, mix64
from pipeline.kernels.lines import chars_and_newlines, count_lines
from pipeline.kernels.ngrams import count_repetition
from pipeline.kernels.unicode import (
    LETTER,
    LOWER_MASK,
    LOWER_SIZE_MASK,
    LOWER_SIZE_SHIFT,
    PUNCTUATION,
    SPACE,
    WORD,
    decode_multibyte,
    encode_four,
)

_HASH_SIGN, _DOT, _ELLIPSIS, _CURLY_BRACKET = (np.uint32(ord(mark)) for mark in "#.…{")
_SMALL_A, _SMALL_Z, _ZERO, _NINE, _UNDERSCORE = (np.uint64(ord(character)) for character in "az09_")
_FIRST_CYRILLIC, _NUM_CYRILLIC = np.uint32(0x400), np.uint32(0x130)  # the blocks Cyrillic and Cyrillic Supplement
_EVERY_20 = np.uint64(0x2020202020202020)  # eight spaces; also the bit that parts capitals from small letters


@kernel
def analyse_batch(
    data: Any,
    offsets: Any,
    table: Any,
    stop_hashes: Any,
    stop_bits: Any,
    stop_shift: Any,
    language_masks: Any,
    marker_masks: Any,
    counts: Any,
    hashes: Any,
    word_offsets: Any,
) -> None:
    """Fill `counts` (n, fields) int64, `hashes` (enough) uint64 and `word_offsets` (n + 1) int64 for every document."""
    # Scratch for whichever document is open; grown to the largest. 48 bytes a word, of memory that is really touched.
    seen = np.zeros(64, dtype=np.uint64)
    starts, ends, keys, chars, places, slots = _scratch(1024)
    next_word = 0
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        count = counts[document]
        count[columns.NUM_BYTES] = end - start
        count[columns.NUM_CHARS], count[columns.NUM_NEWLINES] = chars_and_newlines(data, start, end)
        if (end - start) // 2 + 2 > len(starts):
            starts, ends, keys, chars, places, slots = _scratch((end - start) // 2 + 2)
        first_word = next_word
        next_word = _count_words(data, start, end, table, starts, ends, count, hashes, next_word)
        word_offsets[document + 1] = next_word
        found = np.uint64(0)
        for word in range(first_word, next_word):
            slot = (hashes[word] >> stop_shift) & np.uint64(len(stop_hashes) - 1)
            found |= stop_bits[slot] * np.uint64(stop_hashes[slot] == hashes[word])
        for language in range(len(language_masks)):
            count[len(columns.COUNTED) + language] = count_ones(found & language_masks[language])
        markers = np.uint64(0)
        for marker in range(len(marker_masks)):
            markers |= np.uint64(found & marker_masks[marker] != 0) << np.uint64(marker)
        num_words = count[columns.NUM_WORDS]
        seen = count_lines(data, start, end, table, starts, ends, num_words, markers, seen, count)
        count_repetition(data, starts, ends, num_words, keys, chars, places, slots, count)


@kernel
def _scratch(num_words: Any) -> Any:
    """(starts, ends, keys, chars, places, slots) for documents of up to `num_words` words less one."""
    num_slots = 64
    while num_slots < 2 * num_words:
        num_slots *= 2
    return (
        np.empty(num_words, np.int64),
        np.empty(num_words, np.int64),
        np.empty(num_words, np.uint64),
        np.empty(num_words + 1, np.int64),
        np.empty((4, num_words), np.int32),
        np.empty(num_slots, np.int32),
    )


@kernel
def _count_words(
    data: Any, start: Any, end: Any, table: Any, starts: Any, ends: Any, count: Any, hashes: Any, next_word: Any
) -> Any:
    """Count the words of data[start:end]; leave where each begins and ends, and the hashes of the \\w runs from
    `next_word` on; return their end.
    """
    num_words = num_alphabetic = num_spaces = num_hash_signs = num_ellipses = num_curly_brackets = 0
    num_letters = num_digits = num_cyrillic = num_symbol_words = num_symbol_chars = 0
    in_word = has_letter = has_more = False  # has_more: than punctuation
    position = start
    while position < end:
        code_point, after = np.uint32(data[position]), position + 1
        if code_point >= 0x80:
            code_point, after = decode_multibyte(data, position)
        entry = table[code_point]
        if entry & SPACE:
            if in_word:
                ends[num_words - 1] = position
                if not has_more:
                    num_symbol_words += 1
                    num_symbol_chars += chars_and_newlines(data, starts[num_words - 1], position)[0]
                in_word = has_letter = has_more = False
            num_spaces += 1
            position = after
            while position + 8 <= end and load_uint64(data, position) == _EVERY_20:  # indented text
                num_spaces += 8
                position += 8
            continue
        if not in_word:
            starts[num_words] = position
            num_words += 1
            in_word = True
        if entry & WORD:
            run = position
            position, hashes[next_word], letters, digits, cyrillic = _run(data, position, end, table)
            next_word += 1
            num_letters += letters
            num_digits += digits
            num_cyrillic += cyrillic
            num_alphabetic += letters > 0 and not has_letter
            has_letter |= letters > 0
            has_more |= letters > 0 or _has_more(data, run, position, table)
        else:
            if code_point == _DOT:
                while after < end and data[after] == _DOT:
                    after += 1
                num_ellipses += (after - position) // 3
            has_more |= entry & PUNCTUATION == 0
            num_hash_signs += code_point == _HASH_SIGN
            num_ellipses += code_point == _ELLIPSIS
            num_curly_brackets += code_point == _CURLY_BRACKET
            position = after
    if in_word:
        ends[num_words - 1] = end
        if not has_more:
            num_symbol_words += 1
            num_symbol_chars += chars_and_newlines(data, starts[num_words - 1], end)[0]
    count[columns.NUM_LETTERS] = num_letters
    count[columns.NUM_CYRILLIC_LETTERS] = num_cyrillic
    count[columns.NUM_DIGITS] = num_digits
    count[columns.NUM_WORDS] = num_words
    count[columns.NUM_WORD_CHARS] = count[columns.NUM_CHARS] - num_spaces
    count[columns.NUM_SYMBOL_WORDS] = num_symbol_words
    count[columns.NUM_SYMBOL_WORD_CHARS] = num_symbol_chars
    count[columns.NUM_ALPHABETIC_WORDS] = num_alphabetic
    count[columns.NUM_HASH_SIGNS] = num_hash_signs
    count[columns.NUM_ELLIPSES] = num_ellipses
    count[columns.NUM_CURLY_BRACKETS] = num_curly_brackets
    return next_word


@kernel
def _has_more(data: Any, start: Any, end: Any, table: Any) -> Any:
    """Whether a character of data[start:end] is no punctuation: not so for "_", which is \\w all the same."""
    position = start
    while position < end:
        code_point, after = np.uint32(data[position]), position + 1
        if code_point >= 0x80:
            code_point, after = decode_multibyte(data, position)
        if not table[code_point] & PUNCTUATION:
            return True
        position = after
    return False


@inlined
def _run(data: Any, start: Any, end: Any, table: Any) -> Any:
    """(end, hash, letters, digits, Cyrillic letters) of the run of \\w characters that begins at `start`.

    The hash is hashing.hash_bytes of the run's UTF-8 bytes in lower case; `chunk` gathers eight of them at a time.
    """
    value, chunk, filled, num_bytes = START, np.uint64(0), np.intp(0), np.intp(0)
    letters = digits = cyrillic = np.intp(0)
    position = start
    while position < end:
        if filled == 0 and data[position] < 0x80 and position + 8 <= end:
            eight = load_uint64(data, position)
            seven_bit = eight & EVERY_7F
            letter_bytes = bytes_between(seven_bit | _EVERY_20, _SMALL_A, _SMALL_Z)
            digit_bytes = bytes_between(seven_bit, _ZERO, _NINE)
            underscores = bytes_between(seven_bit, _UNDERSCORE, _UNDERSCORE)
            outside = ~((letter_bytes | digit_bytes | underscores) & ~eight) & EVERY_80
            lower = eight | (letter_bytes >> np.uint64(2))
            if outside == 0:
                letters += np.intp(count_ones(letter_bytes))
                digits += np.intp(count_ones(digit_bytes))
                value = absorb(value, lower)
                num_bytes += 8
                position += 8
                continue
            bits = count_trailing_zeros(outside) & np.uint64(0x38)
            mask = (np.uint64(1) << bits) - np.uint64(1)
            letters += np.intp(count_ones(letter_bytes & mask))
            digits += np.intp(count_ones(digit_bytes & mask))
            chunk = lower & mask
            filled = np.intp(bits >> np.uint64(3))
            num_bytes += filled
            position += filled
            if data[position] < 0x80:  # inside `eight`, so before `end`
                break
        code_point, after = np.uint32(data[position]), position + 1
        if code_point >= 0x80:
            code_point, after = decode_multibyte(data, position)
        entry = table[code_point]
        if not entry & WORD:
            break
        if entry & LETTER:
            letters += 1
            cyrillic += code_point - _FIRST_CYRILLIC < _NUM_CYRILLIC
        else:
            digits += code_point != _UNDERSCORE
        position = after
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
    return position, mix64(absorb(value, chunk) ^ np.uint64(num_bytes)), letters, digits, cyrillic
