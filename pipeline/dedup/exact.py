"""Equal texts, up to white space: a 128-bit content hash a document."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import text_buffers
from pipeline.kernels.bits import bits_between, copy_block, count_trailing_zeros, put_where
from pipeline.kernels.compiled import lean
from pipeline.kernels.hashing import hash_bytes
from pipeline.kernels.unicode import SPACE, character_table, decode_multibyte

HASH_NUM_BYTES = 16


def content_hashes(text: pa.LargeStringArray) -> np.ndarray:
    """(n, 2) uint64: the first 16 bytes of the SHA-256 of each normalised text, as two little-endian numbers.

    Normalised: runs of white space (`str.isspace`) become one space, none is left at the ends; case is kept. So it is
    the hash of `" ".join(text.split()).encode()`, and the same for ever.

    SHA-256 because these hashes are stored and compared between versions, and because texts come from strangers:
    nobody can write a text that makes another one vanish as its duplicate. At 128 bits 10**10 documents collide by
    chance with probability 10**-19. It costs little: with a processor's SHA instructions 1,500 MB/s beyond a
    microsecond a document.

    Raises ValueError for nulls or another Arrow type.
    """
    data, offsets = text_buffers(text)
    normalised = np.empty(offsets[-1] - offsets[0] + 2 * _BLOCK, dtype=np.uint8)
    block = np.full(2 * _BLOCK, 0x20, np.uint8)
    ends = np.empty(len(offsets) - 1, dtype=np.int64)
    _normalise(data, offsets, character_table(), block, normalised, ends)
    view, start, digests = normalised.data, 0, []
    for end in ends.tolist():
        digests.append(hashlib.sha256(view[start:end]).digest()[:HASH_NUM_BYTES])
        start = end
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)


def text_hashes(text: pa.LargeStringArray) -> np.ndarray:
    """uint64 (n,): a hash of each text as it stands, white space included.

    Of documents equal in all else it says which one stays, so that the bytes written do not hang on who came first.
    """
    data, offsets = text_buffers(text)
    hashes = np.empty(len(offsets) - 1, np.uint64)
    _text_hashes(data, offsets, hashes)
    return hashes


def groups(hashes: np.ndarray) -> np.ndarray:
    """int64 (n,): a number for each document, the same for equal hashes. `hashes` uint64 (n, 2). Costs one sort."""
    group = np.empty(len(hashes), np.int64)
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    changes = np.any(ordered[1:] != ordered[:-1], axis=1)
    group[order] = np.concatenate((np.zeros(min(1, len(hashes)), np.int64), np.cumsum(changes)))
    return group


_BLOCK = 64
_1, _63 = np.uint64(1), np.uint64(63)


@lean
def _text_hashes(data: Any, offsets: Any, hashes: Any) -> None:
    for document in range(len(hashes)):
        hashes[document] = hash_bytes(data, offsets[document], offsets[document + 1])


@lean
def _normalise(data: Any, offsets: Any, table: Any, block: Any, normalised: Any, ends: Any) -> None:
    """Write the normalised texts one after another into `normalised`, and where each ends into `ends`.

    64 bytes a step: which are white space, as bits; the first byte of each run of it becomes a space, its others go.
    """
    written: Any = np.intp(0)
    for document in range(len(offsets) - 1):
        first = written
        position, end = np.intp(offsets[document]), np.intp(offsets[document + 1])
        was_space, space_ahead = _1, np.uint64(0)  # of the block before: is its last byte white space; what goes on
        while position < end:
            size: Any = min(end - position, _BLOCK)
            if size == _BLOCK:
                copy_block(data, position, block, 0)
            else:
                for place in range(size):
                    block[place] = data[position + place]
            inside = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(_BLOCK - size)
            spaces = bits_between(block, 0, 0x20, 0x20) | bits_between(block, 0, 0x09, 0x0D)
            spaces |= bits_between(block, 0, 0x1C, 0x1F) | space_ahead
            space_ahead = np.uint64(0)
            # Lead bytes of the white space outside ASCII: U+0085, U+00A0, U+1680, U+2000 ... U+3000.
            leads = bits_between(block, 0, 0xC2, 0xC2) | bits_between(block, 0, 0xE1, 0xE3)
            leads &= inside
            while leads:
                bit = count_trailing_zeros(leads)
                leads &= leads - _1
                lead = position + np.intp(bit)
                code_point, after = decode_multibyte(data, lead)
                if table[code_point] & SPACE:
                    all_bytes = (_1 << np.uint64(after - lead)) - _1
                    spaces |= all_bytes << bit
                    space_ahead = (all_bytes >> (_63 - bit)) >> _1
            put_where(block, 0, spaces, 0x20)
            kept = ~(spaces & ((spaces << _1) | was_space)) & inside
            was_space = (spaces >> np.uint64(size - 1)) & _1
            position += size
            if kept == inside:
                copy_block(block, 0, normalised, written)
                written += size
                continue
            while kept:
                start = count_trailing_zeros(kept)
                length = count_trailing_zeros(~(kept >> start))
                # All that is left of the block; what does not belong there is written over.
                copy_block(block, np.intp(start), normalised, written)
                written += np.intp(length)
                kept &= ~(((_1 << length) - _1) << start)
        if written > first and was_space:
            written -= 1
        ends[document] = written
