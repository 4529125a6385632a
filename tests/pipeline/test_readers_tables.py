"""CSV and JSON values: each rule of their pages, by small files."""

import gzip
import json
import time

import pytest

from pipeline.readers import Fields, Limits, read_file
from tests.pipeline.reading import read


def test_a_csv_field_may_hold_line_ends_and_a_mark_is_no_part_of_a_name(tmp_path):
    content = '\ufefftext,id\r\n"one\r\ntwo ""q""",a\r\n\r\nвторая,b'.encode()
    assert read(tmp_path / "a.csv", content) == ([("a", 'one\r\ntwo "q"'), ("b", "вторая")], [])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id;text\n1;x, y\n"),
        ("a.tsv", "id\ttext\n1\tx, y\n"),
        ("a.csv", "id|text\r1|x, y\r"),
        ("a.csv", 'sep=;\nid;text\n1;"x, y"\n'),
    ],
)
def test_the_delimiter_comes_from_the_header(tmp_path, name, content):
    assert read(tmp_path / name, content.encode()) == ([("1", "x, y")], [])


def test_bad_rows_of_a_table_cost_one_record_each(tmp_path):
    content = b"id,text\n1,good\n2\n3,a,b\n4,\xff\n5,fine\n"
    documents, bad = read(tmp_path / "a.csv", content)
    assert documents == [("1", "good"), ("5", "fine")]
    assert bad == [("line 3", "wrong_columns"), ("line 4", "wrong_columns"), ("line 5", "invalid_utf8")]


def test_a_quote_that_never_closes_costs_its_line_only(tmp_path):
    documents, bad = read(tmp_path / "a.csv", b'id,text\n1,a\n2,"open\n3,b\n4,c\n')
    assert documents == [("1", "a"), ("3", "b"), ("4", "c")]
    assert bad == [("line 3", "unclosed_quote")]


def test_a_quote_that_only_a_later_row_closes_costs_its_line_only(tmp_path):
    content = b'id,text\n1,a\n2,"monitor 21 broke\n3,third\n4,the 21" screen\n5,"line\none, ""x"""\n'
    documents, bad = read(tmp_path / "a.csv", content)
    assert documents == [("1", "a"), ("3", "third"), ("4", 'the 21" screen'), ("5", 'line\none, "x"')]
    assert bad == [("line 3", "unclosed_quote")]
    rows = b"".join(b"%d,x\n" % number for number in range(300))
    documents, bad = read(tmp_path / "b.csv", b'id,text\na,"open\n' + rows + b'b,"quoted, text"\n')
    assert (len(documents), documents[-1]) == (301, ("b", "quoted, text"))
    assert bad == [("line 2", "unclosed_quote")]


def test_lines_of_json_whose_first_is_a_list_are_read_as_lines(tmp_path):
    documents, bad = read(tmp_path / "a.json", b'[]\n{"id": "1", "text": "a"}\n{\n{"id": "2", "text": "b"}\n')
    assert documents == [("1", "a"), ("2", "b")]
    assert [place for place, _ in bad] == ["item 1", "item 3"]


def test_quotes_made_to_be_gone_back_over_end_in_bounded_time(tmp_path):
    content = b"id,text\n" + b'a"b"c,"\n' * 20_000
    started = time.monotonic()
    documents, bad = read(tmp_path / "a.csv", content, limits=Limits(max_record_bytes=100_000))
    assert time.monotonic() - started < 20
    assert (len(documents), bad[-1][1]) == (0, "unclosed_quote")


def test_a_table_without_the_text_column_counts_its_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,body\n1,x\n2,y\n")
    [bad] = [one for records in read_file(str(path)) for one in records.bad]
    assert (bad.reason, bad.num_records, bad.detail) == (
        "missing_field",
        2,
        'there is no column "text"; columns: id, body',
    )


def test_a_line_over_the_limit_in_a_table_is_one_bad_record(tmp_path):
    content = b"id,text\n1,a\n2," + b"x" * 5000 + b"\n3,b\n"
    documents, bad = read(tmp_path / "a.csv", content, limits=Limits(max_record_bytes=1000))
    assert (documents, bad) == ([("1", "a"), ("3", "b")], [("line 3", "record_too_long")])


def test_a_cut_table_keeps_whole_rows_and_says_so(tmp_path):
    whole = gzip.compress(b"id,text\n" + b"".join(b"%d,row %d of the table\n" % (i, i) for i in range(5000)), mtime=0)
    documents, bad = read(tmp_path / "a.csv.gz", whole[: len(whole) // 2])
    assert documents[0] == ("0", "row 0 of the table")
    assert all(text.endswith("table") for _, text in documents)
    assert [reason for _, reason in bad] == ["truncated"]


def test_a_json_file_is_a_list_or_one_object(tmp_path):
    content = b'[\n {"id": 1, "text": "a"},\n {"id": "b", "text": "\\ud83d x"},\n 5, {"body": ""}]'
    documents, bad = read(tmp_path / "a.json", content)
    assert documents == [("1", "a"), ("b", "\ufffd x")]
    assert bad == [("item 3", "not_an_object"), ("item 4", "missing_field")]
    assert read(tmp_path / "b.json", b'{\n"text": "t"\n}') == ([(None, "t")], [])
    assert read(tmp_path / "c.json", b'[{"text": "t"}') == ([], [("the whole file", "invalid_json")])
    assert read(tmp_path / "d.json", b"[" * 1_000_000) == ([], [("the whole file", "too_deep")])


def test_objects_over_several_lines_one_after_another_are_a_record_each(tmp_path):
    values = [{"id": str(number), "text": f"t{number}", "meta": {"n": [number]}} for number in range(3)]
    pretty = [json.dumps(value, indent=2) for value in values]
    rows = [("0", "t0"), ("1", "t1"), ("2", "t2")]
    assert read(tmp_path / "a.json", "\n".join(pretty).encode()) == (rows, [])
    assert read(tmp_path / "b.json", "\r\n\r\n".join(pretty).encode()) == (rows, [])
    broken = pretty[1].replace('"text":', '"text"')
    documents, bad = read(tmp_path / "c.json", "\n".join([pretty[0], broken, pretty[2]]).encode())
    assert (documents, bad) == ([rows[0], rows[2]], [("item 2", "invalid_json")])
    documents, bad = read(tmp_path / "d.json", "\n".join(pretty).encode().replace(b"t1", b"\xff1"))
    assert (documents, bad) == ([rows[0], rows[2]], [("item 2", "invalid_utf8")])
    assert read(tmp_path / "e.json", b'{\n"a": \n{"text": "inner"') == ([], [("item 1", "invalid_json")])


def test_text_and_id_may_lie_in_other_columns(tmp_path):
    content = "Номер;Текст\n7;да\n".encode()
    assert read(tmp_path / "a.csv", content, fields=Fields(text="Текст", id="Номер")) == ([("7", "да")], [])
