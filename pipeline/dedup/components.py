"""Who is dropped for whom: one decision a document, in rank order, each for a document that is itself kept.

No transitive closure. A chain A ~ B ~ C, each like its neighbour, in this rank order: A is kept; B is dropped for A;
C is like B, but B is not there any more, so C is kept unless C itself was compared with A and found alike. So that it
is compared, `proposals` names the pair (C, A) for the next round.

Documents are decided by ranges of ranks, all ranges at once and again until nothing is undecided: a document waits
while a more preferred one of another range that it resembles is undecided. Each round settles at least one range more,
so there are never more rounds than ranges; what comes out is what one pass over all edges in rank order would give.
"""

from typing import Any

import numpy as np

from pipeline.dedup.records import EDGE, PAIR, places
from pipeline.kernels.arrow import readonly
from pipeline.kernels.compiled import kernel

UNDECIDED, KEPT, DROPPED = 0, 1, 2


def settle(edges: np.ndarray, outside: np.ndarray, first_rank: int, num_ranks: int) -> np.ndarray:
    """uint8 (num_ranks,): UNDECIDED, KEPT or DROPPED for the documents of ranks first_rank and up.

    `edges` EDGE (k,) are all verified pairs whose member is in the range, in any order; `outside` uint8 (k,) is what is
    known of the other where its rank is below first_rank. A document without an edge is kept; one like a kept document
    of lower rank is dropped. Costs one sort of the edges and one pass.
    """
    status = np.full(num_ranks, KEPT, np.uint8)
    order = np.argsort(edges["member"], kind="stable")
    member, other = (readonly(edges[name][order], np.int64) for name in ("member", "other"))
    if np.any(other >= member):
        raise ValueError("an edge leads from a document to one of lower rank: which to keep would be left to chance")
    _settle(member, other, readonly(outside[order], np.uint8), first_rank, status)
    return status


def chosen(edges: np.ndarray, other_status: np.ndarray) -> np.ndarray:
    """EDGE (d,), sorted by member: for each document that goes, the edge to the document it goes for.

    `other_status` uint8 (k,) is that of each edge's other. Of several kept ones the most similar; of equally similar
    ones the lowest rank.
    """
    edges = edges[other_status == KEPT]
    edges = edges[np.lexsort((edges["other"], -edges["similarity"], edges["member"]))]
    return edges[np.diff(edges["member"], prepend=-1) != 0]


def proposals(edges: np.ndarray, member_status: np.ndarray, keepers: np.ndarray) -> np.ndarray:
    """PAIR (k,): pairs (document, keeper) to compare before the decision is final, for edges from kept documents.

    A kept document with a verified edge to a dropped one may well be like the document that one was dropped for, and
    was perhaps never compared with it. `keepers` EDGE are the chosen edges of at least all dropped others, sorted by
    member. Take away what was compared before, compare the rest, add what holds to the edges, settle again, until
    nothing is proposed: every proposal is a new pair, so this ends.
    """
    loose = edges[member_status == KEPT]
    if not len(loose) or not len(keepers):
        return np.empty(0, PAIR)
    row = np.minimum(np.searchsorted(keepers["member"], loose["other"]), len(keepers) - 1)
    is_dropped = keepers["member"][row] == loose["other"]
    loose, keeper = loose[is_dropped], keepers[row[is_dropped]]
    pairs = np.empty(len(loose), PAIR)
    pairs["member"] = places(loose["member"], loose["member_size"])
    pairs["other"] = places(keeper["other"], keeper["other_size"])
    pairs["member_document"], pairs["other_document"] = loose["member_document"], keeper["other_document"]
    return pairs


def empty_edges() -> np.ndarray:
    """EDGE (0,)."""
    return np.empty(0, EDGE)


@kernel
def _settle(member: Any, other: Any, outside: Any, first_rank: Any, status: Any) -> None:
    edge = 0
    while edge < len(member):
        document = member[edge]
        is_waiting = is_dropped = False
        while edge < len(member) and member[edge] == document:
            known = outside[edge] if other[edge] < first_rank else status[other[edge] - first_rank]
            is_waiting |= known == UNDECIDED
            is_dropped |= known == KEPT
            edge += 1
        if is_dropped:
            status[document - first_rank] = DROPPED
        elif is_waiting:
            status[document - first_rank] = UNDECIDED
