"""Deduplication as a whole: its decisions against plain Python, whatever the cutting into tasks."""

import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifests import storage
from pipeline import inputs, shuffle
from pipeline.config import NearConfig
from pipeline.dedup.records import PAIR, SIZE_BITS
from pipeline.shuffle import read_part, write_run
from pipeline.stages import read as reading
from pipeline.stages.candidates import GatherTask, gather
from pipeline.stages.deduplicate import what_is_missed
from tests.pipeline.dedup_corpus import (
    SURE,
    Document,
    config_for,
    dropped_of,
    jaccard,
    mixed_corpus,
    plain_cores,
    plain_decisions,
    plain_unique,
    run,
    shingles,
    words,
)
from tests.pipeline.small_parts import SMALL_PARTS


@pytest.mark.parametrize("seed", range(4))
def test_decisions_are_those_of_plain_python_over_all_pairs(tmp_path: Path, seed: int) -> None:
    corpus = mixed_corpus(seed)
    outcome = dropped_of(tmp_path, corpus, near=SURE)
    expected = plain_decisions(corpus, SURE["threshold"], SURE["templates"])
    found = outcome.decisions
    # A star pairs a bucket's members with one document only, so a few pairs may never have met.
    missed = expected.keys() - found.keys()
    assert found.keys() >= expected.keys() - missed
    assert len(missed) <= 0.05 * len(expected)
    if not missed:
        assert {key: value[2] for key, value in found.items()} == {key: value[2] for key, value in expected.items()}
    check_every_drop(corpus, found, SURE)


def check_every_drop(corpus: list[Document], found: dict[Any, Any], near: dict[str, Any]) -> None:
    text_of = {(source, id_): text for source, id_, text in corpus}
    cores = plain_cores(corpus, near["templates"]["fraction"], near["templates"]["min_documents"])
    # A copy goes as the text that stands for it does, whose source may have other template lines.
    compared = {copy[:2]: stands[:2] for copy, stands in plain_unique(corpus)[1]}
    for document, (source, id_, kind, similarity) in found.items():
        keeper = (source, id_)
        assert keeper not in found, "every keeper is kept"
        if kind == "exact":
            assert text_of[document].split() == text_of[keeper].split()
            assert similarity == 1.0
        else:
            assert jaccard(shingles(text_of[document]), shingles(text_of[keeper])) == pytest.approx(similarity)
            assert similarity >= near["threshold"]
            core = cores[compared.get(document, document)]
            assert jaccard(shingles(core), shingles(cores[keeper])) >= 0.875 * near["threshold"]


def use_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in SMALL_PARTS.items():
        monkeypatch.setattr(module, name, value)
    one_file = inputs.group_inputs.__defaults__
    monkeypatch.setattr(inputs.group_inputs, "__defaults__", (1, *(one_file or ())[1:]))


