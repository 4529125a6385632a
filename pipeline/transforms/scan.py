"""Which texts a transform could change: one pass over the UTF-8 bytes, so that clean text costs nothing more.

Every code point has a word of flags, one bit a transform; a text's flags are those of its characters joined.
"""

import numba
import numpy as np
import pyarrow as pa


def flags_of(text: pa.LargeStringArray, table: np.ndarray) -> np.ndarray:
    """uint16 (n,): for each text the bitwise or of `table[code point]` over its characters; 0 for null and empty.

    `table` is uint16 (0x110000,).
    """
    if len(text) == 0:
        return np.zeros(0, np.uint16)
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return _scan(content, starts, table)


@numba.njit(nogil=True, cache=True)
def _scan(content: np.ndarray, starts: np.ndarray, table: np.ndarray) -> np.ndarray:
    # Arrow's text is valid UTF-8 (the readers see to it), so lengths follow from first bytes without further checks.
    num_texts = len(starts) - 1
    found = np.zeros(num_texts, np.uint16)
    for index in range(num_texts):
        position, end = starts[index], starts[index + 1]
        flags = np.uint16(0)
        while position < end:
            first = content[position]
            if first < 0x80:
                flags |= table[first]
                position += 1
            elif first < 0xE0:
                flags |= table[(np.uint32(first & 0x1F) << 6) | (content[position + 1] & 0x3F)]
                position += 2
            elif first < 0xF0:
                point = (np.uint32(first & 0x0F) << 12) | (np.uint32(content[position + 1] & 0x3F) << 6)
                flags |= table[point | (content[position + 2] & 0x3F)]
                position += 3
            else:
                point = (np.uint32(first & 0x07) << 18) | (np.uint32(content[position + 1] & 0x3F) << 12)
                point |= (np.uint32(content[position + 2] & 0x3F) << 6) | (content[position + 3] & 0x3F)
                flags |= table[point]
                position += 4
        found[index] = flags
    return found
