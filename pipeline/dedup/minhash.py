"""MinHash: a short signature whose agreement with another estimates the Jaccard similarity of two shingle sets.

A *shingle* is `ngram` words in a row. Documents of fewer words have none and no signature: they are compared whole, by
content hash only, so that distinct short replies neither collapse into one another nor vanish.
"""

import functools
from typing import Any

import numpy as np

from manifests.canonical import derived_seed
from pipeline.kernels.arrow import readonly
from pipeline.kernels.compiled import inlined, kernel
from pipeline.kernels.hashing import MULTIPLIER, mix64
from pipeline.kernels.text import Words

DEFAULT_NGRAM = 5
DEFAULT_NUM_PERMUTATIONS = 112  # 14 bands of 8 rows, as FineWeb

# Stands in the rows of documents without a signature; a real minimum is that only if every shingle hashes to it.
NO_SIGNATURE = np.uint32(0xFFFFFFFF)

# Shingles are hashed this many at a time: 4 KB that stay in the first-level cache while each permutation visits them.
_BLOCK = 1024


def signatures(
    words: Words, *, ngram: int = DEFAULT_NGRAM, num_permutations: int = DEFAULT_NUM_PERMUTATIONS
) -> tuple[np.ndarray, np.ndarray]:
    """(uint32 (n, num_permutations), bool (n,)): signatures, and which documents have one (at least `ngram` words).

    The share of equal entries of two rows estimates the Jaccard similarity of the documents' shingle sets, with
    standard deviation sqrt(J * (1 - J) / num_permutations).

    Entry p is the least value of (a_p * x + b_p) mod 2**32 over the shingles' 32-bit hashes x: the classic scheme, in
    32 bits so that a vector instruction does 8 or 16 of them. One-permutation hashing with densification does less
    arithmetic, but none that vectorises, so it was slower (560 MB/s against 880, benchmarks/kernels.py, 2026-11-29). It
    also copies entries into the bins a short document leaves empty: up to 50 shingles its error was 10 to 16 % larger
    and 1 to 2 % fewer of the pairs at J = 0.8 met in a band (at 400 shingles it was 12 % smaller), while this one is
    on the curve at every length.
    """
    _check(ngram, num_permutations)
    multipliers, increments = permutations(num_permutations)
    result = np.full((len(words), num_permutations), NO_SIGNATURE, dtype=np.uint32)
    offsets = readonly(words.offsets, np.int64)
    _signatures(readonly(words.hashes, np.uint64), offsets, ngram, multipliers, increments, result)
    return result, np.diff(words.offsets) >= ngram


def shingle_sets(words: Words, ngram: int = DEFAULT_NGRAM) -> tuple[np.ndarray, np.ndarray]:
    """(flat uint64, offsets int64 (n + 1)): each document's set of shingle hashes, sorted, without repeats.

    64 bits, so that two different shingles of a pair of 100,000-word documents are one with probability 10**-9.
    """
    _check(ngram, 1)
    counts = np.maximum(np.diff(words.offsets) - (ngram - 1), 0)
    ends = np.cumsum(counts)
    flat = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint64)
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    hashes, word_offsets = readonly(words.hashes, np.uint64), readonly(words.offsets, np.int64)
    _shingles(hashes, word_offsets, ngram, flat)
    # numpy sorts with vector instructions, five times as fast as a sort compiled by numba: worth a Python loop.
    for end, count in zip(ends.tolist(), counts.tolist(), strict=True):
        flat[end - count : end].sort()
    num_unique = _unique(flat, readonly(counts, np.int64), offsets)
    return flat[:num_unique], offsets


@functools.cache
def permutations(num_permutations: int) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers (odd) and increments, uint32 (num_permutations,), read-only: the first of one endless pinned list."""
    multipliers = [derived_seed("minhash", "multiplier", number) & 0xFFFFFFFF | 1 for number in range(num_permutations)]
    increments = [derived_seed("minhash", "increment", number) & 0xFFFFFFFF for number in range(num_permutations)]
    return readonly(multipliers, np.uint32), readonly(increments, np.uint32)


def _check(ngram: int, num_permutations: int) -> None:
    if ngram < 1 or num_permutations < 1:
        raise ValueError(f"ngram and num_permutations are at least 1, not {ngram} and {num_permutations}")


@inlined
def _shingle(hashes: Any, first: Any, ngram: Any) -> Any:
    """64-bit hash of the words hashes[first : first + ngram]; their order counts."""
    value = np.uint64(0)
    for word in range(first, first + ngram):
        value = value * MULTIPLIER + hashes[word]
    return mix64(value)


@kernel
def _signatures(hashes: Any, offsets: Any, ngram: Any, multipliers: Any, increments: Any, result: Any) -> None:
    num_permutations = len(multipliers)
    block = np.empty(_BLOCK, dtype=np.uint32)
    least = np.empty(num_permutations, dtype=np.uint32)
    for document in range(len(offsets) - 1):
        next_shingle, last_shingle = offsets[document], offsets[document + 1] - ngram
        least[:] = NO_SIGNATURE
        while next_shingle <= last_shingle:
            filled = min(_BLOCK, last_shingle - next_shingle + 1)
            for index in range(filled):
                block[index] = np.uint32(_shingle(hashes, next_shingle + index, ngram))
            next_shingle += filled
            # A last group of four is filled up with repeats, which change no minimum.
            while filled % 4:
                block[filled] = block[0]
                filled += 1
            _lower(block, filled, multipliers, increments, least)
        result[document] = least


@inlined
def _lower(block: Any, filled: Any, multipliers: Any, increments: Any, least: Any) -> None:
    """Lower `least` to the permuted values of block[:filled], four a turn: each load of a constant serves four."""
    for index in range(0, filled, 4):
        first, second, third, fourth = block[index], block[index + 1], block[index + 2], block[index + 3]
        for number in range(len(least)):
            multiplier, increment = multipliers[number], increments[number]
            one = min(np.uint32(multiplier * first + increment), np.uint32(multiplier * second + increment))
            two = min(np.uint32(multiplier * third + increment), np.uint32(multiplier * fourth + increment))
            least[number] = min(least[number], min(one, two))


@kernel
def _shingles(hashes: Any, offsets: Any, ngram: Any, flat: Any) -> None:
    written = 0
    for document in range(len(offsets) - 1):
        for first in range(offsets[document], offsets[document + 1] - ngram + 1):
            flat[written] = _shingle(hashes, first, ngram)
            written += 1


@kernel
def _unique(flat: Any, counts: Any, offsets: Any) -> Any:
    """Close up the repeats in each sorted stretch of `flat`, in place; fill `offsets`; return how many are left."""
    read = written = 0
    for document in range(len(counts)):
        for index in range(read, read + counts[document]):
            if index == read or flat[index] != flat[index - 1]:
                flat[written] = flat[index]
                written += 1
        read += counts[document]
        offsets[document + 1] = written
    return written
