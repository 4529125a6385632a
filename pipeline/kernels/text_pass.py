"""The loop behind `analyse`: what it does at each byte is the price of the whole text path, so it is written for it.

A document is walked three times while it is in the cache, each time with few things to keep in registers: characters
and newlines (eight bytes a step), lines (eight bytes a step), words. English words go eight bytes a step too: classes
and lower case come from arithmetic on a whole register. Everything else, Russian first, goes by character through the
table.
"""

from typing import Any

import numpy as np

from pipeline.kernels.bits import (
    EVERY_01,
    EVERY_7F,
    EVERY_80,
    bytes_between,
    bytes_equal,
    count_ones,
    count_trailing_zeros,
    load_uint64,
)
from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.hashing import START, absorb, mix64
from pipeline.kernels.unicode import (
    LETTER,
    LOWER_MASK,
    LOWER_SIZE_MASK,
    LOWER_SIZE_SHIFT,
    SPACE,
    WORD,
    decode_multibyte,
    encode_four,
)

# Columns of `counts`, named as the fields of Statistics; the stop words of each language follow the last.
COUNTED = (
    "num_bytes",
    "num_chars",
    "num_words",
    "num_word_chars",
    "num_alphabetic_words",
    "num_hash_signs",
    "num_ellipses",
    "num_lines",
    "num_bullet_lines",
    "num_ellipsis_lines",
    "num_nonempty_lines",
    "num_duplicate_lines",
    "num_duplicate_line_chars",
)
_NUM_BYTES, _NUM_CHARS, _NUM_WORDS, _NUM_WORD_CHARS, _NUM_ALPHABETIC_WORDS = range(5)
_NUM_HASH_SIGNS, _NUM_ELLIPSES, _NUM_LINES, _NUM_BULLET_LINES, _NUM_ELLIPSIS_LINES = range(5, 10)
_NUM_NONEMPTY_LINES, _NUM_DUPLICATE_LINES, _NUM_DUPLICATE_LINE_CHARS = range(10, 13)
_FIRST_LANGUAGE = len(COUNTED)

_HASH_SIGN, _DOT, _DASH, _ELLIPSIS, _BULLET = (np.uint32(ord(mark)) for mark in "#.-…•")
_SMALL_A, _SMALL_Z, _ZERO, _NINE, _UNDERSCORE, _NEWLINE = (np.uint64(ord(character)) for character in "az09_\n")
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
    counts: Any,
    hashes: Any,
    word_offsets: Any,
) -> None:
    """Fill `counts` (n, fields) int64, `hashes` (enough) uint64 and `word_offsets` (n + 1) int64 for every document."""
    seen = np.zeros(64, dtype=np.uint64)  # the line hashes of whichever document is open; grown to the largest
    next_word = 0
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        count = counts[document]
        count[_NUM_BYTES] = end - start
        count[_NUM_CHARS], num_newlines = _chars_and_newlines(data, start, end)
        seen, num_slots = _cleared(seen, num_newlines + 1)
        _count_lines(data, start, end, table, seen, num_slots, count)
        first_word = next_word
        next_word = _count_words(data, start, end, table, count, hashes, next_word)
        word_offsets[document + 1] = next_word
        found = np.uint64(0)
        for word in range(first_word, next_word):
            slot = (hashes[word] >> stop_shift) & np.uint64(len(stop_hashes) - 1)
            found |= stop_bits[slot] * np.uint64(stop_hashes[slot] == hashes[word])
        for language in range(len(language_masks)):
            count[_FIRST_LANGUAGE + language] = count_ones(found & language_masks[language])


@kernel
def _count_words(data: Any, start: Any, end: Any, table: Any, count: Any, hashes: Any, next_word: Any) -> Any:
    """Count the words of data[start:end]; leave the hashes of its \\w runs from `next_word` on; return their end."""
    num_words = num_alphabetic = num_spaces = num_hash_signs = num_ellipses = 0
    in_word = has_letter = False
    position = start
    while position < end:
        code_point, after = np.uint32(data[position]), position + 1
        if code_point >= 0x80:
            code_point, after = decode_multibyte(data, position)
        entry = table[code_point]
        if entry & WORD:
            position, hashes[next_word], letters = _run(data, position, end, table)
            next_word += 1
            num_words += not in_word
            num_alphabetic += letters and not has_letter
            in_word = True
            has_letter |= letters
        elif entry & SPACE:
            in_word = has_letter = False
            num_spaces += 1
            position = after
            while position + 8 <= end and load_uint64(data, position) == _EVERY_20:  # indented text
                num_spaces += 8
                position += 8
        else:
            num_words += not in_word
            in_word = True
            if code_point == _DOT:
                while after < end and data[after] == _DOT:
                    after += 1
                num_ellipses += (after - position) // 3
            num_hash_signs += code_point == _HASH_SIGN
            num_ellipses += code_point == _ELLIPSIS
            position = after
    count[_NUM_WORDS] = num_words
    count[_NUM_WORD_CHARS] = count[_NUM_CHARS] - num_spaces
    count[_NUM_ALPHABETIC_WORDS] = num_alphabetic
    count[_NUM_HASH_SIGNS] = num_hash_signs
    count[_NUM_ELLIPSES] = num_ellipses
    return next_word


