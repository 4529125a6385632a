"""Mails and mailboxes: each rule of their pages, by small files."""

import time

import pytest

from pipeline.readers import read_file
from tests.pipeline.reading import read


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


PICTURE = "--b\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n"
FORWARDED = "--b\nContent-Type: message/rfc822\n\nSubject: old\n\nold text\n"


@pytest.mark.parametrize("name", ["a.eml", "a.mbox"])
def test_what_is_attached_to_a_mail_is_left_out_and_counted(tmp_path, name):
    mail = MAIL.replace("--b--\n", PICTURE + FORWARDED + "--b--\n")
    path = tmp_path / name
    path.write_text("From a@example.org Tue Mar  5 10:15:01 2024\n" * name.endswith("mbox") + mail)
    [records] = read_file(str(path))
    assert records.documents["text"].to_pylist() == ["Subject: Я x\nFrom: Вася <v@example.org>\n\nПривет"]
    assert records.num_attachments == 3  # the text, the picture, the message


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
