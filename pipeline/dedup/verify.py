"""The Jaccard similarity of proposed pairs: exact from shingle sets, estimated from signatures where texts are not at
hand.
"""

from typing import Any

import numpy as np

from pipeline.kernels.arrow import readonly
from pipeline.kernels.compiled import kernel


def jaccard_pairs(shingles: np.ndarray, offsets: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """float64 (k,): |A & B| / |A | B| for each row of `pairs`, int64 (k, 2), of indices into the sets.

    `shingles` uint64 (m,) and `offsets` int64 (n + 1,) are what `minhash.shingle_sets` gives: sorted, without
    repeats. Two empty sets have similarity 0: of documents too short for a shingle nothing is known. Costs one merge
    of the two sets a pair.
    """
    result = np.empty(len(pairs), dtype=np.float64)
    pairs = readonly(pairs.reshape(-1, 2), np.int64)
    _jaccard_pairs(readonly(shingles, np.uint64), readonly(offsets, np.int64), pairs, result)
    return result


def estimated_pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float64 (k,): the share of equal entries of two signatures, uint32 (k, p) each.

    Its standard error is sqrt(J * (1 - J) / p): 0.038 at J = 0.8 with 112 permutations.
    """
    equal: np.ndarray = np.mean(left == right, axis=1) if len(left) else np.empty(0)
    return equal


@kernel
def _jaccard_pairs(shingles: Any, offsets: Any, pairs: Any, result: Any) -> None:
    for pair in range(len(pairs)):
        left, left_end = offsets[pairs[pair, 0]], offsets[pairs[pair, 0] + 1]
        right, right_end = offsets[pairs[pair, 1]], offsets[pairs[pair, 1] + 1]
        num_all, num_common = left_end - left + right_end - right, 0
        while left < left_end and right < right_end:
            # Which side is less cannot be predicted, so both steps are sums and nothing branches.
            one, other = shingles[left], shingles[right]
            num_common += one == other
            left += one <= other
            right += other <= one
        result[pair] = num_common / (num_all - num_common) if num_all else 0.0
