"""Equal texts, up to white space: a 128-bit content hash a document."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import text_buffers
from pipeline.kernels.compiled import kernel
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
    normalised = np.empty(offsets[-1] - offsets[0], dtype=np.uint8)
    ends = np.empty(len(offsets) - 1, dtype=np.int64)
    _normalise(data, offsets, character_table(), normalised, ends)
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


# Lead bytes of the white space outside ASCII (U+0085, U+00A0, U+1680, U+2000 ... U+3000): all others are copied unseen.
_SPACE_LEADS = (0xC2, 0xE1, 0xE2, 0xE3)


@kernel
def _text_hashes(data: Any, offsets: Any, hashes: Any) -> None:
    for document in range(len(hashes)):
        hashes[document] = hash_bytes(data, offsets[document], offsets[document + 1])


@kernel
def _normalise(data: Any, offsets: Any, table: Any, normalised: Any, ends: Any) -> None:
    """Write the normalised texts one after another into `normalised`, and where each ends into `ends`."""
    written = 0
    for document in range(len(offsets) - 1):
        first = written
        position, end = offsets[document], offsets[document + 1]
        after_space = True
        while position < end:
            byte = data[position]
            after, is_space = position + 1, False
            if byte < 0x80:
                is_space = table[byte] & SPACE != 0
            elif byte in _SPACE_LEADS:
                code_point, after = decode_multibyte(data, position)
                is_space = table[code_point] & SPACE != 0
                after = after if is_space else position + 1
            normalised[written] = 0x20 if is_space else byte
            # A space after a space is written over by what follows, which costs no branch.
            written += not (is_space and after_space)
            after_space = is_space
            position = after
        if written > first and after_space:
            written -= 1
        ends[document] = written
