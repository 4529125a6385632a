"""CSV, JSON values, HTML, mail and archives: each rule of their pages, by small files."""

import gzip
import io
import json
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from pipeline.readers import Fields, Limits, read_file


def read(path: Path, content: bytes, **options):
    path.write_bytes(content)
    reading = read_file(str(path), **options)
    documents, bad = [], []
    for records in reading:
        documents += [(row["id"], row["text"]) for row in records.documents.to_pylist()]
        bad += records.bad
    assert reading.summary.num_records == len(documents) + sum(one.num_records for one in bad)
    return documents, [(one.member or one.place, one.reason) for one in bad]


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


def test_lists_in_lists_do_not_blow_up_a_page(tmp_path):
    page = b"<html><body>" + b"<ul><li>x" * 20_000
    [(_, text)], bad = read(tmp_path / "a.html", page)
    assert text.split() == ["x"] * 20_000
    assert len(text) < 10 * len(page)
    assert bad == []
    deep = b"<html><body>" + b"<ul>" * 400 + b"<li>x" * 100_000
    [(_, text)], bad = read(tmp_path / "b.html", deep)
    assert len(text) < 10 * len(deep)
    assert bad == []
    [(_, text)], bad = read(tmp_path / "c.html", b"<html><body><ul><li>one<ul><li>two</ul></ul>")
    assert text.splitlines() == ["  \u2022 one", "    \u2022 two"]
    assert bad == []


def test_tags_that_never_end_are_read_in_bounded_time(tmp_path):
    started = time.process_time()
    read(tmp_path / "a.html", b"<html><body>" + b"<a " * 400_000)
    assert time.process_time() - started < 20  # by the square of the length it would be two minutes


@pytest.mark.parametrize(
    "header",
    [
        b'Content-Type: text/plain; a="' + b";" * 1_000_000,
        b"Subject: " + b"=?utf-8?q?a?= " * 100_000,
        b'Content-Type: multipart/mixed; boundary=X\n\n--X\nContent-Type: text/plain; a="' + b";" * 1_000_000,
    ],
)
def test_a_header_without_end_is_one_bad_record(tmp_path, header):
    assert read(tmp_path / "a.eml", b"From: a@b.c\n" + header + b"\n\nbody\n") == (
        [],
        [("the whole file", "damaged_message")],
    )


def test_a_long_list_of_recipients_is_no_fault(tmp_path):
    content = b"Subject: s\nTo: " + b", ".join([b"someone@example.org"] * 5000) + b"\n\nbody\n"
    assert read(tmp_path / "a.eml", content) == ([(None, "Subject: s\n\nbody")], [])


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_archives_glued_together_are_not_silently_one(tmp_path, name):
    def archive(member: str) -> bytes:
        packed = io.BytesIO()
        if name == "a.zip":
            with zipfile.ZipFile(packed, "w") as zip_archive:
                zip_archive.writestr(member, "text")
            return packed.getvalue()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            info = tarfile.TarInfo(member)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
        return gzip.compress(packed.getvalue()) if name.endswith(".gz") else packed.getvalue()

    documents, bad = read(tmp_path / name, archive("1.txt") + archive("2.txt"))
    assert len(documents) == 1
    assert [reason for _, reason in bad] == ["damaged_archive"]
    assert read(tmp_path / name, archive("1.txt")) == ([(None, "text")], [])


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


def test_a_page_gives_its_text_in_its_own_encoding(tmp_path):
    page = (
        "<html><head><meta charset=windows-1251><title>т</title></head><body><nav>меню</nav>"
        "<script>x()</script><main><h1>Заголовок</h1><p>Первый абзац.<p>Второй, x&sup2;.</main></body></html>"
    )
    for name, content in (("a.html", page.encode("cp1251", "xmlcharrefreplace")), ("b", page.encode())):
        [(identity, text)], bad = read(tmp_path / name, content)
        assert (identity, bad) == (None, [])
        assert "Заголовок" in text
        assert "Второй, x²." in text
        assert "x()" not in text
        assert "меню" not in text


