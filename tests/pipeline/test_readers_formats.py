"""Which reader a file gets, text files, and the contract all readers share."""

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest

import pipeline.readers
from pipeline.readers import READERS, REASONS, SCHEMA, Fields, Limits, format_of, read_file


def read(path: Path, **options):
    reading = read_file(str(path), **options)
    documents, bad = [], []
    for records in reading:
        documents += records.documents.drop_columns("date").to_pylist()  # of dates: test_readers_dates.py
        bad += records.bad
    return documents, bad, reading.summary


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("a.jsonl", b"", "jsonl"),
        ("A.JSONL.GZ", b"", "jsonl"),
        ("a.ndjson.zst", b"x", "jsonl"),
        ("a.parquet", b"", "parquet"),
        ("a.jsonl", b"PAR1....", "parquet"),
        ("readme.md", b'{"looks": "like json"}', "text"),
        ("notes.txt.bz2", b"x", "text"),
        ("part-0000", b'  {"text": 1}', "jsonl"),
        ("part-0000", b'\xef\xbb\xbf{"text": 1}', "jsonl"),
        ("part-0000", b"", "jsonl"),
        ("table.csv", b"id,text\n", "csv"),
        ("table.tsv.gz", b"id\ttext\n", "csv"),
        ("index", b"<!DOCTYPE html><html>", "html"),
        ("page.txt", b"<?xml version='1.0'?>\n<!-- x -->\n<html lang='ru'>", "html"),
        ("2022-March.txt", b"From a@b.org Tue Mar  5 10:15:01 2024\nFrom: a\n", "mbox"),
        ("notes.txt", b"From Tuesday on, 10:15 is the time\n", "text"),
        ("1.eml", b"anything", "eml"),
        ("message", b"Return-Path: <a@b.org>\n", "eml"),
        ("list.json", b' [{"text": "t"}]', "json"),
        ("one.json", b'{\r\n  "text": "t"}', "json"),
        ("lines.json", b'{"text": "t"}\n', "jsonl"),
        ("lines.jsonl", b"[]\n", "jsonl"),
        ("photo.png", b"\x89PNG", "unknown"),
        ("s3://bucket/a b+c%20#1?.txt", b"", "text"),
    ],
)
def test_content_tells_the_format_before_the_name_does(name, head, expected):
    assert format_of(name, head) == expected


def test_a_file_of_unknown_format_is_reported_with_the_remedy(tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(b"\x89PNG")
    documents, bad, summary = read(path)
    assert documents == []
    assert [(one.reason, one.detail) for one in bad] == [
        ("unknown_format", "name the source's format: one of jsonl, json, parquet, csv, text, html, mbox, eml")
    ]
    assert summary.num_records == 1


def test_a_format_that_is_asked_for_is_taken_at_its_word(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"id,text\n")
    assert [document["text"] for document in read(path, format="text")[0]] == ["id,text\n"]


def test_a_text_file_is_one_document_without_an_id(tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes("# Заголовок\r\n\n\u2028текст\n".encode())
    documents, bad, _ = read(path)
    assert documents == [{"id": None, "record": 1, "text": "# Заголовок\r\n\n\u2028текст\n"}]
    assert bad == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_text_file_with_a_byte_order_mark_is_decoded(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes("привет 😀".encode(encoding))
    assert [document["text"] for document in read(path)[0]] == ["привет 😀"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("привет".encode("cp1251"), "invalid_utf8"),
        (gzip.compress(b"text " * 1000, mtime=0)[:-3], "truncated"),
        (b"\xff\xfe" + "текст".encode("utf-16-le") + b"\x00", "damaged_stream"),
        (b"x" * 2001, "record_too_long"),
    ],
)
def test_a_text_file_that_cannot_be_read_whole_is_one_bad_record(tmp_path, content, reason):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    documents, bad, summary = read(
        path, limits=Limits(max_record_bytes=2000 if reason == "record_too_long" else 10_000)
    )
    assert documents == []
    assert [(one.place, one.reason) for one in bad] == [("the whole file", reason)]
    assert summary.num_bytes == len(content)


def test_every_file_in_the_folder_is_in_the_table_of_readers():
    folder = Path(pipeline.readers.__file__).parent
    helpers = {"__init__", "archives", "charsets", "compression", "dates", "formats", "json_values", "mail", "names"}
    helpers |= {"parts", "records", "source", "survey", "whole"}
    assert {path.stem for path in folder.glob("*.py")} - helpers == set(READERS)


@pytest.mark.parametrize("format", READERS)
@pytest.mark.parametrize("content", [b"", b"\0", b"\xff" * 100, b"{}", b"PAR1", gzip.compress(b"x", mtime=0)[:12]])
def test_every_reader_accounts_for_any_content(tmp_path, format, content):
    path = tmp_path / "a"
    path.write_bytes(content)
    reading = read_file(str(path), format=format, fields=Fields())
    batches = list(reading)
    assert all(records.documents.schema == SCHEMA for records in batches)
    assert all(column.num_chunks == 1 for records in batches for column in records.documents.columns)
    assert all(isinstance(records.text, pa.LargeStringArray) for records in batches)
    assert all(one.reason in REASONS and len(one.first_bytes) <= 200 for records in batches for one in records.bad)
    num_documents = sum(records.documents.num_rows for records in batches)
    assert reading.summary.num_records == num_documents + sum(len(records.bad) for records in batches)
    assert reading.summary.num_bytes == len(content)


@pytest.mark.parametrize(
    "name",
    ["with space", "отчёт", "a+b", "percent%20", "hash#1", "query?x=1&y=2", "[1]", "{c}", "quote'\"", "-dash", "a\\b"],
)
@pytest.mark.parametrize("format", READERS)
def test_names_are_names_and_never_patterns_or_urls(tmp_path, name, format):
    import pyarrow.parquet as pq

    path = tmp_path / name
    if format == "parquet":
        pq.write_table(pa.table({"text": ["t"]}), path.open("wb"))
    else:
        content = {"csv": b"text\nt\n", "mbox": b"From a@b Tue Mar  5 10:15:01 2024\nSubject: t\n\nt\n"}
        path.write_bytes(content.get(format, b'{"text": "t"}'))
    assert len(read(path, format=format)[0]) == 1


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes only there")
def test_a_file_name_that_is_not_utf8_is_read(tmp_path):
    for ending, content in ((b".jsonl", b'{"text": "t"}'), (b".txt", b"t")):
        name = os.fsencode(tmp_path) + b"/caf\xe9" + ending
        Path(os.fsdecode(name)).write_bytes(content)
        assert [document["text"] for document in read(Path(os.fsdecode(name)))[0]] == ["t"]


def test_a_missing_file_is_the_callers_trouble_not_a_bad_record(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read_file(str(tmp_path / "none.jsonl")))


def test_the_clean_corpus_is_read_without_a_bad_record(corpus_dir):
    for path in sorted((corpus_dir / "clean" / "tickets").glob("*.zst")):
        documents, bad, _ = read(path)
        assert documents
        assert bad == []
