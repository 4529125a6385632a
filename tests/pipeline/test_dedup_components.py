"""Who is dropped for whom."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.components import DROPPED, KEPT, UNDECIDED, chosen, proposals, settle
from pipeline.dedup.records import EDGE, ranks

Edges = list[tuple[int, int, float]]


def edges_of(edges: Edges) -> np.ndarray:
    """EDGE of (rank, rank, similarity); a document's number is its rank plus 1000."""
    found = np.zeros(len(edges), EDGE)
    for row, (one, other, similarity) in enumerate(edges):
        found[row] = (
            max(one, other),
            min(one, other),
            max(one, other) + 1000,
            min(one, other) + 1000,
            similarity,
            64,
            64,
        )
    return found


def keepers(num_documents: int, edges: Edges, length: int | None = None) -> tuple[list[int], int]:
    """(each document's keeper, or itself; rounds it took) when decided by ranges of `length` ranks, all at once."""
    found, length = edges_of(edges), length or max(1, num_documents)
    status = np.full(num_documents, UNDECIDED, np.uint8)
    rounds = 0
    while not rounds or np.any(status == UNDECIDED):
        before, rounds = status.copy(), rounds + 1
        for first in range(0, num_documents, length):
            inside = found[(found["member"] >= first) & (found["member"] < first + length)]
            size = min(length, num_documents - first)
            status[first : first + size] = settle(inside, before[inside["other"]], first, size)
        assert rounds <= 1 + num_documents // length + 1
    keeper = list(range(num_documents))
    for edge in chosen(found, status[found["other"]]):
        keeper[edge["member"]] = int(edge["other"])
    assert [number for number in range(num_documents) if keeper[number] != number] == np.flatnonzero(
        status == DROPPED
    ).tolist()
    return keeper, rounds


def test_a_document_is_dropped_for_the_one_of_lower_rank() -> None:
    assert keepers(2, [(1, 0, 0.9)]) == ([0, 0], 1)


def test_the_end_of_a_chain_is_not_dropped_for_a_friend_of_a_friend() -> None:
    # A ~ B ~ C: B is dropped for A; C resembles only B, which is gone.
    assert keepers(3, [(1, 0, 0.85), (2, 1, 0.85)])[0] == [0, 0, 2]
    assert keepers(3, [(1, 0, 0.85), (2, 1, 0.85), (2, 0, 0.8)])[0] == [0, 0, 0]


@pytest.mark.parametrize(("length", "rounds"), [(26, 1), (5, 6), (1, 26)])
def test_of_a_chain_of_26_neighbours_every_second_is_kept_whatever_the_ranges(length: int, rounds: int) -> None:
    edges = [(number, number - 1, 0.85) for number in range(1, 26)]
    assert keepers(26, edges, length) == ([number - number % 2 for number in range(26)], rounds)


def test_the_most_similar_keeper_is_named_and_of_equals_the_lowest_rank() -> None:
    assert keepers(3, [(2, 0, 0.8), (2, 1, 0.9)])[0] == [0, 1, 1]
    assert keepers(3, [(2, 1, 0.9), (2, 0, 0.9)])[0] == [0, 1, 0]


def test_a_more_similar_one_that_is_itself_dropped_does_not_count() -> None:
    assert keepers(3, [(1, 0, 0.8), (2, 1, 0.99), (2, 0, 0.81)])[0] == [0, 0, 0]


def test_without_edges_everything_is_kept() -> None:
    assert keepers(3, [])[0] == [0, 1, 2]
    assert keepers(0, []) == ([], 1)


def test_an_edge_to_a_document_of_no_lower_rank_is_refused() -> None:
    edges = edges_of([(1, 0, 0.9)])
    edges["other"] = 1
    with pytest.raises(ValueError, match="lower rank"):
        settle(edges, np.zeros(1, np.uint8), 0, 2)


def plain_keepers(num_documents: int, edges: Edges) -> list[int]:
    keeper = list(range(num_documents))
    for document in range(num_documents):
        choices = []
        for left, right, similarity in edges:
            if document == max(left, right) and keeper[min(left, right)] == min(left, right):
                choices.append((-similarity, min(left, right)))
        if choices:
            keeper[document] = min(choices)[1]
    return keeper


EDGES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from([0.8, 0.85, 0.9, 1.0])).filter(
        lambda edge: edge[0] != edge[1]
    ),
    max_size=25,
    unique_by=lambda edge: (min(edge[:2]), max(edge[:2])),
)


@settings(max_examples=150, deadline=None)
@given(EDGES, st.integers(1, 12))
def test_decisions_are_those_of_plain_python_in_any_ranges_and_order_of_edges(edges: Edges, length: int) -> None:
    expected = plain_keepers(12, edges)
    assert keepers(12, edges, length)[0] == expected
    assert keepers(12, edges[::-1])[0] == expected


def test_the_keeper_of_a_dropped_neighbour_is_proposed() -> None:
    edges = edges_of([(1, 0, 0.85), (2, 1, 0.85)])
    status = np.array([KEPT, DROPPED, KEPT], np.uint8)
    named = chosen(edges, status[edges["other"]])
    found = proposals(edges, status[edges["member"]], named)
    assert (ranks(found["member"]).tolist(), ranks(found["other"]).tolist()) == ([2], [0])
    assert (found["member_document"].tolist(), found["other_document"].tolist()) == ([1002], [1000])
    assert len(proposals(edges[:0], status[:0], named)) == 0
    assert len(proposals(edges, status[edges["member"]], named[:0])) == 0