def test_a_page_keeps_what_is_not_marked_as_navigation(tmp_path):
    page = (
        '<html><body><ul class="docnav"><li><a href="p">Prev</a></ul><h1>About<a class="headerlink" href="#">¶</a></h1>'
        '<ul><li><a href="a">one</a></li><li><a href="b">two</a></li></ul><div class="sidebar"><p>A box.</p></div>'
        '<label for="t">Linux</label><label>macOS</label><textarea>your words</textarea><select><option>no</select>'
        "<button>Go</button><footer>(c) us</footer></body></html>"
    )
    [(_, text)], _ = read(tmp_path / "a.html", page.encode())
    assert " ".join(text.split()) == "About • one • two A box. Linux macOS your words (c) us"


def test_a_page_of_nothing_but_navigation_is_no_page_without_text(tmp_path):
    assert read(tmp_path / "a.html", b"<html><body><nav>Chapter 1</nav></body></html>") == ([(None, "Chapter 1")], [])


def test_a_fragment_of_html_gives_all_its_text(tmp_path):
    fragment = "#use page\n<ul>\n<li>first</li>\n<li>second</li>\n</ul>"
    [(_, text)], _ = read(tmp_path / "a.wml", fragment.encode())
    assert "first" in text
    assert "second" in text


def test_a_field_that_holds_html_gives_its_text_where_the_config_says_so(tmp_path):
    rows = [{"id": 1, "text": "<p>a &lt; b</p>\n<p>c</p>"}, {"id": 2, "text": "x < y\n\nz"}, {"id": 3, "text": None}]
    content = "\n".join(map(json.dumps, rows)).encode()
    assert read(tmp_path / "a.jsonl", content, markup="html")[0] == [
        ("1", "a < b\n\nc"),
        ("2", "x < y\n\nz"),
        ("3", None),
    ]
    assert read(tmp_path / "a.jsonl", content)[0][0] == ("1", "<p>a &lt; b</p>\n<p>c</p>")


def test_a_page_nested_without_end_is_read_in_bounded_time(tmp_path):
    started = time.monotonic()
    documents, bad = read(tmp_path / "a.html", b"<html>" + b"<div>" * 200_000 + b"deep")
    assert time.monotonic() - started < 20
    assert (documents, bad) == ([(None, "deep")], [])


def test_a_page_of_millions_of_tags_is_refused_before_the_parser_takes_gigabytes(tmp_path):
    assert read(tmp_path / "a.html", b"<html>" + b"<i>x" * 2_000_000) == ([], [("the whole file", "too_many_tags")])


MAIL = (
    "Message-ID: <m1@example.org>\nFrom: =?koi8-r?B?98HT0Q==?= <v@example.org>\nSubject: =?utf-8?Q?=D0=AF?=\n x\n"
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n'
    '--b\nContent-Type: multipart/alternative; boundary="a"\n\n'
    "--a\nContent-Type: text/html\n\n<p>html</p>\n--a\nContent-Type: text/plain; charset=windows-1251\n"
    "Content-Transfer-Encoding: base64\n\nz/Do4uXy\n--a--\n"
    "--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename=x.txt\n\nattached\n--b--\n"
)


def test_a_mail_gives_headers_and_the_plain_text_of_alternatives(tmp_path):
    assert read(tmp_path / "a.eml", MAIL.encode()) == (
        [("m1@example.org", "Subject: Я x\nFrom: Вася <v@example.org>\n\nПривет")],
        [],
    )


def test_a_mail_of_html_alone_gives_all_that_is_visible(tmp_path):
    rows = "".join(f"<tr><td>Name</td><td>{value}</td></tr>" for value in ("first", "second"))
    page = f"<html><body><p>Deployer properties:</p><ul><li>agent = Maven</li></ul><table>{rows}</table></body></html>"
    mail = f"Subject: s\nContent-Type: text/html\n\n{page}\n".encode()
    [(_, text)], _ = read(tmp_path / "a.eml", mail)
    assert "agent = Maven" in text
    assert "second" in text


def test_enriched_text_loses_its_marks_with_their_parameters(tmp_path):
    mail = b"Subject: s\nContent-Type: text/enriched\n\n<bold>a</bold> <color><param>red</param>b</color> <<c>\n"
    [(_, text)], _ = read(tmp_path / "a.eml", mail)
    assert text == "Subject: s\n\na b <c>"


