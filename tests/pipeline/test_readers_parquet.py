"""Parquet: text in every type that can hold it, and a stated end for every row."""

import datetime
import decimal
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.readers import BadRecord, Fields, FileSummary, Limits, read_file

Read = tuple[list[dict], list[BadRecord], FileSummary]
TEXTS = ["текст 0", "text 1", None, ""]


def read_path(path: Path, fields: Fields | None = None, limits: Limits | None = None) -> Read:
    reading = read_file(str(path), fields=fields, limits=limits)
    documents: list[dict] = []
    bad: list[BadRecord] = []
    for records in reading:
        documents += records.documents.drop_columns("date").to_pylist()  # of dates: test_readers_dates.py
        bad += records.bad
    return documents, bad, reading.summary


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def read(table: pa.Table, fields: Fields | None = None, limits: Limits | None = None, **options: Any) -> Read:
        pq.write_table(table, tmp_path / "a.parquet", **options)
        return read_path(tmp_path / "a.parquet", fields, limits)

    return read


def texts(documents: list[dict]) -> list[str | None]:
    return [document["text"] for document in documents]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS, pa.string()),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array(TEXTS, pa.large_string()).dictionary_encode(),
        pa.array([None if text is None else text.encode() for text in TEXTS], pa.binary()),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("row_group_size", [1, 3, 100])
def test_every_type_that_holds_text_gives_the_same_documents(read, column, row_group_size):
    table = pa.table({"n": [1, None, 3, 4], "text": column, "id": ["a", "b", None, "d"]})
    documents, bad, summary = read(table, row_group_size=row_group_size)
    assert documents == [
        {"id": "a", "record": 1, "text": "текст 0"},
        {"id": "b", "record": 2, "text": "text 1"},
        {"id": None, "record": 3, "text": None},
        {"id": "d", "record": 4, "text": ""},
    ]
    assert bad == []
    assert (summary.num_records, summary.format) == (4, "parquet")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 3]),
        pa.array([1.5, None, 2]),
        pa.array([True, False, None]),
        pa.array([["a"], [], None], pa.list_(pa.string())),
        pa.array([{"body": "x"}] * 3),
        pa.array([datetime.datetime(2024, 3, 5)] * 3),
    ],
    ids=lambda column: str(column.type),
)
def test_any_other_type_makes_one_bad_record_that_counts_the_rows(read, column):
    documents, bad, summary = read(pa.table({"text": column}))
    assert documents == []
    assert [(one.place, one.reason, one.num_records) for one in bad] == [("rows 1 to 3", "wrong_type", 3)]
    assert str(column.type)[:4] in bad[0].detail
    assert summary.num_records == 3


def test_bytes_that_are_not_utf8_cost_their_row_alone(read):
    column = pa.array([b"good", b"\xff\xfe not text", None, "ещё".encode()], pa.binary())
    documents, bad, _ = read(pa.table({"text": column, "id": ["a", "b", "c", "d"]}))
    assert [(document["id"], document["record"], document["text"]) for document in documents] == [
        ("a", 1, "good"),
        ("c", 3, None),
        ("d", 4, "ещё"),
    ]
    assert [(one.place, one.reason, one.first_bytes) for one in bad] == [
        ("row 2", "invalid_utf8", b"\xff\xfe not text")
    ]


