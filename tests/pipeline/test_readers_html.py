"""HTML: pages, fragments and fields of it, by small files."""

import json
import time

from tests.pipeline.reading import read


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
