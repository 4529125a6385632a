"""JSON lines: every line is a document, a bad record with its place and reason, or blank."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.readers import BadRecord, Fields, FileSummary, Limits, read_file

Read = tuple[list[dict], list[BadRecord], FileSummary]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def read(content: bytes, fields: Fields | None = None, limits: Limits | None = None) -> Read:
        path = tmp_path / "a.jsonl"
        path.write_bytes(content)
        return read_path(path, fields, limits)

    return read


def read_path(path: Path, fields: Fields | None = None, limits: Limits | None = None) -> Read:
    reading = read_file(str(path), fields=fields, limits=limits)
    documents: list[dict] = []
    bad: list[BadRecord] = []
    for records in reading:
        documents += records.documents.drop_columns("date").to_pylist()  # of dates: test_readers_dates.py
        bad += records.bad
    return documents, bad, reading.summary


def faults(bad: list[BadRecord]) -> list[tuple[str, str]]:
    return [(one.place, one.reason) for one in bad]


def test_documents_come_with_id_line_and_text(read):
    documents, bad, summary = read('{"id": "a", "text": "один"}\n{"text": "two", "id": "b"}\n'.encode())
    assert documents == [{"id": "a", "record": 1, "text": "один"}, {"id": "b", "record": 2, "text": "two"}]
    assert bad == []
    assert summary.num_records == 2
    assert summary.num_bytes == 59
    # sha256 of the raw bytes: the inputs digest of every manifest relies on it.
    assert summary.sha256 == "75676f96baac06267a25a2e60b2c985389b36b611925da54309551d174ccf4f7"


def test_one_bad_byte_costs_one_record(read):
    lines = [json.dumps({"id": str(n), "text": "слово"}, ensure_ascii=False).encode() for n in range(1000)]
    lines[499] = b'{"id": "499", "text": "\xd0"}'
    documents, bad, summary = read(b"\n".join(lines))
    assert len(documents) == 999
    assert faults(bad) == [("line 500", "invalid_utf8")]
    assert bad[0].first_bytes == lines[499]
    assert bad[0].num_bytes == 26
    assert summary.num_records == 1000


def test_each_kind_of_bad_line_has_its_own_reason(read):
    lines = [b"null", b"[]", b'"str"', b"42", b"{", b'{"id": 1}', b'{"text": 5}', b'{"text": true}', b'{"text": ["a"]}']
    documents, bad, _ = read(b"\n".join([*lines, b'{"text": {}}', b'{"text": NaN}', b'{"text": "ok"}']))
    assert [document["text"] for document in documents] == ["ok"]
    assert faults(bad) == [
        ("line 1", "not_an_object"),
        ("line 2", "not_an_object"),
        ("line 3", "not_an_object"),
        ("line 4", "not_an_object"),
        ("line 5", "invalid_json"),
        ("line 6", "missing_field"),
        ("line 7", "wrong_type"),
        ("line 8", "wrong_type"),
        ("line 9", "wrong_type"),
        ("line 10", "wrong_type"),
        ("line 11", "invalid_json"),
    ]


def test_a_missing_field_is_reported_with_the_fields_there_are(read):
    _, bad, _ = read(b'{"body": "x", "author": "y"}')
    assert bad[0].detail == 'there is no field "text"; fields found: author, body'


def test_a_line_ends_at_the_byte_0a_and_nowhere_else(read):
    text = "до\u2028после\u2029и\u0085ещё"
    documents, bad, _ = read(f'{{"text": "{text}"}}'.encode())
    assert [document["text"] for document in documents] == [text]
    assert bad == []


def test_blank_lines_crlf_and_a_missing_last_newline_are_no_faults(read):
    documents, bad, _ = read(b'\r\n{"text": "a"}\r\n\n   \n{"text": "b"}')
    assert [(document["record"], document["text"]) for document in documents] == [(2, "a"), (5, "b")]
    assert bad == []


def test_a_byte_order_mark_is_skipped_at_the_start_and_before_a_later_line(read):
    bom = b"\xef\xbb\xbf"
    documents, bad, _ = read(bom + b'{"text": "a"}\n' + bom + b'{"text": "b"}\n' + bom + b"\n")
    assert [document["text"] for document in documents] == ["a", "b"]
    assert bad == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_utf_16_and_32_with_a_byte_order_mark_are_decoded(read, encoding):
    mark = "" if encoding in ("utf-16", "utf-32") else "\ufeff"
    documents, bad, _ = read((mark + '{"text": "шестнадцать"}\n{"text": "бит 😀"}').encode(encoding))
    assert [document["text"] for document in documents] == ["шестнадцать", "бит 😀"]
    assert bad == []


def test_broken_utf_16_keeps_what_came_before(read):
    good = '\ufeff{"text": "a"}\n'.encode("utf-16-le")
    documents, bad, _ = read(good + b"\x00\xd8" + "x".encode("utf-16-le"))
    assert [document["text"] for document in documents] == ["a"]
    assert [one.reason for one in bad] == ["damaged_stream"]


def test_half_a_surrogate_pair_becomes_the_replacement_character(read):
    lines = [
        rb'{"text": "a \ud83d b"}',
        rb'{"text": "\ude00\ud83d"}',
        rb'{"text": "\ud83d\ude00"}',
        rb'{"text": "\ud83d"}',
    ]
    documents, bad, _ = read(b"\n".join(lines))
    assert [document["text"] for document in documents] == ["a \ufffd b", "\ufffd\ufffd", "😀", "\ufffd"]
    assert bad == []


def test_an_escaped_nul_is_text_and_a_raw_one_is_no_json(read):
    documents, bad, _ = read(b'{"text": "a\\u0000b"}\n{"text": "a\x00b"}\n{"text": "c"}')
    assert [document["text"] for document in documents] == ["a\0b", "c"]
    assert faults(bad) == [("line 2", "invalid_json")]


def test_null_and_empty_texts_are_given_as_they_are(read):
    documents, bad, _ = read(b'{"text": null}\n{"text": ""}\n{"text": "  "}')
    assert [document["text"] for document in documents] == [None, "", "  "]
    assert bad == []


def test_ids_are_strings_numbers_as_json_writes_them_or_absent(read):
    ids = [
        '"x"',
        "1",
        '"1"',
        "1.0",
        "1e2",
        "true",
        "null",
        "[1]",
        "{}",
        '""',
        "12345678901234567890123",
        "1e999",
        "9" * 5000,
    ]
    lines = [f'{{"id": {one}, "text": "t"}}' for one in ids]
    documents, bad, _ = read("\n".join([*lines, '{"text": "t"}']).encode())
    assert bad == []
    assert [document["id"] for document in documents] == [
        *["x", "1", "1", "1.0", "100.0", "true", None, None, None, "", "12345678901234567890123", None, None],
        None,
    ]


def test_numbers_as_ids_are_the_same_on_the_fast_and_the_careful_path(read):
    lines = [b'{"id": %d, "text": "t"}' % n for n in range(3)] + [b'{"id": 0.1, "text": "t"}']
    fast, _, _ = read(b"\n".join(lines))
    careful, _, _ = read(b"\n".join([*lines, b"not json"]))
    assert [document["id"] for document in fast] == ["0", "1", "2", "0.1"]
    assert careful == fast


def test_ids_by_place_leave_the_column_empty(read):
    documents, _, _ = read(b'{"id": "a", "text": "t"}', Fields(text="text", id=None))
    assert documents == [{"id": None, "record": 1, "text": "t"}]


def test_a_dotted_path_leads_into_nested_records(read):
    lines = [
        {"id": "n", "doc": {"body": {"text": "глубокий"}}},
        {"id": "whole key", "doc.body.text": "exact", "doc": {"body": {"text": "nested"}}},
        {"id": "inner key", "doc": {"body.text": "inner"}},
        {"id": "null on the way", "doc": {"body": None}},
        {"id": "list on the way", "doc": {"body": [{"text": "x"}]}},
        {"id": "absent", "doc": {"title": "x"}},
        {"id": "text on the way", "doc": "x"},
    ]
    documents, bad, _ = read("\n".join(map(json.dumps, lines)).encode(), Fields(text="doc.body.text"))
    assert [(document["id"], document["text"]) for document in documents] == [
        ("n", "глубокий"),
        ("whole key", "exact"),
        ("inner key", "inner"),
    ]
    assert [(one.reason, one.detail) for one in bad] == [
        ("missing_field", 'there is no field "doc.body.text"; "doc.body" is null'),
        ("wrong_type", '"doc.body" is a list, a path goes through objects only'),
        ("missing_field", 'there is no field "doc.body.text"; fields found in "doc": title'),
        ("wrong_type", '"doc" is text, a path goes through objects only'),
    ]


def test_of_a_key_written_twice_the_last_counts(read):
    documents, _, _ = read(b'{"text": "first", "text": "last"}\n{"text": "first", "text": "l\\ud800"}')
    assert [document["text"] for document in documents] == ["last", "l\ufffd"]


def test_a_line_over_the_limit_is_quarantined_by_its_length_and_its_neighbours_are_read(read):
    long = b'{"text": "' + b"x" * 3_000_000 + b'"}'
    limits = Limits(max_record_bytes=1_000_000)
    documents, bad, _ = read(b'{"text": "a"}\n' + long + b'\n{"text": "b"}\n' + long, limits=limits)
    assert [(document["record"], document["text"]) for document in documents] == [(1, "a"), (3, "b")]
    assert faults(bad) == [("line 2", "record_too_long"), ("line 4", "record_too_long")]
    assert bad[0].num_bytes == len(long)
    assert bad[0].first_bytes == long[:200]


def test_a_long_line_inside_one_piece_is_held_to_the_limit_too(read):
    lines = [b'{"text": "%s"}' % (b"x" * size) for size in (10, 600, 10)]
    documents, bad, _ = read(b"\n".join(lines), limits=Limits(max_record_bytes=500))
    assert [document["record"] for document in documents] == [1, 3]
    assert [(one.place, one.reason, one.num_bytes) for one in bad] == [("line 2", "record_too_long", 612)]


@pytest.mark.parametrize("bomb", [b"[" * 1_000_000, b'{"text": ' + b"[" * 1_000_000, b'{"a":' * 200_000])
def test_a_million_brackets_are_one_bad_record(read, bomb):
    documents, bad, _ = read(b'{"text": "a"}\n' + bomb + b'\n{"text": "b"}')
    assert [document["text"] for document in documents] == ["a", "b"]
    assert [(one.place, one.reason) for one in bad] == [("line 2", "too_deep")]


def test_the_depth_that_is_read_does_not_depend_on_the_callers_stack(read):
    lines = b"\n".join(b'{"text": "t", "x": ' + b"[" * depth + b"]" * depth + b"}" for depth in range(880, 1000, 5))
    flat = read(lines)

    def from_deep_down(frames: int) -> Read:
        return read(lines) if frames == 0 else from_deep_down(frames - 1)

    deep = from_deep_down(300)
    assert deep == flat
    assert 0 < len(flat[1]) < 24


def test_batches_hold_about_the_bytes_asked_for(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "%s"}\n' % (b"x" * 1000) * 2000)
    batches = list(read_file(str(path), limits=Limits(batch_bytes=500_000)))
    assert sum(records.documents.num_rows for records in batches) == 2000
    assert len(batches) == 4  # pieces of 256 KiB: two make a batch
    assert all(records.text.nbytes < 600_000 for records in batches)


def test_a_file_of_nothing_but_bad_lines_is_given_in_parts(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x\n" * 300_000)
    batches = list(read_file(str(path)))
    assert sum(len(records.bad) for records in batches) == 300_000
    assert max(len(records.bad) for records in batches) < 150_000


def test_reading_leaves_no_thread_behind(read):
    before = threading.active_count()
    read(b"[" * 100_000)
    assert threading.active_count() == before


JSON_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
LINES = st.one_of(
    st.builds(lambda text: (text, json.dumps({"text": text}, ensure_ascii=False).encode()), JSON_TEXT),
    st.builds(lambda text: (text, json.dumps({"a": [{}], "text": text, "z": None}).encode()), JSON_TEXT),
    # Not \xff alone: with \xfe behind it, it would open the file as UTF-16.
    st.builds(lambda junk: (None, b"?\xff" + junk.replace(b"\n", b"")), st.binary(max_size=10)),
    st.just(("", b"")),
)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINES, max_size=30), end=st.sampled_from([b"\n", b"\r\n"]), last=st.booleans())
def test_every_line_is_accounted_for(tmp_path_factory, lines, end, last):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(end.join(line for _, line in lines) + (end if last else b""))
    documents, bad, summary = read_path(path)
    assert [document["text"] for document in documents] == [text for text, line in lines if line and text is not None]
    assert [one.place for one in bad] == [f"line {n}" for n, (text, _) in enumerate(lines, 1) if text is None]
    assert summary.num_records == len(documents) + len(bad)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_without_an_exception_and_twice_alike(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "a.jsonl"
    path.write_bytes(content)
    assert read_path(path) == read_path(path)


def test_two_objects_on_one_line_are_no_two_records_even_where_another_line_is_blank(read):
    documents, bad, _ = read(b'{"text": "a"}\n{"text": "b"}{"text": "c"}\n\n{"text": "d"}\n')
    assert [(document["record"], document["text"]) for document in documents] == [(1, "a"), (4, "d")]
    assert faults(bad) == [("line 2", "invalid_json")]


def test_an_object_over_two_lines_is_two_bad_lines(read):
    documents, bad, _ = read(b'{"text": "a"}{"text": "b"}\n{"x":\n{"y": 1}, "text": "c"}\n')
    assert documents == []
    assert faults(bad) == [("line 1", "invalid_json"), ("line 2", "invalid_json"), ("line 3", "invalid_json")]


PLAIN_LINES = st.sampled_from(
    [
        b'{"a": {"text": "x", "id": 7}}',
        b'{"a": {"id": "s", "text": "\\u0435"}}\r',
        b'{"a": {"text": null}, "b": "\xff"}',
        b'{"a": {"text": "y"}, "a.text": "whole"}',
        b'{"a": {"text": "y"}, "a.id": 1.50}',
        b'{"a": null}',
        b'{"a": []}',
        b'{"a": {"id": 3}}',
        b"",
        b"}",
        b'{"a": {"text": "z"}}{"a": {"text": "z"}}',
        b'{"a": {"text": "z"}} ',
        b'{"a":',
        b'{"text": "z"}}',
    ]
)


@settings(deadline=None)
@given(st.lists(PLAIN_LINES, max_size=8))
def test_a_line_is_read_the_same_beside_any_other_lines(tmp_path_factory, lines):
    """A block of plain lines goes through one call, any other line by line: nobody may see which."""
    folder = tmp_path_factory.mktemp("lines")
    fields = Fields(text="a.text", id="a.id")
    together = folder / "together.jsonl"
    together.write_bytes(b"\n".join(lines))
    documents, bad, _ = read_path(together, fields)
    alone_documents, alone_bad = [], []
    for number, line in enumerate(lines, 1):
        alone = folder / "alone.jsonl"
        alone.write_bytes(line)
        one, refused, _ = read_path(alone, fields)
        alone_documents += [(number, document["id"], document["text"]) for document in one]
        alone_bad += [(f"line {number}", bad.reason, bad.detail) for bad in refused]
    assert [(document["record"], document["id"], document["text"]) for document in documents] == alone_documents
    assert [(one.place, one.reason, one.detail) for one in bad] == alone_bad
