"""A source's weight, in the shards and in the ledger."""

from pathlib import Path

from tests.pipeline.inline_builds import build_texts, lineage_of, problems_of


def test_documents_that_a_weight_below_one_leaves_out_have_a_row_of_their_own(tmp_path: Path) -> None:
    records = [(str(i), "abcdefg") for i in range(400)]
    dataset = build_texts(tmp_path / "root", [records], weight=0.5, example={"seq_len": 8})
    funnel = {(row.stage, row.reason): (row.num_documents, row.num_bytes) for row in dataset.manifest.funnel}
    left_out, left_out_bytes = funnel["weight", "not_drawn"]
    kept, kept_bytes = funnel["kept", None]
    assert (left_out + kept, left_out_bytes + kept_bytes) == (400, 2800)
    # 400 draws at one half: a standard deviation of 10.
    assert 150 < kept < 250
    # Seven letters and EOS fill a row each, so nothing falls into the tail.
    assert lineage_of(dataset).num_rows == kept == dataset.manifest.sources["letters"].documents_kept
    assert dataset.manifest.splits["train"].num_documents == kept
    assert problems_of(dataset) == []


def test_a_weight_of_two_and_a_half_keeps_every_document_and_copies_it(tmp_path: Path) -> None:
    records = [(str(i), "abcdefg") for i in range(400)]
    dataset = build_texts(tmp_path / "root", [records], weight=2.5, example={"seq_len": 8})
    repeats = lineage_of(dataset)["repeat"].to_pylist()
    assert (repeats.count(0), repeats.count(1)) == (400, 400)
    assert 150 < repeats.count(2) < 250
    assert [row.stage for row in dataset.manifest.funnel] == ["read", "kept"]
    assert problems_of(dataset) == []
