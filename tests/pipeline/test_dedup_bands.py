"""Bands, candidate pairs, and the choice of bands."""

import datasketch.lsh
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.bands import band_hashes, bands_for, probability, star_pairs
from pipeline.dedup.records import BAND, ranks, unique_pairs


def pairs(records: list[tuple[int, int]], rank: dict[int, int] | None = None, size: int = 100) -> list[list[int]]:
    """Pairs of (band hash, document) records, given in pieces of `size`; the rank is the number unless given."""
    found = np.empty(len(records), BAND)
    for row, (hash_, document) in enumerate(records):
        found[row] = (hash_, (rank[document] if rank else document) << 24, document)
    found = np.sort(found, order=["hash", "place"])
    bucket, parts = found[:0], []
    for start in range(0, len(found), size):
        part, bucket = star_pairs(found[start : start + size], bucket)
        parts.append(part)
    stars = unique_pairs(np.concatenate(parts)) if parts else star_pairs(found, bucket)[0]
    return sorted([int(pair["member_document"]), int(pair["other_document"])] for pair in stars)


def test_band_hashes_never_change() -> None:
    # Relied on by every version whose band records are stored for the next one to compare with.
    assert band_hashes(np.arange(8, dtype=np.uint32)[None], bands=2, rows=4).tolist() == [
        [6974101711787068185, 18044706645882813600]
    ]


def test_a_band_is_equal_where_all_its_rows_are() -> None:
    one = np.arange(12, dtype=np.uint32)
    other = one.copy()
    other[5] = 99
    hashes = band_hashes(np.stack((one, other)), bands=3, rows=4)
    assert (hashes[0] == hashes[1]).tolist() == [True, False, True]


def test_equal_rows_in_another_band_do_not_meet() -> None:
    hashes = band_hashes(np.zeros((1, 8), dtype=np.uint32), bands=2, rows=4)
    assert hashes[0, 0] != hashes[0, 1]


def test_more_rows_than_there_are_permutations_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"14 bands of 8 rows need 112 permutations.*the signatures have 100"):
        band_hashes(np.zeros((1, 100), dtype=np.uint32), bands=14, rows=8)


def test_a_bucket_is_a_star_around_its_lowest_rank() -> None:
    assert pairs([(7, 3), (7, 1), (7, 2), (8, 5)]) == [[2, 1], [3, 1]]
    assert pairs([(7, 3), (7, 1), (7, 2)], rank={3: 0, 1: 1, 2: 2}) == [[1, 3], [2, 3]]


def test_a_pair_that_meets_in_two_bands_is_proposed_once() -> None:
    assert pairs([(7, 1), (7, 2), (9, 2), (9, 1), (11, 1), (11, 1)]) == [[2, 1]]


def test_no_records_propose_nothing() -> None:
    assert pairs([]) == []


def test_a_bucket_of_a_million_in_pieces_is_a_million_pairs() -> None:
    num_documents, size = 1_000_000, 300_000
    records = np.zeros(num_documents, BAND)
    records["place"] = np.arange(num_documents, dtype=np.uint64) << np.uint64(24)
    bucket, num_pairs, others = records[:0], 0, set()
    for start in range(0, num_documents, size):
        found, bucket = star_pairs(records[start : start + size], bucket)
        num_pairs += len(found)
        others |= set(ranks(found["other"]).tolist())
    assert num_pairs == num_documents - 1
    assert others == {0}


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=25), st.permutations(range(10)))
def test_candidates_are_those_of_a_dictionary_of_buckets_in_any_order(
    records: list[tuple[int, int]], rank: list[int]
) -> None:
    buckets: dict[int, set[int]] = {}
    for hash_, document in records:
        buckets.setdefault(hash_, set()).add(document)
    expected = set()
    for members in buckets.values():
        canonical = min(members, key=lambda document: rank[document])
        expected |= {(member, canonical) for member in members - {canonical}}
    rank_of = dict(enumerate(rank))
    assert pairs(records, rank_of) == [list(pair) for pair in sorted(expected)]
    assert pairs(records[::-1], rank_of, size=3) == pairs(records, rank_of)


def test_the_curve_of_14_bands_of_8_rows() -> None:
    curve = probability([0.5, 0.7, 0.75, 0.8, 0.85])
    assert curve.round(3).tolist() == [0.053, 0.565, 0.772, 0.924, 0.988]


@pytest.mark.parametrize(
    ("threshold", "chosen"), [(0.5, (37, 3)), (0.7, (22, 5)), (0.8, (14, 8)), (0.9, (8, 13)), (1.0, (1, 112))]
)
def test_the_bands_for_a_threshold_find_nine_of_ten_pairs_that_lie_on_it(
    threshold: float, chosen: tuple[int, int]
) -> None:
    bands, rows = bands_for(threshold, 112)
    assert (bands, rows) == chosen
    assert probability(threshold, bands=bands, rows=rows) >= 0.9
    theirs, width = datasketch.lsh._optimal_param(threshold, 112, 0.5, 0.5)
    assert probability(threshold, bands=theirs, rows=width) <= probability(threshold, bands=bands, rows=rows)


@pytest.mark.parametrize(("threshold", "num_permutations"), [(1.5, 112), (0, 112), (float("nan"), 112), (0.8, 0)])
def test_a_threshold_outside_0_to_1_is_refused(threshold: float, num_permutations: int) -> None:
    with pytest.raises(ValueError, match="above 0, up to 1"):
        bands_for(threshold, num_permutations)