def test_decisions_on_s3_where_tasks_gather_by_way_of_the_local_disk_are_those_of_the_local_disk(
    tmp_path: Path, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = mixed_corpus(1)[:120]
    config = config_for(tmp_path, corpus, near=SURE)
    expected = run(config).decisions
    use_small_parts(monkeypatch)
    assert run(dataclasses.replace(config, output=f"{s3_root}/out")).decisions == expected
    assert len(expected) > 20


@pytest.mark.parametrize("seed", [0])
def test_decisions_do_not_depend_on_cutting_order_or_listing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = mixed_corpus(seed)
    whole = run(config_for(tmp_path / "whole", corpus, near=SURE)).decisions
    assert len(whole) > 50
    use_small_parts(monkeypatch)
    pieces = run(config_for(tmp_path / "pieces", corpus[::-1], files=7, near=SURE), backwards=True)
    assert pieces.decisions == whole
    folder = tmp_path / "pieces" / "out"
    assert len(list((folder / "duplicates" / "v1").glob("*.parquet"))) > 3
    assert len(list((folder / ".build" / "verify").glob("*.edges"))) > 5
    assert len(list((folder / ".build" / "rank").glob("*.ranks"))) > 3


def kept_of(corpus: list[Document], decisions: dict[tuple[str, str], Any]) -> list[Document]:
    return [document for document in corpus if document[:2] not in decisions]


def test_distinct_short_texts_all_survive_and_equal_ones_are_kept_once(tmp_path: Path) -> None:
    generator = random.Random(1)
    replies = [("a", f"r{i:04d}", generator.choice(["Спасибо", "OK", "Решено"])) for i in range(1_000)]
    distinct = [("a", f"d{i:04d}", f"ответ {i} готов") for i in range(1_000)]
    outcome = dropped_of(tmp_path, [*replies, *distinct])
    kept = [text for _, _, text in kept_of([*replies, *distinct], outcome.decisions)]
    assert sorted(kept) == sorted({text for _, _, text in [*replies, *distinct]})
    assert {row["kind"] for row in outcome.rows} == {"exact"}


FORM = (
    "Заявка в службу поддержки\nОтдел: бухгалтерия и финансы\nВерсия: 8.3.22 платформа\n{}\n\nС уважением,\nИван\n"
    + ("Это письмо предназначено только адресату; если вы получили его по ошибке, удалите его и сообщите отправителю.")
)


def test_tickets_on_one_form_with_different_problems_are_all_kept_and_equal_problems_once(tmp_path: Path) -> None:
    generator = random.Random(2)
    problems = [" ".join(words(generator, generator.randrange(4, 12))) for _ in range(800)]
    tickets = [("a", f"{i:03d}", FORM.format(problem)) for i, problem in enumerate(problems)]
    long = " ".join(words(generator, 60))
    alike = [("a", "x1", FORM.format(long)), ("a", "x2", FORM.format(long + " срочно"))]
    outcome = dropped_of(tmp_path, [*tickets, *alike])
    assert list(outcome.decisions) == [("a", "x2")]
    number, commonest = outcome.dropped.templates["a"]
    assert number == 6
    assert commonest[0]["count"] == 802
    assert "Заявка в службу поддержки" in [row["line"] for row in commonest]
    assert outcome.dropped.num_pairs < 3 * len(tickets), "a hot bucket is a star"


@pytest.mark.parametrize("level", [0, 1])
def test_a_page_that_many_documents_copy_is_no_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """150 copies of a page and 20 variants of it, all of them lines of 100 documents and more."""
    generator = random.Random(4)
    lines = [words(generator, 12) for _ in range(30)]
    page = "\n".join(map(" ".join, lines))
    corpus = [("a", f"copy {i:03d}", page) for i in range(150)]
    for i in range(20):
        corpus.append(("a", f"variant {i:02d}", page.replace(lines[i][5], "иначе", 1)))
    corpus += [("a", f"x{i:03d}", " ".join(words(generator, 20))) for i in range(400)]
    monkeypatch.setattr(reading, "_lines_level", lambda _num_bytes: level)
    outcome = dropped_of(tmp_path, corpus)
    kinds = Counter(kind for _, _, kind, _ in outcome.decisions.values())
    assert kinds == {"exact": 149, "near": 20}
    assert outcome.dropped.templates == {}


def test_of_a_chain_of_neighbours_nobody_goes_for_a_friend_of_a_friend(tmp_path: Path) -> None:
    generator = random.Random(3)
    chain: list[Document] = []
    text = words(generator, 300)
    for link in range(26):
        chain.append(("a", f"{link:02d}", " ".join(text)))
        for _ in range(5):
            text[generator.randrange(300)] = words(generator, 1)[0]
    assert jaccard(shingles(chain[0][2]), shingles(chain[-1][2])) < 0.2
    outcome = dropped_of(tmp_path, chain)
    near = {"threshold": 0.8, "templates": {"fraction": 0.02, "min_documents": 100}}
    check_every_drop(chain, outcome.decisions, near)
    assert 5 < len(outcome.decisions) < 20


def test_many_identical_documents_are_one_and_cost_no_pairs(tmp_path: Path) -> None:
    corpus = [("a", f"{i:05d}", "Один и тот же текст, который пришёл много раз подряд.") for i in range(30_000)]
    outcome = dropped_of(tmp_path, corpus)
    assert outcome.dropped.num_pairs == 0
    assert len(outcome.rows) == 29_999
    assert {row["keeper_id"] for row in outcome.rows} == {"00000"}
    assert outcome.dropped.clusters == ({"source": "a", "id": "00000", "num_exact": 29_999, "num_near": 0},)
    assert outcome.dropped.warnings({"a": 30_000}) == [
        "warning: source a lost 29,999 of 30,000 documents as duplicates: look at `python -m pipeline duplicates`",
        "warning: 29,999 documents (0 of them near duplicates) went for one, 00000 of source a",
    ]


def test_the_keeper_is_of_higher_priority_then_longest_where_asked_then_of_smallest_id(tmp_path: Path) -> None:
    text = "один два три четыре пять шесть"
    corpus = [("a", "1", text), ("b", "9", text), ("b", "8", text.replace(" ", "  "))]
    assert dropped_of(tmp_path / "id", corpus).decisions == {
        ("a", "1"): ("b", "8", "exact", 1.0),
        ("b", "9"): ("b", "8", "exact", 1.0),
    }
    corpus[2] = ("b", "9z", text.replace(" ", "  "))
    assert kept_of(corpus, dropped_of(tmp_path / "long", corpus, keep="longest").decisions) == corpus[2:]


def test_documents_equal_but_for_white_space_leave_the_same_one_in_any_order(tmp_path: Path) -> None:
    """Source, id and normalised text are the same: only the text as it stands tells them apart."""
    corpus = [("a", "1", "один  два три"), ("a", "1", "один два  три"), ("a", "1", "один два три")]
    kept = []
    for number, listed in enumerate((corpus, corpus[::-1])):
        outcome = dropped_of(tmp_path / str(number), listed)
        assert len(outcome.rows) == 2
        files = outcome.files
        kept.append([text for text, stays in files if stays])
    assert kept[0] == kept[1]


def test_a_copy_of_a_near_duplicate_goes_for_the_document_that_stays(tmp_path: Path) -> None:
    long = " ".join(f"слово{i}" for i in range(80))
    corpus = [("a", "1", long), ("a", "2", long + " ещё"), ("a", "3", long + "  ещё")]
    decisions = dropped_of(tmp_path, corpus).decisions
    assert decisions == {("a", number): ("a", "1", "near", round(76 / 77, 9)) for number in "23"}


def test_switched_off_nothing_goes(tmp_path: Path) -> None:
    corpus = mixed_corpus(0)[:60]
    outcome = dropped_of(
        tmp_path,
        [*corpus, *[("a", f"again {i}", row[2]) for i, row in enumerate(corpus)]],
        exact=False,
        near={"enabled": False},
    )
    assert outcome.rows == []


def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    """Every second result is lost, as when a driver died between units."""
    config = config_for(tmp_path, mixed_corpus(1), near=SURE)
    whole = run(config).decisions
    results = sorted(Path(config.output, ".build").glob("*/*.json"))
    assert len({path.parent.name for path in results}) >= 10
    for path in results[::2]:
        path.unlink()
    assert run(config).decisions == whole
    for path in sorted(Path(config.output, ".build").glob("*/*"))[::3]:
        path.unlink()
    assert run(config).decisions == whole


def test_bands_that_find_too_few_of_the_wanted_pairs_are_told_with_better_ones() -> None:
    assert what_is_missed(NearConfig()) is None
    assert what_is_missed(NearConfig(threshold=0.7, enabled=False)) is None
    assert what_is_missed(NearConfig(threshold=0.7)) == (
        "note: dedup.near: 14 bands of 8 rows find 56 % of the pairs that are 0.7 alike; bands=22 and rows=5 find 98 %"
    )


def test_pairs_that_meet_in_many_bands_are_gathered_without_all_of_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = np.zeros(30, PAIR)
    pairs["member"], pairs["other"] = (np.arange(30) + 40) << SIZE_BITS, np.arange(30) << SIZE_BITS
    pairs["member_document"], pairs["other_document"] = np.arange(30) + 40, np.arange(30)
    urls = tuple(str(tmp_path / f"band {number}") for number in range(10))
    for url in urls:
        write_run(url, pairs, np.zeros(30, np.int64), 1, ["member", "other"])
    asked: list[int] = []
    whole = storage.read_bytes
    monkeypatch.setattr(storage, "read_bytes", lambda url, start, num: asked.append(num) or whole(url, start, num))
    monkeypatch.setattr(shuffle, "MERGE_RECORDS", 50)
    task = GatherTask(
        run_urls=urls,
        part=0,
        num_parts=1,
        first_documents=(0,),
        pairs_url=str(tmp_path / "pairs"),
        needs_url=str(tmp_path / "needs"),
    )
    assert gather(task)["num_pairs"] == 30
    assert max(asked) == 5 * PAIR.itemsize
    assert read_part([task.pairs_url], PAIR, 0, 1, ["member", "other"]).tolist() == pairs.tolist()
