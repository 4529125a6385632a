"""Deduplication as a whole: its decisions against plain Python, whatever the cutting into tasks."""

import random
from pathlib import Path
from typing import Any

import pytest

from pipeline import documents, inputs, shuffle
from pipeline.stages import candidates, deduplicate, exact, ranks
from tests.pipeline.dedup_corpus import (
    Document,
    config_for,
    dropped_of,
    jaccard,
    plain_cores,
    plain_decisions,
    run,
    shingles,
)

SMALL_PARTS = {
    (documents, "GROUP_DOCUMENTS"): 40,
    (shuffle, "MERGE_RECORDS"): 50,
    (candidates, "MAX_RUN_RECORDS"): 200,
    (candidates, "MAX_PAIRS"): 20,
    (candidates, "VERIFY_TEXT_BYTES"): 4_000,
    (deduplicate, "PART_RECORDS"): 300,
    (deduplicate, "SAME_PART_DOCUMENTS"): 50,
    (deduplicate, "LINES_PART_BYTES"): 2_000,
    (exact, "BATCH_ROWS"): 10,
    (ranks, "RANGE_DOCUMENTS"): 30,
}
"""Constants under which a corpus of a few hundred documents takes the way of one of billions."""

# So many bands of one row that every pair above the threshold meets: then plain Python knows what must come out.
SURE = {"bands": 60, "rows": 1, "threshold": 0.7, "templates": {"fraction": 0.2, "min_documents": 30}}


def words(generator: random.Random, number: int) -> list[str]:
    return [generator.choice("абвгдежзик") + str(generator.randrange(300)) for _ in range(number)]


def mixed_corpus(seed: int) -> list[Document]:
    """Revisions of revisions, exact copies across sources, tickets on a form, short texts: some 200 documents."""
    generator = random.Random(seed)
    made: list[Document] = []
    texts: list[list[str]] = []
    for number in range(150):
        text = words(generator, generator.randrange(6, 60))
        if texts and generator.random() < 0.7:
            text = list(generator.choice(texts))
            for _ in range(generator.randrange(3)):
                text[generator.randrange(len(text))] = words(generator, 1)[0]
        texts.append(text)
        body = " ".join(text)
        if generator.random() < 0.4:
            body = f"Добрый день, уважаемые коллеги!\n{body}\n\n  С уважением, отдел поддержки и сопровождения\n"
        made.append((generator.choice("ab"), f"{number:03d}", body))
    for number in range(40):
        source, _, text = generator.choice(made)
        made.append((generator.choice("ab"), f"copy {number}", text.replace(" ", "  ") if number % 2 else text))
        made.append((source, f"short {number}", " ".join(words(generator, 3))))
    return made


@pytest.mark.parametrize("seed", range(6))
def test_decisions_are_those_of_plain_python_over_all_pairs(tmp_path: Path, seed: int) -> None:
    corpus = mixed_corpus(seed)
    outcome = dropped_of(tmp_path, corpus, near=SURE)
    expected = plain_decisions(corpus, SURE["threshold"], SURE["templates"])
    found = outcome.decisions
    # A star pairs a bucket's members with one document only, so a few pairs may never have met.
    missed = expected.keys() - found.keys()
    assert found.keys() >= expected.keys() - missed
    assert len(missed) <= 0.02 * len(expected)
    if not missed:
        assert {key: value[2] for key, value in found.items()} == {key: value[2] for key, value in expected.items()}
    check_every_drop(corpus, found, SURE)


def check_every_drop(corpus: list[Document], found: dict[Any, Any], near: dict[str, Any]) -> None:
    text_of = {(source, id_): text for source, id_, text in corpus}
    cores = plain_cores(corpus, near["templates"]["fraction"], near["templates"]["min_documents"])
    for document, (source, id_, kind, similarity) in found.items():
        keeper = (source, id_)
        assert keeper not in found, "every keeper is kept"
        if kind == "exact":
            assert text_of[document].split() == text_of[keeper].split()
            assert similarity == 1.0
        else:
            assert jaccard(shingles(text_of[document]), shingles(text_of[keeper])) == pytest.approx(similarity)
            assert similarity >= near["threshold"]
            assert jaccard(shingles(cores[document]), shingles(cores[keeper])) >= 0.875 * near["threshold"]


@pytest.mark.parametrize("seed", range(3))
def test_decisions_do_not_depend_on_cutting_order_or_listing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = mixed_corpus(seed)
    whole = run(config_for(tmp_path / "whole", corpus, near=SURE)).decisions
    assert len(whole) > 50
    for (module, name), value in SMALL_PARTS.items():
        monkeypatch.setattr(module, name, value)
    one_file = inputs.group_inputs.__defaults__
    monkeypatch.setattr(inputs.group_inputs, "__defaults__", (1, *(one_file or ())[1:]))
    pieces = run(config_for(tmp_path / "pieces", corpus[::-1], files=7, near=SURE), backwards=True)
    assert pieces.decisions == whole
    folder = tmp_path / "pieces" / "out"
    assert len(list((folder / "duplicates" / "v1").glob("*.parquet"))) > 3
    assert len(list((folder / ".build" / "verify").glob("*.edges"))) > 5
    assert len(list((folder / ".build" / "rank").glob("*.ranks"))) > 3
