"""The budget for unreadable input: by records, and by the bytes of files that are lost whole."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manifests.errors import UserError
from pipeline.budget import Losses, nothing_kept, over_budget
from pipeline.ledger import Ledger
from tests.pipeline.inline_builds import build_texts


def losses(num_bad: int, num_records: int, lost_bytes: int = 0, num_lost_files: int = 0) -> Losses:
    return Losses(
        num_records=num_records,
        reasons={"invalid_json": num_bad},
        num_bytes=1_000_000,
        num_lost_files=num_lost_files,
        lost_bytes=lost_bytes,
    )


def test_ten_bad_records_are_free_and_a_lost_file_is_not():
    assert over_budget(losses(10, 20), 0.001) is None
    assert over_budget(losses(11, 20), 0.001) == "has 11 unreadable of 20 records, 10 are allowed (invalid_json 11)"
    assert over_budget(losses(1, 20, lost_bytes=1_000, num_lost_files=1), 0.001) is None
    assert over_budget(losses(1, 20, lost_bytes=1_001, num_lost_files=1), 0.001) == (
        "lost 1 file whole, 0.1 % of its bytes, 0.1 % are allowed (invalid_json 1)"
    )


def test_a_budget_of_zero_frees_nothing_and_of_one_everything():
    assert over_budget(losses(1, 20), 0.0) == "has 1 unreadable of 20 records, 0 are allowed (invalid_json 1)"
    assert over_budget(losses(0, 20), 0.0) is None
    assert over_budget(losses(20, 20, lost_bytes=1_000_000, num_lost_files=3), 1.0) is None


def test_a_source_of_which_nothing_is_left_is_named_with_where_its_records_went():
    ledger = Ledger()
    ledger.read("lost", 9, 90)
    ledger.end("lost", "quarantine", "damaged_parquet", 8, 80)
    ledger.end("lost", "filter", "empty.null", 1, 10)
    ledger.read("empty", 0, 0)
    ledger.read("good", 1, 10)
    ledger.end("good", "kept", None, 1, 10)
    assert nothing_kept(ledger) == [
        "note: nothing is left of source empty, 0 records read",
        "note: nothing is left of source lost, 9 records read (quarantine 8, filter 1)",
    ]


def _cut_parquet(folder: Path) -> None:
    folder.mkdir()
    for number in range(9):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"text": [f"text {number} {row}" for row in range(500)]}), path)
        path.write_bytes(path.read_bytes()[:-100])


def test_nine_cut_parquet_files_stop_the_build_though_they_are_nine_records(tmp_path):
    _cut_parquet(tmp_path / "in")
    sources = [{"name": "tables", "paths": [str(tmp_path / "in")]}]
    with pytest.raises(UserError, match=r"source tables lost 9 files whole, 100 % of its bytes, 0\.1 % are allowed \("):
        build_texts(tmp_path / "root", [], sources=sources)


def test_with_such_a_budget_the_build_says_that_nothing_is_left_on_terminal_and_page(tmp_path):
    _cut_parquet(tmp_path / "in")
    sources = [{"name": "tables", "paths": [str(tmp_path / "in")]}]
    said: list[str] = []
    dataset = build_texts(tmp_path / "root", [], said=said, sources=sources, bad_records={"budget_fraction": 1})
    assert "note: nothing is left of source tables, 9 records read (quarantine 9)" in said
    page = Path(dataset.resolve("reports/v1.html")).read_text()
    assert "note: nothing is left of source tables, 9 records read (quarantine 9)" in page
