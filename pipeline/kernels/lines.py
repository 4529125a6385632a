"""Lines and paragraphs: duplicates, bullets, ends of sentences, and the lines that the C4 rules would keep.

Where lines end and which words they hold is known from the marks (blocks.py), so a line is read once more only for its
hash, eight bytes a step, and what it begins and ends with, white space aside, needs no search.
"""

from typing import Any

import numpy as np

from pipeline.kernels import columns
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.hashing import START, absorb, hash_padded, mix64
from pipeline.kernels.prose import HAS_LOREM_IPSUM, HAS_SKIPPED, ends_prose, has_any, num_sentences
from pipeline.kernels.scratch import FIRST, num_before, num_between
from pipeline.kernels.unicode import TERMINAL, decode_multibyte

SHORT_LINE_CHARS = 30
"""FineWeb's limit of a short line (short_line_length of datatrove's filter), included in short."""
MIN_PROSE_WORDS, MAX_PROSE_WORD_CHARS = 3, 1000
"""C4's limits of a line worth keeping: Raffel et al. 2020, section 2.2, and its code."""

_DOT, _DASH, _ELLIPSIS, _BULLET = (np.uint32(ord(mark)) for mark in ".-…•")
_CURLY_BRACKET = ord("{")
# A paragraph of one line must not be taken for the line.
_PARAGRAPH = np.uint64(0xA5A5A5A5A5A5A5A5)


@lean
def count_lines(scratch: Any, end: Any, table: Any, found: Any, has_long_words: Any, count: Any) -> None:
    """Fill the columns of lines and paragraphs for the marked document text[FIRST:end].

    `found`: prose.HAS_... bits of phrases that may occur.
    """
    text, edges, characters, words = scratch.text, scratch.word_edges, scratch.characters, scratch.words
    num_newlines, num_words = count[columns.NUM_NEWLINES], count[columns.NUM_WORDS]
    scratch.newlines[num_newlines] = end
    num_lines = num_newlines + (end > FIRST and text[end - 1] != 0x0A)
    # Lines and paragraphs share the table: between two paragraphs stands an empty line, which is not in it.
    seen, num_slots = scratch.hashes, _cleared(scratch.hashes, num_newlines + 2)
    text_start, text_end = np.intp(end), np.intp(FIRST)
    if num_words:
        text_start, text_end = np.intp(edges[0]), np.intp(edges[2 * num_words - 1])
    paragraph, paragraph_start, paragraph_end = START, np.intp(-1), np.intp(-1)
    num_nonempty = num_duplicate = num_duplicate_chars = num_duplicate_filled_chars = 0
    next_word = np.intp(0)
    line = np.intp(FIRST)
    for number in range(num_lines):
        line_end = np.intp(scratch.newlines[number])
        if line_end > line:
            value = hash_padded(text, line, line_end - line)
            num_nonempty += 1
            first_word = next_word
            next_word = num_before(words, line_end)
            if not _insert(seen, num_slots, value):
                num_chars = num_between(characters, line, line_end)
                num_duplicate += 1
                num_duplicate_chars += num_chars
                num_duplicate_filled_chars += num_chars * (next_word > first_word)
            if next_word > first_word:
                _filled_line(scratch, line, line_end, table, first_word, next_word, count)
                if next_word - first_word >= MIN_PROSE_WORDS and not (
                    has_long_words and _has_long_word(scratch, first_word, next_word)
                ):
                    _prose_line(scratch, line, line_end, first_word, next_word, found, count)
            # White space at both ends of the text is no part of its first and last paragraph.
            if line_end > text_start and line < text_end:
                inside, inside_end = max(line, text_start), min(line_end, text_end)
                if inside > line or inside_end < line_end:
                    value = hash_padded(text, inside, inside_end - inside)
                if paragraph_start < 0:
                    paragraph_start, paragraph = inside, START
                paragraph = absorb(paragraph, value) * np.uint64(3)
                paragraph_end = inside_end
        elif paragraph_start >= 0:
            _paragraph(characters, paragraph_start, paragraph_end, paragraph, seen, num_slots, count)
            paragraph_start = np.intp(-1)
        line = line_end + 1
    if paragraph_start >= 0:
        _paragraph(characters, paragraph_start, paragraph_end, paragraph, seen, num_slots, count)
    count[columns.NUM_LINES] = num_lines
    count[columns.NUM_NONEMPTY_LINES] = num_nonempty
    count[columns.NUM_DUPLICATE_LINES] = num_duplicate
    count[columns.NUM_DUPLICATE_LINE_CHARS] = num_duplicate_chars
    count[columns.NUM_DUPLICATE_FILLED_LINE_CHARS] = num_duplicate_filled_chars


