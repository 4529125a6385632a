"""When a record was written, by every format; and a date that cannot be read costs nothing but the date."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.readers import Fields, dates, read_file

MARCH = 1_709_622_900
"""2024-03-05T07:15:00Z"""
FIELDS = Fields(date="meta.written", dated=True)


def dates_of(path: Path, fields: Fields = FIELDS) -> list[int | None]:
    """The file's dates; no record of it may be bad."""
    found: list[int | None] = []
    for records in read_file(str(path), fields=fields):
        assert records.bad == ()
        found += records.documents["date"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-05T07:15:00Z", MARCH),
        ("2024-03-05T10:15:00+03:00", MARCH),
        ("2024-03-05 07:15", MARCH),
        ("  2024-03-05T07:15:00.999999\n", MARCH),
        ("2024-03-05", 1_709_596_800),
        ("20240305", 1_709_596_800),
        ("2024-W10-2", 1_709_596_800),
        ("2024-03", 1_709_251_200),
        ("2024", 1_704_067_200),
        ("1024", 1024),
        ("Tue, 5 Mar 2024 10:15:00 +0300", MARCH),
        ("Tue, 05 Mar 2024 10:15:00 +0300 (MSK)", MARCH),
        ("5 Mar 2024 07:15:00 GMT", MARCH),
        ("5 Mar 2024 07:15:00 -0000", MARCH),
        ("5 Mar 2024 07:15:00 MSK", MARCH),  # a name that RFC 2822 does not define
        ("Tue Mar  5 07:15:00 2024", MARCH),
        ("1709622900", MARCH),
        ("1709622900.9", MARCH),
        ("-1", -1),
        ("-1.5", -2),
        ("-0.5", -1),
        ("0", 0),
        ("1969-12-31T23:59:58.5Z", -2),
        ("20241305", 20_241_305),  # no day has that number, so it is one of seconds
        ("0001-01-01", -62_135_596_800),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
    ],
)
def test_a_date_is_read_as_utc_seconds(text: str, expected: int) -> None:
    assert dates.seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "yesterday",
            "05.03.2024",
            "2024-13",
            "2024-13-05",
            "true",
            "NaN",
            "1e9",
            "1_709_622_900",
            "١٧٠٩٦٢٢٩٠٠",
        ),
        "1709622900000",  # milliseconds
        "Tue, 35 Mar 2024 10:15:00 +0300",
        "5 Mar 2024 10:15:00 +9999999999999",
        "9" * 5000,
        "2024-03-05" + " " * 200,
    ],
)
def test_what_is_no_date_gives_none(text: str) -> None:
    assert dates.seconds(text) is None


@given(
    st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2},? ?\d{0,5} [JFMASOND][a-z]{2} \d{0,9} [\d:]{0,9} [+-]?\w{0,9}")
)
def test_no_text_raises(text: str) -> None:
    found = dates.seconds(text)
    assert found is None or dates.seconds(dates.spelled(found)) == found


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-1439, 1439), st.booleans()
)
def test_a_moment_is_the_same_in_any_zone(moment: datetime, minutes: int, has_t: bool) -> None:
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=minutes)))
    expected = (moment - datetime(1970, 1, 1)) // timedelta(seconds=1)
    assert dates.seconds(there.isoformat("T" if has_t else " ")) == expected


VALUES = [
    ({"written": "2024-03-05T07:15:00Z"}, MARCH),
    ({"written": MARCH}, MARCH),
    ({"written": MARCH + 0.5}, MARCH),
    ({"written": str(MARCH)}, MARCH),
    ({"written": "2024-03-05T07:15:00Z\n"}, MARCH),
    ({"written": "\ud83d"}, None),
    ({"written": None}, None),
    ({"written": True}, None),
    ({"written": [MARCH]}, None),
    ({"written": {"a": [[[]]]}}, None),
    ({"written": 10**300}, None),
    ({}, None),
    (None, None),
]
"""(what stands in the record as `meta`, its date)"""


def test_json_lines_have_the_date_of_their_field_and_lose_no_record_by_it(tmp_path: Path) -> None:
    lines = [json.dumps({"id": str(n), "text": "t", "meta": meta}) for n, (meta, _) in enumerate(VALUES)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert dates_of(path) == [expected for _, expected in VALUES]
    spoiled = ['{"text": "t"}', '{"text": "t", "meta": []}', '{"text": "t", "meta": 3}', '{"text": "t", "meta": "a"}']
    path.write_text("\n\n".join([*lines, *spoiled]))  # a blank line sends all of them the careful way
    assert dates_of(path) == [*(expected for _, expected in VALUES), None, None, None, None]
    path = tmp_path / "a.json"
    path.write_text("[" + ",\n".join([*lines, *spoiled]) + "]")
    assert dates_of(path) == [*(expected for _, expected in VALUES), None, None, None, None]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["written", "a"]), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=60)
