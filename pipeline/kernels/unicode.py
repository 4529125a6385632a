"""Characters: from UTF-8 bytes to a code point, and from a code point to what the kernels need to know about it.

One table of 0x110000 uint32 answers everything with one load: what the character is, and its lower case ready to be
hashed. 4.5 MB, of which a text in two alphabets touches a few cache lines.
"""

import functools
from typing import Any

import numpy as np

from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.punctuation import PUNCTUATION_RANGES, TERMINAL_RANGES
from pipeline.kernels.unicode_ranges import LETTER_RANGES, LOWER_RANGES, SPACE_RANGES, WORD_RANGES

NUM_CODE_POINTS = 0x110000

# Bits 0-23: the UTF-8 bytes of the simple lower case, first byte lowest, where they are at most three; bits 24-26: how
# many they are. Four bytes do not fit, so where there are four the low bits hold the code point (see encode_four).
LOWER_MASK = np.uint32(0xFFFFFF)
LOWER_SIZE_SHIFT = np.uint32(24)
LOWER_SIZE_MASK = np.uint32(7)
PUNCTUATION = np.uint32(1 << 27)  # of any script, control characters among it: punctuation.py
WORD = np.uint32(1 << 28)  # \w as Python's re sees it: letters, digits, numerals, underscore
LETTER = np.uint32(1 << 29)  # str.isalpha
SPACE = np.uint32(1 << 30)  # str.isspace
TERMINAL = np.uint32(1 << 31)  # a mark that ends a sentence, in any script


@functools.cache
def character_table() -> np.ndarray:
    """(0x110000,) uint32, read-only, by code point: bits as named above. Built once a process, in some 20 ms."""
    lower: np.ndarray = np.arange(NUM_CODE_POINTS, dtype=np.uint32)
    for first, last, step, delta in LOWER_RANGES:
        lower[first : last + 1 : step] += np.uint32(delta & 0xFFFFFFFF)
    six = np.uint32(0x3F)
    last_byte, middle_byte = 0x80 | (lower & six), 0x80 | ((lower >> 6) & six)
    two = 0xC0 | (lower >> 6) | (last_byte << 8)
    three = 0xE0 | (lower >> 12) | (middle_byte << 8) | (last_byte << 16)
    sizes = 1 + (lower >= 0x80).astype(np.uint32) + (lower >= 0x800) + (lower >= 0x10000)
    table = np.choose(sizes - 1, [lower, two, three, lower]).astype(np.uint32) & LOWER_MASK
    table |= sizes.astype(np.uint32) << LOWER_SIZE_SHIFT
    classes = (
        (WORD_RANGES, WORD),
        (LETTER_RANGES, LETTER),
        (SPACE_RANGES, SPACE),
        (PUNCTUATION_RANGES, PUNCTUATION),
        (TERMINAL_RANGES, TERMINAL),
    )
    for ranges, bit in classes:
        for first, last in ranges:
            table[first : last + 1] |= bit
    table.flags.writeable = False
    return table


@inlined
def decode_multibyte(data: Any, position: Any) -> Any:
    """(code point, where the next character begins) for the two to four bytes at `position` of valid UTF-8."""
    first = np.uint32(data[position])
    second = np.uint32(data[position + 1]) & np.uint32(0x3F)
    if first < 0xE0:
        return ((first & np.uint32(0x1F)) << np.uint32(6)) | second, position + 2
    third = np.uint32(data[position + 2]) & np.uint32(0x3F)
    if first < 0xF0:
        return ((first & np.uint32(0x0F)) << np.uint32(12)) | (second << np.uint32(6)) | third, position + 3
    fourth = np.uint32(data[position + 3]) & np.uint32(0x3F)
    high = ((first & np.uint32(0x07)) << np.uint32(18)) | (second << np.uint32(12))
    return high | (third << np.uint32(6)) | fourth, position + 4


@kernel
def encode_four(code_point: Any) -> Any:
    """The four UTF-8 bytes, first lowest, of a code point from 0x10000 up (uint64 to uint64)."""
    six = np.uint64(0x3F)
    head = np.uint64(0xF0) | (code_point >> np.uint64(18))
    second = np.uint64(0x80) | ((code_point >> np.uint64(12)) & six)
    third = np.uint64(0x80) | ((code_point >> np.uint64(6)) & six)
    fourth = np.uint64(0x80) | (code_point & six)
    return head | (second << np.uint64(8)) | (third << np.uint64(16)) | (fourth << np.uint64(24))
