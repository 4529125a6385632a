"""Who is dropped for whom: one decision a document, in rank order, each for a document that is itself kept.

No transitive closure. A chain A ~ B ~ C, each like its neighbour, in this rank order: A is kept; B is dropped for A;
C is like B, but B is not there any more, so C is kept unless C itself was compared with A and found alike. So that it
is compared, `proposals` names the pair (C, A) for the next round.
"""

from typing import Any

import numpy as np

from pipeline.dedup.bands import unique_pairs
from pipeline.kernels.arrow import readonly
from pipeline.kernels.compiled import kernel


def resolve(
    num_documents: int, edges: np.ndarray, similarity: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(keeper int64 (n,), similarity float64 (n,)): the document each is dropped for, or itself where it is kept.

    `edges` int64 (k, 2) are verified pairs, at or above the threshold, in any order and direction; `similarity`
    float64 (k,) theirs; `rank` int64 (n,) says who is preferred, lowest first, no two alike. The similarity is the
    one with the keeper, 1.0 for a kept document.

    A document is dropped only for a kept one of lower rank: of several, for the most similar; of equally similar, for
    the lowest rank. So the result does not depend on the order of edges. Costs one sort of the edges and one pass.

    Raises ValueError for an edge between documents of one rank: which of them to keep would be left to chance.
    """
    keeper = np.arange(num_documents, dtype=np.int64)
    kept_similarity = np.ones(num_documents, dtype=np.float64)
    dropped, kept = _by_rank(edges, rank)
    order = np.lexsort((rank[kept], -similarity, rank[dropped]))
    edge_ends = readonly(dropped[order], np.int64), readonly(kept[order], np.int64)
    _resolve(*edge_ends, readonly(similarity[order], np.float64), keeper, kept_similarity)
    return keeper, kept_similarity


def proposals(edges: np.ndarray, compared: np.ndarray, keeper: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """int64 (k, 2): pairs [document, keeper] to compare before the decision is final, sorted; none when it is.

    A kept document with a verified edge to a dropped one may well be like the document that one was dropped for, and
    was perhaps never compared with it. `compared` int64 (m, 2) are all pairs compared so far, alike or not, in either
    direction. Compare the proposals, add those that hold to the edges, resolve again, until nothing is proposed:
    `compared` grows each round and every proposal is a new pair, so this ends.
    """
    document, other = _by_rank(edges, rank)
    loose = (keeper[document] == document) & (keeper[other] != other)
    pairs = unique_pairs(np.stack((document[loose], keeper[other[loose]]), axis=1))
    known = np.sort(compared.reshape(-1, 2), axis=1).astype(np.int64)
    keys, known_keys = _keys(np.sort(pairs, axis=1), len(rank)), _keys(known, len(rank))
    return pairs[~np.isin(keys, known_keys)]


def _by_rank(edges: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of each edge: first the one that would be dropped, of higher rank."""
    left, right = edges.reshape(-1, 2).T.astype(np.int64)
    equal = np.flatnonzero(rank[left] == rank[right])
    if len(equal):
        one, other = left[equal[0]], right[equal[0]]
        raise ValueError(f"documents {one} and {other} both have rank {rank[one]}: ranks must differ along every edge")
    left_first = rank[left] > rank[right]
    return np.where(left_first, left, right), np.where(left_first, right, left)


def _keys(pairs: np.ndarray, num_documents: int) -> np.ndarray:
    """One int64 a pair; exact up to three billion documents a call."""
    return pairs[:, 0] * np.int64(num_documents) + pairs[:, 1]


@kernel
def _resolve(dropped: Any, kept: Any, similarity: Any, keeper: Any, kept_similarity: Any) -> None:
    """Edges come by rank of the document to drop, the best of each first, so the first that holds decides."""
    for edge in range(len(dropped)):
        document, other = dropped[edge], kept[edge]
        if keeper[document] == document and keeper[other] == other:
            keeper[document] = other
            kept_similarity[document] = similarity[edge]