def test_an_mbox_is_split_at_envelopes_and_never_inside_a_body(tmp_path):
    envelope = "From a@example.org Tue Mar  5 10:15:01 2024\n"
    first = envelope + "Subject: 1\n\nFrom now on it works.\n\nFrom the start.\n>From the end.\n\n"
    documents, bad = read(tmp_path / "a.mbox", (first + envelope + MAIL).encode())
    assert documents[0] == (None, "Subject: 1\n\nFrom now on it works.\n\nFrom the start.\nFrom the end.")
    assert [identity for identity, _ in documents] == [None, "m1@example.org"]
    assert bad == []


@pytest.mark.parametrize(
    "content",
    [
        b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\nContent-Type: multipart/mixed; boundary=b\n\n" * 5000,
        b"Content-Type: text/plain; charset=punycode\n\n" + b"a-" * 20_000,
        b"Content-Type: text/plain; charset=zlib\n\nx",
        b"Subject: " + b"=?utf-8?q?=ff?= " * 20_000 + b"\n\nx",
        b"Content-Type: text/plain; charset*=utf-7''x; charset=\"\x00\"\n\n+2D0-",
    ],
)
def test_hostile_mails_end_in_a_document_or_a_bad_record(tmp_path, content):
    started = time.monotonic()
    documents, bad = read(tmp_path / "a.eml", content)
    assert len(documents) + len(bad) == 1
    assert time.monotonic() - started < 20


