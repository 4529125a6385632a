"""Exact Jaccard similarity of pairs, by hand, by sets, and against the corpus' own labels."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.bands import band_hashes, probability
from pipeline.dedup.minhash import shingle_sets, signatures
from pipeline.dedup.verify import estimated_pairs, jaccard_pairs
from pipeline.kernels.text import Words, analyse
from tests.pipeline.kernels_corpus import labelled_revisions, sample_texts, source_texts


def words_of(texts: list[str]) -> Words:
    return analyse(pa.array(texts, pa.large_string()))[1]


def plain_set(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + 5]) for start in range(len(words) - 4)}


def plain_jaccard(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> float:
    return len(left & right) / len(left | right) if left or right else 0.0


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12)), min_size=2, max_size=5))
def test_similarity_is_common_over_all(sets: list[set[int]]) -> None:
    shingles = np.array([shingle for one in sets for shingle in sorted(one)], np.uint64)
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    pairs = [(left, right) for left in range(len(sets)) for right in range(len(sets))]
    expected = [len(sets[a] & sets[b]) / len(sets[a] | sets[b]) if sets[a] | sets[b] else 0.0 for a, b in pairs]
    assert jaccard_pairs(shingles, offsets, np.array(pairs)).tolist() == expected


def test_no_pairs_have_no_similarities() -> None:
    assert jaccard_pairs(np.zeros(0, np.uint64), np.array([0, 0]), np.zeros((0, 2), np.int64)).tolist() == []


def test_an_estimate_is_the_share_of_equal_entries() -> None:
    left = np.array([[1, 2, 3, 4], [1, 2, 3, 4]], np.uint32)
    right = np.array([[1, 2, 3, 9], [5, 6, 7, 8]], np.uint32)
    assert estimated_pairs(left, right).tolist() == [0.75, 0.0]
    assert estimated_pairs(left[:0], right[:0]).tolist() == []


def test_one_changed_word_of_ten_costs_five_shingles() -> None:
    left = "the printer on the second floor does not print today"
    words = words_of([left, left.replace("second", "third")])
    # Six shingles each; the changed word stands fifth, so in five of them: one is common, eleven are all.
    assert jaccard_pairs(*shingle_sets(words), np.array([[0, 1]])).tolist() == [1 / 11]


def test_similarities_of_real_documents_are_those_of_plain_python_sets(corpus_dir: Path) -> None:
    texts = sample_texts(corpus_dir)[:300]
    sets = [plain_set(text) for text in texts]
    pairs = np.array([(left, right) for left in range(300) for right in range(left) if (left + right) % 7 == 0])
    similarity = jaccard_pairs(*shingle_sets(words_of(texts)), pairs)
    assert similarity.tolist() == [plain_jaccard(sets[left], sets[right]) for left, right in pairs]


def test_labelled_revisions_have_the_similarity_on_the_label_and_meet_as_often_as_the_curve_says(
    corpus_dir: Path,
) -> None:
    texts: dict[str, str] = {}
    for name in ("docs/debian_manuals", "docs/manpages"):
        texts |= source_texts(corpus_dir, name)
    labels = [label for label in labelled_revisions(corpus_dir) if label[0] in texts and label[1] in texts]
    assert len(labels) > 3_000
    ids = sorted({id_ for label in labels for id_ in label[:2]})
    place = {id_: number for number, id_ in enumerate(ids)}
    pairs = np.array([(place[left], place[right]) for left, right, _ in labels])
    words = words_of([texts[id_] for id_ in ids])
    similarity = jaccard_pairs(*shingle_sets(words), pairs)
    assert np.abs(similarity - [label[2] for label in labels]).max() < 0.0001

    bands = band_hashes(signatures(words)[0])
    met = np.any(bands[pairs[:, 0]] == bands[pairs[:, 1]], axis=1)
    expected = probability(similarity)
    # Chains of versions share documents, so the pairs are not independent: the bound is wide on purpose.
    assert abs(met.sum() - expected.sum()) < 4 * np.sqrt((expected * (1 - expected)).sum())
