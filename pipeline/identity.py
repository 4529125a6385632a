"""A document's identity, and all that is decided by it: its place in the order, its split, its repeats.

A document is (source, id, 128-bit hash of its text). Nothing else enters: not the file it stood in, not the task that
read it, not when. So the same documents give the same order however they were listed, split between tasks or retried,
and two texts under one id stay two documents.

One keyed hash a document and copy (blake2b, 32 bytes) gives
    bytes  0-15   its key: documents lie in the data set in ascending order of it
    bytes 16-23   a fraction in [0, 1): below validation.fraction the document is in the validation split
    bytes 24-31   a fraction in [0, 1): below the weight's fractional part the document is repeated once more; where the
                 whole part is 0, the others are not drawn: reading ends there for them
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manifests.canonical import derived_seed

HASH_BYTES = 32
CONTENT_HASH_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Identities:
    """Hashes of a batch of documents, one row each."""

    digests: np.ndarray
    """uint8 (n, HASH_BYTES)."""

    @property
    def keys(self) -> np.ndarray:
        """uint64 (n, 2): the key as two big-endian halves, so that they compare as the bytes do."""
        return self.digests[:, :16].view(">u8").astype(np.uint64)

    @property
    def validation_draws(self) -> np.ndarray:
        """float64 (n,) in [0, 1)."""
        return _fractions(self.digests[:, 16:24])

    @property
    def repeat_draws(self) -> np.ndarray:
        """float64 (n,) in [0, 1)."""
        return _fractions(self.digests[:, 24:32])


def identities(
    seed: int, source: str, ids: Sequence[str], content_hashes: Sequence[bytes], repeat: int = 0
) -> Identities:
    """Hash a batch of documents of one source; some 700,000 documents a core-second.

    Args:
        seed: the build's.
        source: its name.
        ids: as the records give them.
        content_hashes: CONTENT_HASH_BYTES each.
        repeat: 0 for a document itself, 1, 2 ... for its copies by weight.
    """
    key = derived_seed("documents", seed, source, repeat).to_bytes(8, "little")
    base = hashlib.blake2b(key=key, digest_size=HASH_BYTES)
    digests = bytearray()
    for document_id, content_hash in zip(ids, content_hashes, strict=True):
        one = base.copy()
        # The content hash has a fixed length, so where the id begins is never in doubt.
        one.update(content_hash)
        one.update(document_id.encode())
        digests += one.digest()
    return Identities(digests=np.frombuffer(bytes(digests), np.uint8).reshape(-1, HASH_BYTES))


def _fractions(raw: np.ndarray) -> np.ndarray:
    # The upper 53 bits of 64 are exactly what a float64 in [0, 1) holds.
    bits = np.ascontiguousarray(raw).view(">u8").ravel().astype(np.uint64) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def num_copies(weight: float, repeat_draws: np.ndarray) -> np.ndarray:
    """How often each document stands in the training split: the whole part of the weight, and by draw once more for the
    rest.

    A weight of 2.5 gives every document twice and half of them a third time. int64 (n,).
    """
    whole = int(weight)
    return whole + (repeat_draws < weight - whole).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Which documents of a source whose weight is below 1 are drawn: those that would stand in a split."""

    seed: int
    weight: float
    validation_fraction: float

    def drawn(self, source: str, ids: Sequence[str], content_hashes: Sequence[bytes]) -> np.ndarray:
        """bool (n,). Documents of the validation split are: weights act on training alone."""
        own = identities(self.seed, source, ids, content_hashes)
        return (own.validation_draws < self.validation_fraction) | (num_copies(self.weight, own.repeat_draws) > 0)
