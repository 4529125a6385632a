"""The arithmetic that every stored hash rests on. Never change it: signatures kept beside old versions were made by it.

tests/pipeline/test_kernels_hashing.py pins the values.
"""

from typing import Any

import numpy as np

from pipeline.kernels.bits import load_uint64
from pipeline.kernels.compiled import inlined, lean

# Odd, with well spread bits: 2**64 divided by the golden ratio.
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Where every running hash starts: the first bits of pi's fraction.
START = np.uint64(0x243F6A8885A308D3)

_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT_33 = np.uint64(33)


@inlined
def mix64(value: Any) -> Any:
    """MurmurHash3's 64-bit finaliser: a bijection after which every bit depends on every bit of `value` (uint64)."""
    value ^= value >> _SHIFT_33
    value *= _MIX_1
    value ^= value >> _SHIFT_33
    value *= _MIX_2
    return value ^ (value >> _SHIFT_33)


@inlined
def absorb(value: Any, chunk: Any) -> Any:
    """One step of a running hash over eight bytes at a time (both uint64): a bijection of either for a fixed other."""
    value = (value ^ chunk) * MULTIPLIER
    return value ^ (value >> _SHIFT_33)


@lean
def hash_bytes(data: Any, start: Any, end: Any) -> Any:
    """64-bit hash of data[start:end]: START absorbs eight bytes at a time, the last zero-padded, then the length."""
    value = START
    position = start
    while position + 8 <= end:
        value = absorb(value, load_uint64(data, position))
        position += 8
    chunk = np.uint64(0)
    if position < end and start + 8 <= end:
        # The eight bytes before the end, those shifted out that were absorbed already.
        chunk = load_uint64(data, end - 8) >> np.uint64(8 * (position + 8 - end))
    else:
        for byte in range(end - position):
            chunk |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
    return mix64(absorb(value, chunk) ^ np.uint64(end - start))


@inlined
def hash_padded(data: Any, start: Any, num_bytes: Any) -> Any:
    """hash_bytes of data[start : start + num_bytes], where eight bytes behind them can be read."""
    value = START
    for place in range(start, start + (num_bytes & ~7), 8):
        value = absorb(value, load_uint64(data, place))
    below = (np.uint64(1) << (np.uint64(8) * (np.uint64(num_bytes) & np.uint64(7)))) - np.uint64(1)
    return mix64(absorb(value, load_uint64(data, start + (num_bytes & ~7)) & below) ^ np.uint64(num_bytes))


@inlined
def hash_word(data: Any, start: Any, num_bytes: Any) -> Any:
    """hash_bytes of data[start : start + num_bytes], at least one; 24 bytes from any place can be read.

    The length of words cannot be foretold by a processor, so up to 24 bytes no branch depends on it.
    """
    first, second, third = load_uint64(data, start), load_uint64(data, start + 8), load_uint64(data, start + 16)
    below = (np.uint64(1) << (np.uint64(8) * (np.uint64(num_bytes) & np.uint64(7)))) - np.uint64(1)
    one = absorb(START, first & below if num_bytes < 8 else first)
    two = absorb(one, second & below if num_bytes < 16 else second)
    three = absorb(two, third & below)
    value = one if num_bytes < 8 else (two if num_bytes < 16 else three)
    if num_bytes >= 24:
        value = absorb(two, third)
        place = start + 24
        while place + 8 <= start + num_bytes:
            value = absorb(value, load_uint64(data, place))
            place += 8
        value = absorb(value, load_uint64(data, place) & below)
    return mix64(value ^ np.uint64(num_bytes))


def word_hash(word: str) -> int:
    """The hash the text pass leaves for a word: of the UTF-8 bytes of the word in lower case (`word` is already)."""
    data = np.frombuffer(word.encode(), dtype=np.uint8)
    return int(hash_bytes(data, 0, len(data)))
