"""The ledger: every record is somewhere, or the build fails."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.ledger import Ledger, LedgerError
from pipeline.stages import read_unit
from tests.pipeline.inline_builds import build_texts


def a_balanced_ledger() -> Ledger:
    ledger = Ledger()
    ledger.read("docs", 5, 500)
    ledger.end("docs", "quarantine", "invalid_json", 1, 40)
    ledger.end("docs", "filter", "length.too_short", 1, 10)
    ledger.end("docs", "kept", None, 3, 450)
    ledger.read("mail", 1, 7)
    ledger.end("mail", "kept", None, 1, 7)
    return ledger


def rows(ledger: Ledger) -> list[tuple[str, str | None, int, int]]:
    return [(row.stage, row.reason, row.num_documents, row.num_bytes) for row in ledger.funnel()]


def test_a_balanced_ledger_is_the_funnel_in_the_order_of_a_documents_life() -> None:
    ledger = a_balanced_ledger()
    ledger.check()
    assert rows(ledger) == [
        ("read", None, 6, 507),
        ("quarantine", "invalid_json", 1, 40),
        ("filter", "length.too_short", 1, 10),
        ("kept", None, 4, 457),
    ]


def test_a_duplicate_moves_from_kept_to_its_own_row() -> None:
    ledger = a_balanced_ledger()
    ledger.move("docs", "kept", "near_duplicate", 2, 300)
    ledger.check()
    assert rows(ledger)[-2:] == [("near_duplicate", None, 2, 300), ("kept", None, 2, 157)]


def test_a_lost_record_is_named_by_source_and_amount() -> None:
    ledger = a_balanced_ledger()
    ledger.read("mail", 2, 9)
    with pytest.raises(LedgerError, match=r"source mail: 3 documents read, 1 accounted for, \+2"):
        ledger.check()


def test_a_record_counted_twice_is_named_too() -> None:
    ledger = a_balanced_ledger()
    ledger.end("docs", "kept", None, 1, 0)
    with pytest.raises(LedgerError, match=r"source docs: 5 documents read, 6 accounted for, -1"):
        ledger.check()


def test_a_source_that_was_never_read_cannot_end() -> None:
    ledger = a_balanced_ledger()
    ledger.end("chat", "kept", None, 1, 5)
    with pytest.raises(LedgerError, match="source chat: 0 documents read, 1 accounted for"):
        ledger.check()


def test_an_empty_build_has_read_and_kept_rows_of_zero() -> None:
    assert rows(Ledger()) == [("read", None, 0, 0), ("kept", None, 0, 0)]


def test_bytes_are_counted_where_they_are_read_and_not_only_where_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = read_unit._keep

    def keep_a_byte_short(ids: Any, text: Any, dates: Any, task: Any, end: Any) -> Any:
        return keep(ids, text, dates, task, lambda stage, reason, number, size: end(stage, reason, number, size - 1))

    monkeypatch.setattr(read_unit, "_keep", keep_a_byte_short)
    with pytest.raises(LedgerError, match=r"source letters: 8 bytes read, 7 accounted for, \+1"):
        build_texts(tmp_path / "d", [[("a", "text"), ("b", "more")]], example={"seq_len": 8})