@lean
def _has_long_word(scratch: Any, first_word: Any, next_word: Any) -> Any:
    """Whether one of these words has more characters than C4 allows."""
    edges = scratch.word_edges
    for word in range(first_word, next_word):
        if num_between(scratch.characters, edges[2 * word], edges[2 * word + 1]) > MAX_PROSE_WORD_CHARS:
            return True
    return False


@inlined
def _filled_line(
    scratch: Any, line: Any, line_end: Any, table: Any, first_word: Any, next_word: Any, count: Any
) -> None:
    """Count a line that holds the words first_word..next_word - 1."""
    text, edges = scratch.text, scratch.word_edges
    start, end = np.intp(edges[2 * first_word]), np.intp(edges[2 * next_word - 1])
    count[columns.NUM_FILLED_LINES] += 1
    first = np.uint32(text[start])
    if first >= 0x80:
        first, _ = decode_multibyte(text, start)
    count[columns.NUM_BULLET_LINES] += first in (_DASH, _BULLET)
    last = last_character(text, start, end)
    dots = last == _DOT and end - start >= 3 and text[end - 2] == _DOT and text[end - 3] == _DOT
    count[columns.NUM_ELLIPSIS_LINES] += dots or last == _ELLIPSIS
    # As FineWeb counts it: a mark with white space after it does not end the line.
    count[columns.NUM_TERMINAL_LINES] += line_end == end and table[last] & TERMINAL != 0
    count[columns.NUM_SHORT_LINES] += num_between(scratch.characters, line, line_end) <= SHORT_LINE_CHARS


@inlined
def _prose_line(
    scratch: Any, line: Any, line_end: Any, first_word: Any, next_word: Any, found: Any, count: Any
) -> None:
    """Count a line of MIN_PROSE_WORDS or more, in the order of C4's rules."""
    text, edges = scratch.text, scratch.word_edges
    start, end = np.intp(edges[2 * first_word]), np.intp(edges[2 * next_word - 1])
    if not ends_prose(text, start, end):
        return
    if found & HAS_LOREM_IPSUM and has_any(scratch.lower, start, end, HAS_LOREM_IPSUM):
        count[columns.NUM_LOREM_IPSUM_LINES] += 1
    if found & HAS_SKIPPED and has_any(scratch.lower, start, end, found & HAS_SKIPPED):
        return
    count[columns.NUM_PROSE_LINES] += 1
    count[columns.NUM_PROSE_SENTENCES] += num_sentences(scratch, line, line_end, next_word)
    if count[columns.NUM_CURLY_BRACKETS]:
        for position in range(start, end):
            if text[position] == _CURLY_BRACKET:
                count[columns.NUM_CURLY_BRACKET_LINES] += 1
                break


@inlined
def _paragraph(characters: Any, start: Any, end: Any, value: Any, seen: Any, num_slots: Any, count: Any) -> None:
    count[columns.NUM_PARAGRAPHS] += 1
    if not _insert(seen, num_slots, mix64(value ^ _PARAGRAPH)):
        count[columns.NUM_DUPLICATE_PARAGRAPHS] += 1
        count[columns.NUM_DUPLICATE_PARAGRAPH_CHARS] += num_between(characters, start, end)


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
def _cleared(table: Any, num_entries: Any) -> Any:
    """Slots, all free, at the beginning of a hash table: a power of two, at most half full."""
    num_slots = 64
    while num_slots < 2 * num_entries:
        num_slots *= 2
    for slot in range(num_slots):
        table[slot] = 0
    return num_slots


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
