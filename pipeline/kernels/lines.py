"""Lines and paragraphs: duplicates, bullets, ends of sentences, and the lines that the C4 rules would keep.

A line ends at "\\n". It is walked eight bytes a step for its hash and its end; its words are known from the word pass,
so what it begins and ends with, white space aside, needs no search.
"""

from typing import Any

import numpy as np

from pipeline.kernels import columns
from pipeline.kernels.bits import EVERY_01, bytes_equal, count_ones, count_trailing_zeros, load_uint64
from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.hashing import START, absorb, hash_bytes, mix64
from pipeline.kernels.prose import HAS_LOREM_IPSUM, HAS_SKIPPED, ends_prose, has_any, num_sentences
from pipeline.kernels.unicode import TERMINAL, decode_multibyte

SHORT_LINE_CHARS = 30
"""FineWeb's limit of a short line (short_line_length of datatrove's filter), included in short."""
MIN_PROSE_WORDS, MAX_PROSE_WORD_CHARS = 3, 1000
"""C4's limits of a line worth keeping: Raffel et al. 2020, section 2.2, and its code."""

_NEWLINE = np.uint64(ord("\n"))
_DOT, _DASH, _ELLIPSIS, _BULLET = (np.uint32(ord(mark)) for mark in ".-…•")
_CURLY_BRACKET = ord("{")
# A paragraph of one line must not be taken for the line.
_PARAGRAPH = np.uint64(0xA5A5A5A5A5A5A5A5)


@kernel
def count_lines(
    data: Any,
    start: Any,
    end: Any,
    table: Any,
    starts: Any,
    ends: Any,
    num_words: Any,
    found: Any,
    seen: Any,
    count: Any,
) -> Any:
    """Fill the columns of lines and paragraphs for data[start:end], whose words are data[starts[i] : ends[i]].

    `found`: prose.HAS_... bits of phrases that may occur. `seen`: scratch uint64, returned, grown where it was short.
    """
    num_newlines = count[columns.NUM_NEWLINES]
    is_ascii = count[columns.NUM_CHARS] == count[columns.NUM_BYTES]
    # Lines and paragraphs share the table: between two paragraphs stands an empty line, which is not in it.
    seen, num_slots = _cleared(seen, num_newlines + 2)
    text_start = starts[0] if num_words else end
    text_end = ends[num_words - 1] if num_words else start
    paragraph, paragraph_start, paragraph_end = START, np.int64(-1), np.int64(-1)
    word = 0
    line = start
    while line < end:
        line_end, value = _line(data, line, end)
        count[columns.NUM_LINES] += 1
        if line_end > line:
            count[columns.NUM_NONEMPTY_LINES] += 1
            first_word = word
            too_long = False
            while word < num_words and starts[word] < line_end:
                if ends[word] - starts[word] > MAX_PROSE_WORD_CHARS:
                    too_long |= _num_chars(data, starts[word], ends[word]) > MAX_PROSE_WORD_CHARS
                word += 1
            if not _insert(seen, num_slots, value):
                num_chars = _num_chars(data, line, line_end)
                count[columns.NUM_DUPLICATE_LINES] += 1
                count[columns.NUM_DUPLICATE_LINE_CHARS] += num_chars
                count[columns.NUM_DUPLICATE_FILLED_LINE_CHARS] += num_chars * (word > first_word)
            if word > first_word:
                _filled_line(data, line, line_end, table, starts[first_word], ends[word - 1], is_ascii, count)
                if word - first_word >= MIN_PROSE_WORDS and not too_long:
                    _prose_line(data, starts, ends, first_word, word, found, count)
            # White space at both ends of the text is no part of its first and last paragraph.
            if line_end > text_start and line < text_end:
                if line < text_start or line_end > text_end:
                    value = hash_bytes(data, max(line, text_start), min(line_end, text_end))
                if paragraph_start < 0:
                    paragraph_start, paragraph = max(line, text_start), START
                paragraph = absorb(paragraph, value) * np.uint64(3)
                paragraph_end = min(line_end, text_end)
        elif paragraph_start >= 0:
            _paragraph(data, paragraph_start, paragraph_end, paragraph, seen, num_slots, count)
            paragraph_start = np.int64(-1)
        line = line_end + 1
    if paragraph_start >= 0:
        _paragraph(data, paragraph_start, paragraph_end, paragraph, seen, num_slots, count)
    return seen