@inlined
def _run(data: Any, start: Any, end: Any, table: Any) -> Any:
    """(end, hash, whether it has a letter) of the run of \\w characters that begins at `start`.

    The hash is hashing.hash_bytes of the run's UTF-8 bytes in lower case; `chunk` gathers eight of them at a time.
    """
    value, chunk, filled, num_bytes = START, np.uint64(0), np.intp(0), np.intp(0)
    letters = False
    position = start
    while position < end:
        if filled == 0 and data[position] < 0x80 and position + 8 <= end:
            eight = load_uint64(data, position)
            seven_bit = eight & EVERY_7F
            letter_bytes = bytes_between(seven_bit | _EVERY_20, _SMALL_A, _SMALL_Z)
            other_bytes = bytes_between(seven_bit, _ZERO, _NINE) | bytes_between(seven_bit, _UNDERSCORE, _UNDERSCORE)
            outside = ~((letter_bytes | other_bytes) & ~eight) & EVERY_80
            lower = eight | (letter_bytes >> np.uint64(2))
            if outside == 0:
                letters |= letter_bytes != 0
                value = absorb(value, lower)
                num_bytes += 8
                position += 8
                continue
            bits = count_trailing_zeros(outside) & np.uint64(0x38)
            mask = (np.uint64(1) << bits) - np.uint64(1)
            letters |= letter_bytes & mask != 0
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
        letters |= entry & LETTER != 0
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
    return position, mix64(absorb(value, chunk) ^ np.uint64(num_bytes)), letters


@kernel
def _count_lines(data: Any, start: Any, end: Any, table: Any, seen: Any, num_slots: Any, count: Any) -> None:
    """Count the lines of data[start:end]."""
    num_lines = num_nonempty = num_duplicate = num_duplicate_chars = num_bullet = num_ellipsis = 0
    line = start
    while line < end:
        line_end, value = _line(data, line, end)
        num_lines += 1
        if line_end > line:
            num_nonempty += 1
            if not _insert(seen, num_slots, value):
                num_duplicate += 1
                num_duplicate_chars += _chars_and_newlines(data, line, line_end)[0]
            first, last, dots = _ends(data, line, line_end, table)
            num_bullet += first in (_BULLET, _DASH)
            num_ellipsis += dots >= 3 or last == _ELLIPSIS
        line = line_end + 1
    count[_NUM_LINES], count[_NUM_NONEMPTY_LINES] = num_lines, num_nonempty
    count[_NUM_DUPLICATE_LINES], count[_NUM_DUPLICATE_LINE_CHARS] = num_duplicate, num_duplicate_chars
    count[_NUM_BULLET_LINES], count[_NUM_ELLIPSIS_LINES] = num_bullet, num_ellipsis


@inlined
def _line(data: Any, start: Any, end: Any) -> Any:
    """(where its newline is, or `end`; a hash of its bytes) for the line that begins at `start`."""
    value = START
    position = start
    while position + 8 <= end:
        eight = load_uint64(data, position)
        newlines = bytes_equal(eight, _NEWLINE)
        if newlines:
            bits = count_trailing_zeros(newlines) & np.uint64(0x38)
            position += np.int64(bits >> np.uint64(3))
            rest = eight & ((np.uint64(1) << bits) - np.uint64(1))
            return position, mix64(absorb(value, rest) ^ np.uint64(position - start))
        value = absorb(value, eight)
        position += 8
    rest = np.uint64(0)
    first = position
    while position < end and data[position] != _NEWLINE:
        rest |= np.uint64(data[position]) << np.uint64(8 * (position - first))
        position += 1
    return position, mix64(absorb(value, rest) ^ np.uint64(position - start))


@inlined
def _ends(data: Any, start: Any, end: Any, table: Any) -> Any:
    """(first character, last character, dots in a row at the end) of data[start:end], white space at both ends aside.

    Nothing but white space gives three zeros.
    """
    first = np.uint32(0)
    while start < end:
        first, after = np.uint32(data[start]), start + 1
        if first >= 0x80:
            first, after = decode_multibyte(data, start)
        if not table[first] & SPACE:
            break
        start = after
    if start == end:
        return np.uint32(0), np.uint32(0), 0
    last = np.uint32(0)
    while end > start:
        last_start = end - 1
        while data[last_start] & 0xC0 == 0x80:
            last_start -= 1
        last = np.uint32(data[last_start])
        if last >= 0x80:
            last, _ = decode_multibyte(data, last_start)
        if not table[last] & SPACE:
            break
        end = last_start
    dots = 0
    while dots < end - start and data[end - 1 - dots] == _DOT:
        dots += 1
    return first, last, dots


@kernel
def _chars_and_newlines(data: Any, start: Any, end: Any) -> Any:
    """(characters, newlines) in data[start:end]: a character is a byte that does not continue one (10xxxxxx)."""
    continuing = newlines = np.intp(0)
    position = start
    while position + 8 <= end:
        eight = load_uint64(data, position)
        continuing += np.intp(count_ones((eight >> np.uint64(7)) & ~(eight >> np.uint64(6)) & EVERY_01))
        newlines += np.intp(count_ones(bytes_equal(eight, _NEWLINE)))
        position += 8
    while position < end:
        continuing += data[position] & 0xC0 == 0x80
        newlines += data[position] == _NEWLINE
        position += 1
    return end - start - continuing, newlines


@kernel
def _cleared(table: Any, num_entries: Any) -> Any:
    """(a hash table whose first `num_slots` slots are free, num_slots): a power of two, at most half full."""
    num_slots = 64
    while num_slots < 2 * num_entries:
        num_slots *= 2
    if num_slots > len(table):
        return np.zeros(num_slots, dtype=np.uint64), num_slots
    table[:num_slots] = 0
    return table, num_slots


@inlined
def _insert(table: Any, num_slots: Any, value: Any) -> Any:
    """Whether `value` was not yet in the first `num_slots` slots; it is now. 0 marks a free slot, so 0 is kept as 1."""
    value = max(value, np.uint64(1))
    mask = np.uint64(num_slots - 1)
    slot = value & mask
    while table[slot] != 0:
        if table[slot] == value:
            return False
        slot = (slot + np.uint64(1)) & mask
    table[slot] = value
    return True
