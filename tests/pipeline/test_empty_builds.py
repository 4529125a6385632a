"""Corpora of nothing end well, whatever kind of nothing it is."""

from pathlib import Path

import pytest

from tests.pipeline.inline_builds import build_texts, problems_of

DEDUP = {"exact": True, "near": {"enabled": True}}


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ([[]], 0),
        ([[], []], 0),
        ([[("a", "")], [("b", " \n")]], 0),
        ([[("a", "one")]], 1),
        ([[("a", "one")], [("a", "one")], []], 1),
    ],
    ids=["an empty file", "two empty files", "blank texts", "one short text", "one short text twice"],
)
def test_little_or_nothing_is_built_and_verifies(
    tmp_path: Path, files: list[list[tuple[str, str]]], kept: int, packing: str
) -> None:
    example = {"seq_len": 64, "packing": packing}
    dataset = build_texts(tmp_path / "root", files, dedup=DEDUP, example=example)
    funnel = dataset.manifest.funnel
    assert (funnel[0].stage, funnel[0].num_documents) == ("read", sum(map(len, files)))
    assert (funnel[-1].stage, funnel[-1].num_documents) == ("kept", kept)
    assert problems_of(dataset) == []


def test_a_validation_split_of_everything_but_a_little_leaves_no_training_shard(tmp_path: Path) -> None:
    dataset = build_texts(
        tmp_path / "root", [[("a", "x" * 100)]], validation={"fraction": 0.999999}, example={"seq_len": 16}
    )
    assert [dataset.manifest.splits[name].num_examples for name in ("train", "validation")] == [0, 6]
    assert problems_of(dataset) == []