@given(metas=st.lists(JSON, min_size=1, max_size=6), text=st.sampled_from(["t", "", "\ud800"]))
def test_a_line_gives_the_same_in_a_block_and_alone_and_the_same_text_with_dates_and_without(
    tmp_path_factory: pytest.TempPathFactory, metas: list[Any], text: str
) -> None:
    folder = tmp_path_factory.mktemp("dates")
    lines = [json.dumps({"id": n, "text": text, "meta": meta}, allow_nan=True) for n, meta in enumerate(metas)]
    lines = [line for line in lines if "NaN" not in line and "Infinity" not in line]
    (folder / "whole.jsonl").write_text("\n".join(lines))
    together = dates_of(folder / "whole.jsonl")
    alone = []
    for line in lines:
        (folder / "one.jsonl").write_text("\n" + line)
        alone += dates_of(folder / "one.jsonl")
    assert together == alone
    texts = [
        [
            records.documents.drop_columns("date").to_pylist()
            for records in read_file(str(folder / "whole.jsonl"), fields=f)
        ]
        for f in (FIELDS, Fields())
    ]
    assert texts[0] == texts[1]


def test_csv_has_the_date_of_its_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,written,text\n1,2024-03-05T07:15:00Z,a\n2,,b\n3,soon,c\n")
    assert dates_of(path, Fields(date="written", dated=True)) == [MARCH, None, None]
    assert dates_of(path, Fields(date="elsewhere", dated=True)) == [None, None, None]


AT = datetime(2024, 3, 5, 7, 15)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([AT, None], pa.timestamp("ns")), [MARCH, None]),
        (pa.array([AT, datetime(1969, 12, 31, 23, 59, 58, 500_000)], pa.timestamp("us", "Europe/Moscow")), [MARCH, -2]),
        (pa.array([MARCH, 2**40], pa.timestamp("s")), [MARCH, None]),
        (pa.array([date(2024, 3, 5), None], pa.date32()), [1_709_596_800, None]),
        (pa.array([date(2024, 3, 5), None], pa.date64()), [1_709_596_800, None]),
        (pa.array([MARCH, None], pa.int32()), [MARCH, None]),
        (pa.array([MARCH, 2**63], pa.uint64()), [MARCH, None]),
        (pa.array([MARCH + 0.75, float("nan")], pa.float64()), [MARCH, None]),
        (pa.array([float("inf"), None], pa.float32()), [None, None]),
        (pa.array(["2024-03-05T07:15:00Z", "soon"]), [MARCH, None]),
        (pa.array(["2024-03-05T07:15:00Z", None]).dictionary_encode(), [MARCH, None]),
        (pa.array([b"2024-03-05T07:15:00Z", b"\xff"]), [MARCH, None]),
        (pa.array([[1], [2]]), [None, None]),
        (pa.array([True, False]), [None, None]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_parquet_has_the_date_of_its_column_whatever_its_type(tmp_path: Path, values: pa.Array, expected: Any) -> None:
    meta = pa.StructArray.from_arrays([values], ["written"])
    pq.write_table(pa.table({"text": ["a", "b"], "meta": meta}), tmp_path / "a.parquet")
    assert dates_of(tmp_path / "a.parquet") == expected


def test_parquet_without_the_column_or_with_one_for_all_has_its_documents(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["2024-03-05", "b"]}), tmp_path / "a.parquet")
    assert dates_of(tmp_path / "a.parquet") == [None, None]
    assert dates_of(tmp_path / "a.parquet", Fields(id="text", date="text", dated=True)) == [1_709_596_800, None]


def test_a_row_lost_from_parquet_leaves_the_others_their_dates(tmp_path: Path) -> None:
    table = pa.table({"text": [b"a", b"\xff", b"c"], "written": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    [records] = read_file(str(tmp_path / "a.parquet"), fields=Fields(date="written", dated=True))
    assert records.documents.select(["record", "date"]).to_pylist() == [
        {"record": 1, "date": 1},
        {"record": 3, "date": 3},
    ]


MESSAGE = "From: a@b.example\nSubject: x\nDate: {}\n\ntext\n"


def test_mails_have_the_date_of_their_header_where_dates_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_text(MESSAGE.format("Tue, 5 Mar 2024 10:15:00 +0300"))
    assert dates_of(tmp_path / "a.eml", Fields(dated=True)) == [MARCH]
    assert dates_of(tmp_path / "a.eml", Fields()) == [None]
    envelope = "From a@b.example Tue Mar  5 10:15:00 2024\n"
    dated = [MESSAGE.format(header) for header in ("Tue, 5 Mar 2024\n 10:15:00 +0300", "once upon a time")]
    (tmp_path / "a.mbox").write_text("\n".join(envelope + message for message in dated))
    assert dates_of(tmp_path / "a.mbox", Fields(dated=True)) == [MARCH, None]


def test_text_and_pages_have_no_date(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Date: Tue, 5 Mar 2024 10:15:00 +0300")
    (tmp_path / "a.html").write_text("<html><body>text</body></html>")
    assert dates_of(tmp_path / "a.txt") == dates_of(tmp_path / "a.html") == [None]
