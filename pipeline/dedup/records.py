"""What deduplication passes from task to task: numpy structures of fixed width, for pipeline/shuffle.py.

A *document* is a number: the build's documents from 0 in the order they were read, then those of the base version. A
*rank* is a document's place in the order of preference, 0 first, among those that exact deduplication left; it follows
from content alone, so it is the same for any cutting into tasks. A *place* is rank and size in one number, in the order
of ranks: what compares two documents and what tells how much text a pair has are carried together.
"""

import numpy as np

SIZE_BITS = 24
SIZE_UNIT_BITS = 6
"""Sizes count 64 bytes, up to 1 GB. 40 bits are left for ranks: a million million documents."""

BAND = np.dtype([("hash", "<u8"), ("place", "<u8"), ("document", "<i8")])
PAIR = np.dtype([("member", "<u8"), ("other", "<u8"), ("member_document", "<i8"), ("other_document", "<i8")])
"""Two documents to compare, as places and as documents; `other` is the preferred one, of lower rank."""

EDGE = np.dtype(
    [
        ("member", "<i8"),
        ("other", "<i8"),
        ("member_document", "<i8"),
        ("other_document", "<i8"),
        ("similarity", "<f8"),
        ("member_size", "<i8"),
        ("other_size", "<i8"),
    ]
)
"""A pair that is alike enough, as ranks."""


def places(rank: np.ndarray, num_bytes: np.ndarray) -> np.ndarray:
    """uint64 (n,)."""
    size = np.minimum(num_bytes >> SIZE_UNIT_BITS, (1 << SIZE_BITS) - 1)
    return (rank.astype(np.uint64) << np.uint64(SIZE_BITS)) | size.astype(np.uint64)


def ranks(place: np.ndarray) -> np.ndarray:
    """int64 (n,): the rank in each place."""
    return (place >> np.uint64(SIZE_BITS)).astype(np.int64)


def sizes(place: np.ndarray) -> np.ndarray:
    """int64 (n,): about how many bytes of text, rounded up to 64."""
    units = (place & np.uint64((1 << SIZE_BITS) - 1)).astype(np.int64)
    return (units + 1) << SIZE_UNIT_BITS


def unique_pairs(pairs: np.ndarray) -> np.ndarray:
    """PAIR (k,) without repeats, sorted by member then other."""
    pairs = pairs[np.lexsort((pairs["other"], pairs["member"]))]
    if len(pairs) < 2:
        return pairs
    changes = (pairs["member"][1:] != pairs["member"][:-1]) | (pairs["other"][1:] != pairs["other"][:-1])
    return pairs[np.concatenate(([True], changes))]


def without(pairs: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The rows of sorted PAIR `pairs` that `known` PAIR does not hold."""
    both = np.concatenate([known, pairs])
    is_new = np.concatenate([np.zeros(len(known), np.int8), np.ones(len(pairs), np.int8)])
    order = np.lexsort((is_new, both["other"], both["member"]))
    ordered = both[order]
    repeats = np.zeros(len(both), np.bool_)
    repeats[1:] = (ordered["member"][1:] == ordered["member"][:-1]) & (ordered["other"][1:] == ordered["other"][:-1])
    return ordered[(is_new[order] == 1) & ~repeats]