def test_a_string_column_that_is_not_utf8_is_not_believed(read):
    lying = pa.array([b"good", b"\xd0 cut"], pa.binary()).view(pa.string())
    documents, bad, _ = read(pa.table({"text": lying, "id": lying}))
    assert [(document["id"], document["text"]) for document in documents] == [("good", "good")]
    assert [(one.place, one.reason) for one in bad] == [("row 2", "invalid_utf8")]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pa.array([10, None], pa.uint64()), ["10", None]),
        (pa.array([decimal.Decimal("1.50"), None]), ["1.50", None]),
        (pa.array([datetime.datetime(2024, 3, 5, 10, 15), None]), ["2024-03-05 10:15:00.000000", None]),
        (pa.array([datetime.date(2024, 3, 5), None]), ["2024-03-05", None]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (pa.array([b"\xd0\xb9", b"\xff"], pa.binary()), ["й", None]),
        (pa.array(["v", None], pa.string_view()), ["v", None]),
        (pa.array([["a"], []], pa.list_(pa.string())), [None, None]),
        (pa.array([{"x": 1}, None]), [None, None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_an_id_of_any_scalar_type_becomes_text(read, ids, expected):
    documents, bad, _ = read(pa.table({"id": ids, "text": ["a", "b"]}))
    assert [document["id"] for document in documents] == expected
    assert bad == []


def test_files_without_rows_change_nothing(read):
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    assert read(schema.empty_table())[:2] == ([], [])
    assert read(pa.schema([("text", pa.null())]).empty_table())[:2] == ([], [])
    assert read(pa.table({}))[:2] == ([], [])


def test_a_column_of_type_null_gives_null_texts(read):
    documents, bad, _ = read(pa.table({"text": pa.nulls(3)}))
    assert texts(documents) == [None, None, None]
    assert bad == []


def test_a_missing_column_counts_the_rows_and_names_the_columns(read):
    _, bad, summary = read(pa.table({"body": ["a", "b"], "title": ["x", "y"]}))
    assert [(one.reason, one.num_records) for one in bad] == [("missing_field", 2)]
    assert bad[0].detail == 'there is no column "text"; columns: body, title'
    assert summary.num_records == 2


def test_a_dotted_path_leads_through_structs_and_a_null_struct_is_null_text(read):
    doc = pa.array([{"body": {"text": "a", "n": 1}}, None, {"body": None}, {"body": {"text": "d", "n": None}}])
    table = pa.table({"doc": doc, "meta": [{"id": 1}, {"id": 2}, None, {"id": 4}]})
    documents, bad, _ = read(table, Fields(text="doc.body.text", id="meta.id"), row_group_size=2)
    assert texts(documents) == ["a", None, None, "d"]
    assert [document["id"] for document in documents] == ["1", "2", None, "4"]
    assert bad == []


def test_a_column_named_like_the_whole_path_goes_first(read):
    table = pa.table({"a.b": ["column"], "a": [{"b": "nested"}]})
    assert texts(read(table, Fields(text="a.b"))[0]) == ["column"]


def test_a_text_over_the_limit_is_one_bad_record(read):
    documents, bad, _ = read(pa.table({"text": ["a", "x" * 5000, "b"]}), limits=Limits(max_record_bytes=1000))
    assert texts(documents) == ["a", "b"]
    assert [(one.place, one.reason, one.num_bytes) for one in bad] == [("row 2", "record_too_long", 5000)]


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1 and then nothing of use PAR1", b"not parquet at all, but long enough"]
)
def test_a_file_that_is_no_parquet_is_one_bad_record(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    documents, bad, summary = read_path(tmp_path / "a.parquet")
    assert documents == []
    assert [(one.place, one.reason) for one in bad] == [("the whole file", "damaged_parquet")]
    assert summary.num_bytes == len(content)


def many(rows: int) -> pa.Table:
    return pa.table({"id": [str(n) for n in range(rows)], "text": [f"text number {n * 7919}" for n in range(rows)]})


def test_a_damaged_row_group_costs_its_rows_and_the_others_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(many(3000), path, row_group_size=1000, compression="zstd", use_dictionary=False)
    column = pq.read_metadata(path).row_group(1).column(1)
    data = bytearray(path.read_bytes())
    for at in range(column.data_page_offset, column.data_page_offset + column.total_compressed_size):
        data[at] = 0x55
    path.write_bytes(data)
    documents, bad, summary = read_path(path)
    assert [document["record"] for document in documents] == [*range(1, 1001), *range(2001, 3001)]
    assert [(one.place, one.reason, one.num_records) for one in bad] == [("rows 1001 to 2000", "damaged_parquet", 1000)]
    assert summary.num_records == 3000


def test_compressed_parquet_is_recognised_inside(tmp_path):
    import gzip

    stream = io.BytesIO()
    pq.write_table(many(10), stream)
    (tmp_path / "a.bin.gz").write_bytes(gzip.compress(stream.getvalue()))
    documents, bad, summary = read_path(tmp_path / "a.bin.gz")
    assert len(documents) == 10
    assert bad == []
    assert (summary.format, summary.compression) == ("parquet", "gzip")


def test_large_row_groups_come_in_batches_of_bounded_size(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 10_000] * 3000}), path, row_group_size=3000)
    batches = list(read_file(str(path), limits=Limits(batch_bytes=2_000_000)))
    assert sum(records.documents.num_rows for records in batches) == 3000
    # A dictionary hides how large the rows are, so up to 1024 of them may come before the size is seen.
    assert max(records.text.nbytes for records in batches) < 13_000_000


@settings(max_examples=60, deadline=None)
@given(at=st.floats(0, 1), flip=st.integers(1, 255), cut=st.booleans())
def test_a_flipped_byte_or_a_cut_anywhere_raises_nothing(tmp_path_factory, at, flip, cut):
    stream = io.BytesIO()
    pq.write_table(many(200), stream, row_group_size=50, compression="zstd")
    data = bytearray(stream.getvalue())
    place = min(int(at * len(data)), len(data) - 1)
    data[place] ^= flip
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    path.write_bytes(data[:place] if cut else data)
    documents, bad, summary = read_path(path)
    assert summary.num_records == len(documents) + sum(one.num_records for one in bad)
    assert cut is False or documents == []
