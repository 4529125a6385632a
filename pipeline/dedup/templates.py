"""Template lines: what many documents of a source share says nothing about whether two of them are alike.

A ticket form, a greeting, a disclaimer, a page's footer: equal lines that stand in many documents. They are found by
counting, in how many documents each line stands (white space at its ends aside, empty lines left out), and taken out of
a document before it is compared: what is left is its *core*.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import readonly, text_buffers
from pipeline.kernels.bits import bits_between, bytes_equal, count_trailing_zeros, load_uint64
from pipeline.kernels.blocks import copy_piece, put_spaces
from pipeline.kernels.compiled import inlined, kernel, lean
from pipeline.kernels.hashing import hash_bytes
from pipeline.kernels.scratch import FIRST
from pipeline.kernels.text import Words
from pipeline.kernels.unicode import character_table
from pipeline.kernels.words import most_words, word_scratch, words_in

_NEWLINE = np.uint64(ord("\n"))


def line_hashes(text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 (m,), int64 (n + 1,)): the different lines of each document, as hashes, and where a document's begin."""
    data, offsets = text_buffers(text)
    num_documents = len(offsets) - 1
    # A line takes two bytes with its newline, and the last of a document may go without.
    hashes = np.empty((offsets[-1] - offsets[0] + num_documents) // 2 + 1, np.uint64)
    line_offsets = np.zeros(num_documents + 1, np.int64)
    _line_hashes(data, offsets, hashes, line_offsets)
    return hashes[: line_offsets[-1]], line_offsets


def core_words(text: pa.LargeStringArray, lines: np.ndarray) -> tuple[Words, np.ndarray]:
    """(the words of the cores, bool (n,) whether a line was taken out): lines whose hash is in `lines` (sorted) do not
    count. A document that holds none of them is its own core, and has no words here: they are known already.
    """
    data, offsets = text_buffers(text)
    hashes = np.empty(most_words(offsets), np.uint64)
    word_offsets = np.zeros(len(offsets), np.int64)
    removed = np.zeros(len(text), np.bool_)
    # Lines are looked up in this first: all but a few of a hundred are told apart by 16 bits.
    marks = np.zeros(1 << 16, np.bool_)
    marks[lines & np.uint64(len(marks) - 1)] = True
    scratch, table = word_scratch(offsets), character_table()
    _core_words(data, offsets, readonly(lines, np.uint64), marks, scratch, table, hashes, word_offsets, removed)
    return Words(hashes=hashes[: word_offsets[-1]], offsets=word_offsets), removed


def find_lines(text: pa.LargeStringArray, wanted: np.ndarray) -> list[str | None]:
    """The text of a few lines, `wanted` uint64 (k,), None where `text` has it not: searched until all are found."""
    data, offsets = text_buffers(text)
    found = np.full((len(wanted), 2), -1, np.int64)
    _find_lines(data, offsets, readonly(wanted, np.uint64), found)
    return [None if start < 0 else data[start:end].tobytes().decode() for start, end in found.tolist()]


def hash_line(line: str) -> int:
    """The hash under which a line is counted."""
    data = np.frombuffer(line.strip(" \t\r").encode(), np.uint8)
    return int(hash_bytes(data, 0, len(data)))


@inlined
def _line_end(data: Any, start: Any, end: Any) -> Any:
    position = start
    # A step of 64 bytes may look beyond the end of the document, not beyond that of the batch.
    while position < end and position + 64 <= len(data):
        bits = bits_between(data, position, 0x0A, 0x0A)
        if bits:
            return min(position + np.int64(count_trailing_zeros(bits)), end)
        position += 64
    position = min(position, end)
    while position + 8 <= end:
        newlines = bytes_equal(load_uint64(data, position), _NEWLINE)
        if newlines:
            return position + np.int64(count_trailing_zeros(newlines) >> np.uint64(3))
        position += 8
    while position < end and data[position] != 0x0A:
        position += 1
    return position


@inlined
def _stripped(data: Any, start: Any, end: Any) -> Any:
    while start < end and (data[start] == 0x20 or data[start] == 0x09 or data[start] == 0x0D):
        start += 1
    while end > start and (data[end - 1] == 0x20 or data[end - 1] == 0x09 or data[end - 1] == 0x0D):
        end -= 1
    return start, end


@kernel
def _line_hashes(data: Any, offsets: Any, hashes: Any, line_offsets: Any) -> None:
    table = np.zeros(64, np.uint64)
    written = 0
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        first = written
        while start < end:
            line_end = _line_end(data, start, end)
            left, right = _stripped(data, start, line_end)
            if left < right:
                hashes[written] = hash_bytes(data, left, right)
                written += 1
            start = line_end + 1
        if written - first > 1:
            num_slots = 64
            while num_slots < 2 * (written - first):
                num_slots *= 2
            if num_slots > len(table):
                table = np.zeros(num_slots, np.uint64)
            else:
                table[:num_slots] = 0
            written = _close_up(hashes, first, written, table, np.uint64(num_slots - 1))
        line_offsets[document + 1] = written


@lean
def _close_up(hashes: Any, first: Any, end: Any, table: Any, mask: Any) -> Any:
    """Keep the first of equal hashes in hashes[first:end]; where they end. 0 marks a free slot, so 0 is kept as 1."""
    written = first
    for index in range(first, end):
        value = max(hashes[index], np.uint64(1))
        slot = value & mask
        while table[slot] != 0 and table[slot] != value:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] == 0:
            table[slot] = value
            hashes[written] = hashes[index]
            written += 1
    return written


@lean
def _core_words(
    data: Any,
    offsets: Any,
    lines: Any,
    marks: Any,
    scratch: Any,
    table: Any,
    hashes: Any,
    word_offsets: Any,
    removed: Any,
) -> None:
    next_word = np.intp(0)
    for document in range(len(offsets) - 1):
        end = offsets[document + 1]
        kept = line = offsets[document]
        size = np.intp(0)  # of the core, as far as it is put together
        while line < end:
            line_end = _line_end(data, line, end)
            first, last = _stripped(data, line, line_end)
            if first < last and _is_in(lines, marks, hash_bytes(data, first, last)):
                removed[document] = True
                copy_piece(data, kept, line - kept, scratch.text, FIRST + size)
                size += line - kept
                kept = line_end
            line = line_end + 1
        if removed[document]:
            copy_piece(data, kept, end - kept, scratch.text, FIRST + size)
            size += end - kept
            put_spaces(scratch.text, size)
            next_word = words_in(scratch, size, table, hashes, next_word)
        word_offsets[document + 1] = next_word


@inlined
def _is_in(lines: Any, marks: Any, value: Any) -> Any:
    if not marks[value & np.uint64(len(marks) - 1)]:
        return False
    place = np.searchsorted(lines, value)
    return place < len(lines) and lines[place] == value


@lean
def _find_lines(data: Any, offsets: Any, wanted: Any, found: Any) -> None:
    num_missing = len(wanted)
    for document in range(len(offsets) - 1):
        line, end = offsets[document], offsets[document + 1]
        while line < end and num_missing:
            line_end = _line_end(data, line, end)
            first, last = _stripped(data, line, line_end)
            value = hash_bytes(data, first, last)
            for number in range(len(wanted)):
                if wanted[number] == value and found[number, 0] < 0 and first < last:
                    found[number, 0], found[number, 1] = first, last
                    num_missing -= 1
            line = line_end + 1