@inlined
def _filled_line(
    data: Any, line: Any, line_end: Any, table: Any, text_start: Any, text_end: Any, is_ascii: Any, count: Any
) -> None:
    """Count a line with words, the first of which begins at `text_start`, the last of which ends at `text_end`."""
    count[columns.NUM_FILLED_LINES] += 1
    first = np.uint32(data[text_start])
    if first >= 0x80:
        first, _ = decode_multibyte(data, text_start)
    count[columns.NUM_BULLET_LINES] += first in (_DASH, _BULLET)
    last = last_character(data, text_start, text_end)
    dots = last == _DOT and text_end - text_start >= 3 and data[text_end - 2] == _DOT and data[text_end - 3] == _DOT
    count[columns.NUM_ELLIPSIS_LINES] += dots or last == _ELLIPSIS
    # As FineWeb counts it: a mark with white space after it does not end the line.
    count[columns.NUM_TERMINAL_LINES] += line_end == text_end and table[last] & TERMINAL != 0
    num_bytes = line_end - line
    is_short = num_bytes <= SHORT_LINE_CHARS
    if not is_short and not is_ascii and num_bytes <= 4 * SHORT_LINE_CHARS:
        num_chars = 0
        for position in range(line, line_end):
            num_chars += data[position] & 0xC0 != 0x80
        is_short = num_chars <= SHORT_LINE_CHARS
    count[columns.NUM_SHORT_LINES] += is_short


@inlined
def _prose_line(data: Any, starts: Any, ends: Any, first_word: Any, next_word: Any, found: Any, count: Any) -> None:
    """Count a line of MIN_PROSE_WORDS or more, in the order of C4's rules."""
    text_start, text_end = starts[first_word], ends[next_word - 1]
    if not ends_prose(data, text_start, text_end):
        return
    if found & HAS_LOREM_IPSUM and has_any(data, text_start, text_end, HAS_LOREM_IPSUM):
        count[columns.NUM_LOREM_IPSUM_LINES] += 1
    if found & HAS_SKIPPED and has_any(data, text_start, text_end, found & HAS_SKIPPED):
        return
    count[columns.NUM_PROSE_LINES] += 1
    count[columns.NUM_PROSE_SENTENCES] += num_sentences(data, starts, ends, first_word, next_word)
    if count[columns.NUM_CURLY_BRACKETS]:
        for position in range(text_start, text_end):
            if data[position] == _CURLY_BRACKET:
                count[columns.NUM_CURLY_BRACKET_LINES] += 1
                break


@inlined
def _paragraph(data: Any, start: Any, end: Any, value: Any, seen: Any, num_slots: Any, count: Any) -> None:
    count[columns.NUM_PARAGRAPHS] += 1
    if not _insert(seen, num_slots, mix64(value ^ _PARAGRAPH)):
        count[columns.NUM_DUPLICATE_PARAGRAPHS] += 1
        count[columns.NUM_DUPLICATE_PARAGRAPH_CHARS] += _num_chars(data, start, end)


@inlined
def last_character(data: Any, start: Any, end: Any) -> Any:
    """The last character of data[start:end], which is not empty."""
    position = end - 1
    while position > start and data[position] & 0xC0 == 0x80:
        position -= 1
    last = np.uint32(data[position])
    if last >= 0x80:
        last, _ = decode_multibyte(data, position)
    return last


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


@kernel
def _num_chars(data: Any, start: Any, end: Any) -> Any:
    return chars_and_newlines(data, start, end)[0]


@kernel
def chars_and_newlines(data: Any, start: Any, end: Any) -> Any:
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
