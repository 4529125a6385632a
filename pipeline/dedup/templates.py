"""Template lines: what many documents of a source share says nothing about whether two of them are alike.

A ticket form, a greeting, a disclaimer, a page's footer: equal lines that stand in many documents. They are found by
counting, in how many documents each line stands (white space at its ends aside, empty lines left out), and taken out of
a document before it is compared: what is left is its *core*.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import readonly, text_buffers
from pipeline.kernels.bits import bytes_equal, count_trailing_zeros, load_uint64
from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.hashing import hash_bytes

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


def without_lines(text: pa.LargeStringArray, lines: np.ndarray) -> tuple[pa.LargeStringArray, np.ndarray]:
    """(the cores, bool (n,) whether anything was taken out): every line whose hash is in `lines` (sorted) is gone."""
    data, offsets = text_buffers(text)
    num_documents = len(offsets) - 1
    left = np.empty(offsets[-1] - offsets[0] + num_documents, np.uint8)
    ends = np.zeros(num_documents + 1, np.int64)
    removed = np.zeros(num_documents, np.bool_)
    _without_lines(data, offsets, readonly(lines, np.uint64), left, ends, removed)
    core = pa.LargeStringArray.from_buffers(num_documents, pa.py_buffer(ends), pa.py_buffer(left[: ends[-1]]))
    return core, removed


def hash_line(line: str) -> int:
    """The hash under which a line is counted."""
    data = np.frombuffer(line.strip(" \t\r").encode(), np.uint8)
    return int(hash_bytes(data, 0, len(data)))


@inlined
def _line_end(data: Any, start: Any, end: Any) -> Any:
    position = start
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


@kernel
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


@kernel
def _without_lines(data: Any, offsets: Any, lines: Any, left: Any, ends: Any, removed: Any) -> None:
    written = 0
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        while start < end:
            line_end = _line_end(data, start, end)
            first, last = _stripped(data, start, line_end)
            is_template = False
            if first < last:
                value = hash_bytes(data, first, last)
                place = np.searchsorted(lines, value)
                is_template = place < len(lines) and lines[place] == value
            if is_template:
                removed[document] = True
            else:
                for position in range(start, line_end):
                    left[written] = data[position]
                    written += 1
                left[written] = 0x0A
                written += 1
            start = line_end + 1
        ends[document + 1] = written
