"""Words alone: the hashes that the text pass leaves, three times as fast, where nobody asks for statistics.

1. part_bits      64 bytes a step: which may be part of a word, as bits. ASCII is told exactly, all above is a "may".
2. words_between  runs of such bytes, found by counting zero bits. Eight bytes of a run that are ASCII, or four letters
                  of the common Cyrillic, are lowered at once; any other run goes by character through the table.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import text_buffers
from pipeline.kernels.bits import EVERY_80, bits_between, bytes_equal, count_trailing_zeros, load_uint64
from pipeline.kernels.compiled import inlined, kernel, lean
from pipeline.kernels.hashing import START, absorb, mix64
from pipeline.kernels.text import Words
from pipeline.kernels.unicode import (
    LOWER_MASK,
    LOWER_SIZE_MASK,
    LOWER_SIZE_SHIFT,
    WORD,
    character_table,
    decode_multibyte,
    encode_four,
)

_STEP = 64
_UNDERSCORE = np.uint64(ord("_"))
_EVERY_40 = np.uint64(0x4040404040404040)
_ALL = ~np.uint64(0)
# Four characters of two bytes, lead byte lowest. U+0400 to U+045F begin with D0 or D1 and are letters all.
_LEAD, _LEADS = np.uint64(0x00FE00FE00FE00FE), np.uint64(0x00D000D000D000D0)
_TAIL, _TAILS = np.uint64(0xC000C000C000C000), np.uint64(0x8000800080008000)
_LANES_01, _LANES_3F, _LANES_80 = (np.uint64(0x0001000100010001 * byte) for byte in (0x01, 0x3F, 0x80))
_FROM_10, _FROM_30, _FROM_60 = (np.uint64(0x0001000100010001 * (0x80 - first)) for first in (0x10, 0x30, 0x60))


def words_of(text: pa.LargeStringArray) -> Words:
    """The words of every document of `text`, as `analyse` gives them. ValueError for nulls or another Arrow type."""
    data, offsets = text_buffers(text)
    hashes = np.empty(most_words(offsets), np.uint64)
    word_offsets = np.zeros(len(offsets), np.int64)
    _words(data, offsets, part_bits(data, offsets), character_table(), hashes, word_offsets)
    return Words(hashes=hashes[: word_offsets[-1]], offsets=word_offsets)


def most_words(offsets: np.ndarray) -> int:
    """More than there can be: a word takes two bytes with what parts it from the next."""
    return int(offsets[-1] - offsets[0] + len(offsets)) // 2 + 1


@kernel
def part_bits(data: Any, offsets: Any) -> Any:
    """uint64 (k,): bit i of number j is set where byte 64 j + i, counted from offsets[0], may be part of a word."""
    start, end = offsets[0], offsets[-1]
    bits = np.empty((end - start) // _STEP + 2, np.uint64)
    whole = (end - start) // _STEP
    for step in range(whole):
        bits[step] = _word_bits(data, start + step * _STEP)
    last = np.zeros(_STEP, np.uint8)
    for position in range(start + whole * _STEP, end):
        last[position - start - whole * _STEP] = data[position]
    bits[whole] = _word_bits(last, np.intp(0))
    bits[whole + 1] = 0
    return bits


@inlined
def _word_bits(data: Any, index: Any) -> Any:
    """A bit for each of the bytes data[index : index + 64]: set for A-Z, a-z, 0-9, "_" and everything from 0x80 up."""
    bits = bits_between(data, index, ord("A"), ord("Z")) | bits_between(data, index, ord("a"), ord("z"))
    bits |= bits_between(data, index, ord("0"), ord("9")) | bits_between(data, index, ord("_"), ord("_"))
    return bits | bits_between(data, index, 0x80, 0xFF)


@lean
def _words(data: Any, offsets: Any, bits: Any, table: Any, hashes: Any, word_offsets: Any) -> None:
    next_word = 0
    for document in range(len(offsets) - 1):
        next_word = words_between(
            data, offsets[document], offsets[document + 1], bits, offsets[0], table, hashes, next_word
        )
        word_offsets[document + 1] = next_word


@lean
def words_between(
    data: Any, start: Any, end: Any, bits: Any, origin: Any, table: Any, hashes: Any, next_word: Any
) -> Any:
    """Leave the hashes of the words of data[start:end] from `next_word` on; return their end. No word may lie across
    `start` or `end`. `bits` are part_bits, counted from `origin`.
    """
    position = start
    while True:
        position = _next_bit(bits, position - origin, end - origin, np.uint64(0)) + origin
        if position >= end:
            return next_word
        run_end = _next_bit(bits, position - origin, end - origin, _ALL) + origin
        if position + 8 <= len(data):
            is_plain, value = _plain_hash(data, position, run_end)
            if is_plain:
                hashes[next_word] = value
                next_word += 1
                position = run_end
                continue
        next_word = _words_by_character(data, position, run_end, table, hashes, next_word)
        position = run_end


@inlined
def _next_bit(bits: Any, start: Any, end: Any, flip: Any) -> Any:
    """Where the first set bit (with `flip`: the first clear one) from `start` on is; `end` where none is before it."""
    step = start >> 6
    word = (bits[step] ^ flip) >> np.uint64(start & 63)
    if word:
        return min(start + np.intp(count_trailing_zeros(word)), end)
    step += 1
    while step << 6 < end:
        word = bits[step] ^ flip
        if word:
            return min((step << 6) + np.intp(count_trailing_zeros(word)), end)
        step += 1
    return end


@inlined
def _plain_hash(data: Any, start: Any, end: Any) -> Any:
    """(True, hashing.hash_bytes of the lower case) of a run of nothing but ASCII or nothing but common Cyrillic; else
    (False, anything). Eight bytes from data[start] on must be there.
    """
    value, position = START, start
    is_plain = True
    while end - position >= 8:
        chunk, is_plain = _lowered(load_uint64(data, position), _ALL)
        if not is_plain:
            return False, value
        value = absorb(value, chunk)
        position += 8
    left = np.uint64(8 * (end - position))
    chunk = np.uint64(0)
    if left:
        # The last bytes of a long run are the last of the eight that end with it: no byte past the data is read.
        ends_with = position > start
        chunk = load_uint64(data, end - 8 if ends_with else position)
        chunk >>= np.uint64(64) - left if ends_with else np.uint64(0)
        chunk, is_plain = _lowered(chunk, (np.uint64(1) << left) - np.uint64(1))
    return is_plain, mix64(absorb(value, chunk) ^ np.uint64(end - start))


@inlined
def _lowered(eight: Any, mask: Any) -> Any:
    """(the bytes under `mask` in lower case, whether they are ASCII of a word, or common Cyrillic letters)."""
    eight &= mask
    high = eight & EVERY_80
    if high == 0:
        # Of what a word holds, letters and "_" have the bit 0x40, and of letters 0x20 makes small ones.
        return eight | (
            ((eight & _EVERY_40) >> np.uint64(1)) & ~(bytes_equal(eight, _UNDERSCORE) >> np.uint64(2))
        ), True
    if (eight & _LEAD) != (_LEADS & mask) or (eight & _TAIL) != (_TAILS & mask):
        return eight, False
    # A letter is U+0400 + value, value below 0x80, in a lane of 16 bits; capitals are those below 0x30.
    value = ((eight & _LANES_01) << np.uint64(6)) | ((eight >> np.uint64(8)) & _LANES_3F)
    if (value + _FROM_60) & _LANES_80:
        return eight, False
    below_10 = ~(value + _FROM_10) & _LANES_80
    below_30 = ~(value + _FROM_30) & _LANES_80
    # U+0410 and up lie 0x20 below their small letters, those before 0x50.
    value += (below_10 >> np.uint64(1)) + (below_10 >> np.uint64(3)) + ((below_30 & ~below_10) >> np.uint64(2))
    lower = ((value >> np.uint64(6)) & _LANES_01) | _LEADS | ((value & _LANES_3F) << np.uint64(8)) | _TAILS
    return lower & mask, True


@lean
def _words_by_character(data: Any, start: Any, end: Any, table: Any, hashes: Any, next_word: Any) -> Any:
    """The words of data[start:end], whatever they hold, as `words_between` leaves them."""
    value, chunk, filled, num_bytes = START, np.uint64(0), np.intp(0), np.intp(0)
    position = start
    while position < end:
        code_point, after = np.uint32(data[position]), position + 1
        if code_point >= 0x80:
            code_point, after = decode_multibyte(data, position)
        position = after
        entry = table[code_point]
        if entry & WORD:
            encoded, size = np.uint64(entry & LOWER_MASK), np.intp((entry >> LOWER_SIZE_SHIFT) & LOWER_SIZE_MASK)
            if size == 4:
                encoded = encode_four(encoded)
            num_bytes += size
            chunk |= encoded << np.uint64(8 * filled)
            filled += size
            if filled >= 8:
                value = absorb(value, chunk)
                filled -= 8
                # What did not fit: its last `filled` bytes. None is a case of its own: a shift by 64 is not defined.
                chunk = encoded >> np.uint64(8 * (size - filled)) if filled else np.uint64(0)
        if num_bytes and (not entry & WORD or position >= end):
            hashes[next_word] = mix64(absorb(value, chunk) ^ np.uint64(num_bytes))
            next_word += 1
            value, chunk, filled, num_bytes = START, np.uint64(0), np.intp(0), np.intp(0)
    return next_word
