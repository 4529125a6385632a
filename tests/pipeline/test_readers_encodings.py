"""Text in 8 bits: by the name of its encoding, or guessed."""

import pytest

from tests.pipeline.reading import read


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
