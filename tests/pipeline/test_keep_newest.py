"""dedup.keep newest: of duplicates from sources of equal priority the one with the latest date stays."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from manifests.errors import UserError
from pipeline.build import Host, build
from pipeline.checks import check_dates
from pipeline.config import BuildConfig, parse
from pipeline.stages.read import Read, find_all_inputs, read, undated_in_words
from tests.pipeline.dedup_corpus import (
    SURE,
    Dates,
    Document,
    config_for,
    decisions_of,
    dropped_of,
    mixed_corpus,
    plain_decisions,
    rows_of,
    run,
    values_for,
)
from tests.pipeline.inline_runtime import InlineRuntime
from tests.pipeline.small_parts import SMALL_PARTS

TEXT = "один два три четыре пять шесть"


def dates_for(corpus: list[Document]) -> Dates:
    """A date for four documents of five, some of them equal."""
    generator = random.Random(1)
    return {
        document[:2]: None if generator.random() < 0.2 else generator.randrange(-20, 20) * 86_400 for document in corpus
    }


def test_the_newest_stays_then_the_smallest_id_and_one_without_a_date_is_the_oldest() -> None:
    """What the reference of the tests below says, in a case to look at."""
    corpus = [("a", "1", TEXT), ("a", "2", TEXT), ("a", "3", TEXT), ("a", "4", TEXT)]
    dates = {("a", "1"): None, ("a", "2"): -5, ("a", "3"): 9, ("a", "4"): 9}
    expected = {("a", other): ("a", "3", "exact", 1.0) for other in "124"}
    assert plain_decisions(corpus, 0.8, {"fraction": 1.0, "min_documents": 100}, dates) == expected


def test_exact_duplicates_go_for_the_newest_after_priority_and_before_the_smallest_id(tmp_path: Path) -> None:
    corpus = [("a", "1", TEXT), ("a", "2", TEXT), ("a", "3", TEXT), ("a", "4", TEXT)]
    dates = {("a", "1"): None, ("a", "2"): -5, ("a", "3"): 9, ("a", "4"): 9}
    expected = {("a", other): ("a", "3", "exact", 1.0) for other in "124"}
    assert dropped_of(tmp_path / "one", corpus, dates=dates, keep="newest").decisions == expected
    corpus.append(("b", "5", TEXT))  # of higher priority, and older
    expected = {("a", other): ("b", "5", "exact", 1.0) for other in "1234"}
    outcome = dropped_of(tmp_path / "two", corpus, dates={**dates, ("b", "5"): -99}, keep="newest")
    assert outcome.decisions == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_exact_and_near_decisions_are_those_of_plain_python_in_any_order_and_any_cutting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    corpus = mixed_corpus(seed)
    dates = dates_for(corpus)
    outcome = run(config_for(tmp_path / "one", corpus, dates=dates, keep="newest", near=SURE))
    expected = plain_decisions(corpus, SURE["threshold"], SURE["templates"], dates)
    assert len(expected) > 70
    assert {kind for _, _, kind, _ in expected.values()} == {"exact", "near"}
    assert outcome.decisions == expected
    assert outcome.decisions != run(config_for(tmp_path / "by-id", corpus, near=SURE)).decisions
    for (module, name), value in SMALL_PARTS.items():
        monkeypatch.setattr(module, name, value)
    config = config_for(tmp_path / "two", corpus[::-1], 7, dates=dates, keep="newest", near=SURE)
    assert run(config, backwards=True).decisions == expected


def test_what_the_base_version_holds_stays_though_a_new_document_is_newer(tmp_path: Path) -> None:
    words = [f"слово{n}" for n in range(40)]
    old, changed = " ".join(words), " ".join([*words, "ещё"])
    versions = (
        ("v1", [("a", "old", old)], {("a", "old"): 5}),
        ("v2", [("a", "copy", old), ("a", "late", changed), ("a", "later", "другое")], {("a", "late"): 9}),
    )
    for version, corpus, dates in versions:
        values = {
            **values_for(tmp_path / version, corpus, files=1, dates=dates, keep="newest"),
            "output": str(tmp_path / "data"),
            "version": version,
            "base": "v1.json" if version == "v2" else None,
            "example": {"seq_len": 2},
            "validation": {"fraction": 0.0},
        }
        runtime = InlineRuntime(build_url=f"{tmp_path}/data/.build")
        build(parse(values), runtime, Host(workers=1, ray="none"), lambda _line: None)
    rows = decisions_of(rows_of(str(tmp_path / "data" / "duplicates" / "v2")))
    assert {key: value[:3] for key, value in rows.items()} == {
        ("a", "copy"): ("a", "old", "exact"),
        ("a", "late"): ("a", "old", "near"),
    }


def read_of(config: BuildConfig) -> Read:
    return read(InlineRuntime(build_url=f"{config.output}/.build"), config, find_all_inputs(config))


def test_documents_without_a_date_are_counted_by_source_and_kept(tmp_path: Path) -> None:
    corpus = [("a", "1", "один"), ("a", "2", "два"), ("b", "3", "три"), ("b", "4", "четыре")]
    dates = {("a", "1"): 5, ("b", "3"): 7}
    config = config_for(tmp_path, corpus, dates=dates, keep="newest")
    documents = read_of(config)
    assert documents.num_kept == 4
    assert documents.num_undated == {"a": 1, "b": 1}
    assert undated_in_words(config, documents) == (
        "note: 2 of 4 documents have no date that can be read (a 1, b 1): of duplicates they count as the oldest"
    )
    whole = config_for(tmp_path / "all", corpus, dates={document[:2]: 5 for document in corpus}, keep="newest")
    assert undated_in_words(whole, read_of(whole)) is None


def test_dates_are_not_read_where_another_rule_says_who_stays(tmp_path: Path) -> None:
    corpus = [("a", "1", "один")]
    config = config_for(tmp_path, corpus, dates={("a", "1"): 5}, keep="longest")
    documents = read_of(config)
    assert documents.num_undated == {"a": 1}
    assert undated_in_words(config, documents) is None


def test_a_field_that_no_document_has_is_a_wrong_request(tmp_path: Path) -> None:
    config = config_for(tmp_path, [("a", "1", "один")], dates={("z", "9"): 5}, keep="newest")
    with pytest.raises(
        UserError, match=r"^dedup.keep is newest, but none of 1 documents has a date that can be read: "
    ):
        undated_in_words(config, read_of(config))


@pytest.mark.parametrize(
    ("name", "source", "is_fine"),
    [
        ("a.jsonl", {}, False),
        ("a.jsonl.zst", {}, False),
        ("a.parquet", {"format": "parquet"}, False),
        ("a.txt", {"format": "text"}, False),
        ("a.jsonl", {"date": "written"}, True),
        ("a.mbox", {}, True),
        ("a", {"format": "eml"}, True),
        ("a.tar.gz", {}, True),  # mails may be in it: reading will tell
    ],
)
def test_newest_wants_a_source_that_can_have_dates(
    tmp_path: Path, name: str, source: dict[str, Any], is_fine: bool
) -> None:
    (tmp_path / name).write_text(json.dumps({"text": "t"}))
    values = {
        "name": "x",
        "output": str(tmp_path / "out"),
        "sources": [{"name": "a", "paths": [str(tmp_path / name)], **source}],
        "tokenizer": {"train": {"vocab_size": 300}},
    }
    other = parse(values)
    check_dates(other, find_all_inputs(other))
    config = parse({**values, "dedup": {"keep": "newest"}})
    if is_fine:
        check_dates(config, find_all_inputs(config))
        return
    with pytest.raises(UserError) as wrong:
        check_dates(config, find_all_inputs(config))
    assert str(wrong.value) == (
        "dedup.keep is newest, but no source has dates: name the field that says when a record was written"
        " (sources.0.date=created_at), or keep the longest or the smallest_id"
    )
