"""Who is dropped for whom."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.components import proposals, resolve

Edges = list[tuple[int, int, float]]


def keepers(num_documents: int, edges: Edges, rank: list[int] | None = None) -> tuple[list[int], list[float]]:
    ends = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
    ranks = np.array(rank if rank else range(num_documents))
    keeper, similarity = resolve(num_documents, ends, np.array([edge[2] for edge in edges]), ranks)
    return keeper.tolist(), similarity.tolist()


def test_a_document_is_dropped_for_the_one_of_lower_rank() -> None:
    assert keepers(2, [(1, 0, 0.9)]) == ([0, 0], [1.0, 0.9])
    assert keepers(2, [(0, 1, 0.9)]) == ([0, 0], [1.0, 0.9])
    assert keepers(2, [(0, 1, 0.9)], rank=[5, 2]) == ([1, 1], [0.9, 1.0])


def test_the_end_of_a_chain_is_not_dropped_for_a_friend_of_a_friend() -> None:
    # A ~ B ~ C: B is dropped for A; C resembles only B, which is gone.
    assert keepers(3, [(1, 0, 0.85), (2, 1, 0.85)])[0] == [0, 0, 2]
    assert keepers(3, [(1, 0, 0.85), (2, 1, 0.85), (2, 0, 0.8)])[0] == [0, 0, 0]


def test_of_a_chain_of_26_neighbours_every_second_is_kept() -> None:
    edges = [(number, number - 1, 0.85) for number in range(1, 26)]
    assert keepers(26, edges)[0] == [number - number % 2 for number in range(26)]


def test_the_most_similar_keeper_is_named_and_of_equals_the_lowest_rank() -> None:
    assert keepers(3, [(2, 0, 0.8), (2, 1, 0.9)]) == ([0, 1, 1], [1.0, 1.0, 0.9])
    assert keepers(3, [(2, 1, 0.9), (2, 0, 0.9)]) == ([0, 1, 0], [1.0, 1.0, 0.9])


def test_a_more_similar_one_that_is_itself_dropped_does_not_count() -> None:
    assert keepers(3, [(1, 0, 0.8), (2, 1, 0.99), (2, 0, 0.81)]) == ([0, 0, 0], [1.0, 0.8, 0.81])


def test_without_edges_everything_is_kept() -> None:
    assert keepers(3, []) == ([0, 1, 2], [1.0, 1.0, 1.0])
    assert keepers(0, []) == ([], [])


def test_equal_ranks_along_an_edge_are_refused() -> None:
    with pytest.raises(ValueError, match="documents 0 and 1 both have rank 4"):
        keepers(2, [(0, 1, 0.9)], rank=[4, 4])


def plain_resolve(num_documents: int, edges: Edges, rank: list[int]) -> list[int]:
    keeper = list(range(num_documents))
    for document in sorted(range(num_documents), key=lambda one: rank[one]):
        choices = []
        for left, right, similarity in edges:
            if document in (left, right):
                other = right if document == left else left
                if rank[other] < rank[document] and keeper[other] == other:
                    choices.append((-similarity, rank[other], other))
        if choices:
            keeper[document] = min(choices)[2]
    return keeper


EDGES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from([0.8, 0.85, 0.9, 1.0])).filter(
        lambda edge: edge[0] != edge[1]
    ),
    max_size=20,
    unique_by=lambda edge: (min(edge[:2]), max(edge[:2])),
)


@settings(max_examples=120, deadline=None)
@given(EDGES, st.permutations(range(9)), st.randoms(use_true_random=False))
def test_decisions_are_those_of_plain_python_in_any_order_of_edges(
    edges: Edges, rank: list[int], random: object
) -> None:
    expected = plain_resolve(9, edges, rank)
    assert keepers(9, edges, rank)[0] == expected
    assert keepers(9, [(right, left, similarity) for left, right, similarity in edges[::-1]], rank)[0] == expected
    for document, keeper in enumerate(expected):
        assert expected[keeper] == keeper, "every keeper is kept"
        assert keeper == document or any({document, keeper} == {left, right} for left, right, _ in edges)


def test_the_keeper_of_a_dropped_neighbour_is_proposed() -> None:
    edges = np.array([[1, 0], [2, 1]])
    keeper, _ = resolve(3, edges, np.array([0.85, 0.85]), np.arange(3))
    assert proposals(edges, edges, keeper, np.arange(3)).tolist() == [[2, 0]]
    assert proposals(edges, np.array([[1, 0], [2, 1], [0, 2]]), keeper, np.arange(3)).tolist() == []
    assert proposals(edges[:0], edges[:0], np.arange(3), np.arange(3)).shape == (0, 2)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=12, unique=True), st.integers(1, 6))
def test_rounds_of_proposals_end_and_drop_only_for_what_is_alike(places: list[int], reach: int) -> None:
    """Documents are places on a line, alike within `reach`; at first only neighbours were compared."""
    position = np.array(sorted(places))
    rank = np.argsort(np.argsort([place * 7919 % 101 for place in position]))
    compared = np.array([[number, number - 1] for number in range(1, len(position))])
    while True:
        distance = np.abs(position[compared[:, 0]] - position[compared[:, 1]])
        alike = distance <= reach
        edges = compared[alike]
        keeper, _ = resolve(len(position), edges, 1.0 - distance[alike] / 100, rank)
        new = proposals(edges, compared, keeper, rank)
        if not len(new):
            break
        assert not {frozenset(pair) for pair in new.tolist()} & {frozenset(pair) for pair in compared.tolist()}
        compared = np.concatenate((compared, new))
    for document, kept_for in enumerate(keeper):
        assert abs(position[document] - position[kept_for]) <= reach