def tar_of(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_is_a_folder_of_files_each_in_its_own_format(tmp_path, pack):
    inner = pack(("deep.md", b"# inner"))
    content = pack(
        ("a.jsonl", b'{"id": "j", "text": "lines"}\n{\n'),
        ("b/c.csv.gz", gzip.compress(b"id,text\nt,table\n")),
        ("../out.txt", b"name only"),
        ("._junk", b"\0"),
        ("photo.png", b"\x89PNG"),
        ("program.py", b"import os"),
        ("inner.bin", inner),
    )
    documents, bad = read(tmp_path / "archive.whatever", content)
    assert documents == [("j", "lines"), ("t", "table"), (None, "name only"), (None, "# inner")]
    assert bad == [("a.jsonl", "invalid_json"), ("program.py", "unknown_format")]
    assert not (tmp_path.parent / "out.txt").exists()


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_what_an_archive_skips_by_name_is_listed_with_its_reason(tmp_path, pack):
    path = tmp_path / "a.tar"
    inner = pack((".git/config", b"x"), ("deep.md", b"kept"))
    path.write_bytes(pack(("._junk", b"\0"), ("a/_SUCCESS", b""), ("a/b.txt", b"kept"), ("inner.bin", inner)))
    batches = list(read_file(str(path)))
    assert sorted(skipped for records in batches for skipped in records.skipped) == [
        ("._junk", "a hidden file or folder"),
        ("a/_SUCCESS", "a marker of a tool"),
        ("inner.bin/.git/config", "a hidden file or folder"),
    ]
    assert sum(records.documents.num_rows for records in batches) == 2


def test_pictures_and_scripts_in_an_archive_are_read_where_a_format_is_named(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(("a.js", b"let a"), ("B.PNG", b"text after all"), ("css", b"a name without an ending")))
    assert [row for records in read_file(str(path), format="text") for row in records.text.to_pylist()] == [
        "let a",
        "text after all",
        "a name without an ending",
    ]
    [*batches] = read_file(str(path))
    assert [skipped for records in batches for skipped in records.skipped] == [
        ("a.js", "a style sheet or script of pages"),
        ("B.PNG", "a picture"),
    ]
    assert [bad.member for records in batches for bad in records.bad] == ["css"]


def test_a_source_in_an_8_bit_encoding_is_read_by_its_name(tmp_path):
    text = "Ёлка — «да»"
    assert read(tmp_path / "a.txt", text.encode("cp1251"), encoding="cp1251") == ([(None, text)], [])
    assert read(tmp_path / "b.csv", f"id,text\n1,{text}\n".encode("cp1251"), encoding="cp1251") == ([("1", text)], [])
    assert read(tmp_path / "c.jsonl", f'{{"text": "{text}"}}'.encode("cp1251"), encoding="cp1251") == (
        [(None, text)],
        [],
    )
    assert read(tmp_path / "d.html", f"<p>{text}</p>".encode("cp1251"), encoding="cp1251") == ([(None, text)], [])
    marked = b"\xef\xbb\xbf" + text.encode()
    assert read(tmp_path / "e.txt", marked, encoding="cp1251") == ([(None, text)], [])


def test_a_byte_that_the_encoding_lacks_costs_one_record(tmp_path):
    lines = b'{"text": "a"}\n{"text": "\x98"}\n{"text": "\xe0"}\n'
    documents, bad = read(tmp_path / "a.jsonl", lines, encoding="cp1251")
    assert (documents, bad) == ([(None, "a"), (None, "а")], [("line 2", "invalid_utf8")])


@pytest.mark.parametrize("encoding", ["cp1251", "cp866", "koi8-r"])
def test_an_encoding_can_be_guessed_from_a_text(tmp_path, encoding):
    text = "Это обычный русский текст о настройке сервера, достаточно длинный для догадки.\n" * 3
    assert read(tmp_path / "a.txt", text.encode(encoding), encoding="guess") == ([(None, text)], [])
    assert read(tmp_path / "b.txt", text.encode(), encoding="guess") == ([(None, text)], [])
    assert read(tmp_path / "c.txt", text.encode(encoding)) == ([], [("the whole file", "invalid_utf8")])


def test_links_in_archives_are_reported_and_never_followed(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        link = tarfile.TarInfo("passwd.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert read(tmp_path / "a.tar", out.getvalue()) == ([], [("passwd.txt", "not_a_file")])
    info = zipfile.ZipInfo("passwd.txt")
    info.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    assert read(tmp_path / "a.zip", buffer.getvalue()) == ([], [("passwd.txt", "not_a_file")])


def test_a_cut_or_broken_archive_is_never_silent(tmp_path):
    whole = tar_of(("a.txt", b"first"), ("b.txt", b"second" * 500), ("c.txt", b"third"))
    documents, bad = read(tmp_path / "cut.tar", whole[:2500])
    assert documents == [(None, "first")]
    assert [reason for _, reason in bad] == ["truncated", "truncated"]
    broken = bytearray(whole)
    broken[1024:1034] = b"\xff" * 10  # the second header
    documents, bad = read(tmp_path / "broken.tar", bytes(broken))
    assert documents == [(None, "first")]
    assert [reason for _, reason in bad] == ["damaged_archive"]
    documents, bad = read(tmp_path / "no-end.tar", tar_of(("a.txt", b"first"))[:1024])
    assert (documents, [reason for _, reason in bad]) == ([(None, "first")], ["truncated"])
    assert [reason for _, reason in read(tmp_path / "cut.zip", zip_of(("a.txt", b"first"))[:-10])[1]] == [
        "damaged_archive"
    ]


def test_a_header_that_claims_exabytes_ends_at_the_end(tmp_path):
    info = tarfile.TarInfo("a.txt")
    info.size = 1 << 60
    started = time.monotonic()
    for kind in (tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.SYMTYPE, b"Z"):
        info.type = kind
        _, bad = read(tmp_path / "a.tar", info.tobuf(tarfile.GNU_FORMAT) + b"x" * 2048)
        assert bad
    assert time.monotonic() - started < 20


def test_archives_in_archives_stop_at_the_stated_depth(tmp_path):
    content = tar_of(("a.txt", b"x"))
    for _ in range(4):
        content = tar_of(("inner.tar", content))
    assert [reason for _, reason in read(tmp_path / "a.tar", content)[1]] == ["nested_too_deep"]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.zip", "a.tar.gz"])
def test_a_bomb_stops_at_the_stated_expansion(tmp_path, name):
    zeros = bytes(20 << 20)
    content = {
        "a.txt.gz": lambda: gzip.compress(zeros),
        "a.zip": lambda: zip_of(("a.txt", zeros)),
        "a.tar.gz": lambda: gzip.compress(tar_of(("a.txt", zeros))),
    }[name]()
    limits = Limits(free_expansion_bytes=1 << 20, max_expansion=10)
    documents, bad = read(tmp_path / name, content, limits=limits)
    assert documents == []
    assert {reason for _, reason in bad} <= {"expands_too_much"}
    assert bad


def test_a_password_is_reported(tmp_path):
    content = bytearray(zip_of(("a.txt", b"x")))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + offset] |= 1
    assert read(tmp_path / "a.zip", bytes(content)) == ([], [("a.txt", "encrypted")])


def test_text_and_id_may_lie_in_other_columns(tmp_path):
    content = "Номер;Текст\n7;да\n".encode()
    assert read(tmp_path / "a.csv", content, fields=Fields(text="Текст", id="Номер")) == ([("7", "да")], [])
