"""HTML: one page, one document, its visible text as resiliparse lays it out.

Text      all that a browser would show, save the elements that say they are navigation (NAVIGATION). No guess at the
          "main content": resiliparse's drops lists at a page's top and boxes, a tenth of the words of 1,045 manual
          pages. What stays of menus are template lines, which deduplication knows. Scripts, styles, comments, buttons
          and lists to choose from are not text; labels and text areas are (tabs of manuals are labels).
Fields    of other formats that hold HTML (`markup: html` of a source) are read like pages; one without a tag or an
          entity stays as it is.
Encoding  a byte-order mark, else UTF-8 where the bytes are that, else what the page declares, else resiliparse's guess;
          bytes that do not fit become U+FFFD, as in a browser.
Bad       a page over the record limit or of more than MAX_TAGS tags, one whose compressed stream breaks, one the
          parser refuses: half a page is not the page.

Limit: items of lists are indented by the lists around them; where that would add more than MAX_INDENTATION (20,000
lists in each other: 180 kB of page, 400 MB of spaces), the text comes without line ends and bullets.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from pipeline.readers.charsets import decoded
from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import SCHEMA, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source
from pipeline.readers.whole import Unreadable, whole, whole_file

MAX_TAGS = 2_000_000
"""Opening and closing: each takes up to 430 bytes in the parser, so this is 0.9 GB; 60 MB of `<i>x` took 6.5. The HTML
standard on one page has less than half of it.
"""
NAVIGATION = (
    *("nav", "[role=navigation]", "[role=search]"),
    *(".navheader", ".navfooter", ".docnav"),  # DocBook, Publican
    *(".sphinxsidebar", ".headerlink"),  # Sphinx: themes before roles; the mark at each heading
)
"""Selectors of what a page itself, or the program that made it, calls navigation."""
_MARKUP = re.compile(r"<[a-zA-Z/!]|&#?\w{1,30};")
# A tag that never ends takes the rest of the page: looking for its end once a tag would take the square of the length.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^>]*>?")
_LISTS = frozenset(("ul", "ol", "menu", "dir"))
MAX_INDENTATION = 8 << 20
"""Spaces that the indentation of lists may add to a page."""
_LABEL = re.compile(r"<(/?)(label|textarea)(?=[\s/>])", re.IGNORECASE)


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:  # noqa: ARG001 - a page has no fields
    """One document, or one bad record."""
    batch = Batch(limits)
    try:
        content = whole(source, limits)
        text = text_of(decoded(content))
    except (DamagedStream, Unreadable) as fault:
        batch.bad.append(whole_file(fault, source))
    else:
        batch.add_one(None, 1, text)
    yield batch.take()


def extracted(records: Records) -> Records:
    """The batch with the text of its texts, which are HTML; one that the parser refuses is one bad record."""
    texts: list[str | None] = []
    bad = list(records.bad)
    kept: list[int] = []
    for index, markup in enumerate(records.text.to_pylist()):
        try:
            texts.append(text_of(markup) if markup is not None and _MARKUP.search(markup) else markup)
            kept.append(index)
        except Unreadable as fault:
            content = markup.encode()
            place = f"record {records.documents['record'][index]}"
            bad.append(
                BadRecord(
                    place=place, reason=fault.reason, detail=fault.detail, num_bytes=len(content), first_bytes=content
                )
            )
    rows = records.documents.take(pa.array(kept, pa.int64())).combine_chunks()
    column = records.documents.schema.get_field_index("text")
    documents = rows.set_column(column, SCHEMA.field("text"), pa.array(texts, pa.large_string()))
    return dataclasses.replace(records, documents=documents, bad=tuple(bad))


def text_of(markup: str) -> str:
    """The text of a page or a fragment, by the rules above. Raises Unreadable."""
    if not markup.strip():
        return ""
    if (num_tags := markup.count("<")) > MAX_TAGS:
        raise Unreadable("too_many_tags", f"{num_tags:,} tags, limit {MAX_TAGS:,}")
    try:
        tree = HTMLTree.parse(_LABEL.sub(_as_text, markup))
        flat = _indentation(markup) > MAX_INDENTATION
        text = _visible(tree, skip=NAVIGATION, flat=flat)
        if not text.strip():  # a table of contents may be nothing else
            text = _visible(tree, skip=(), flat=flat)
    except (ValueError, RuntimeError, RecursionError, MemoryError) as error:
        raise Unreadable("damaged_html", f"{type(error).__name__}: {error}"[:500]) from None
    return text


def _visible(tree: HTMLTree, *, skip: Sequence[str], flat: bool) -> str:
    text: str = extract_plain_text(tree, skip_elements=skip, preserve_formatting=not flat, list_bullets=not flat)
    return text


def _as_text(tag: re.Match[str]) -> str:
    """A label's tag as an element that resiliparse does not leave out with the other parts of a form.

    In the markup: finding a thousand nested labels in the tree takes it two seconds.
    """
    closing, name = tag.groups()
    return f" <{closing}{'span' if name.lower() == 'label' else 'pre'}"


def _indentation(markup: str) -> int:
    """At most how many characters the indentation of lists adds: each tag may begin a line, and only ends of lists
    lessen it.
    """
    num_tags = markup.count("<")
    if 2 * num_tags * num_tags <= MAX_INDENTATION:
        return 0
    depth = total = 0
    for closing, name in _TAG.findall(markup):
        if name.lower() in _LISTS:
            depth = max(0, depth - 1) if closing else depth + 1
        total += 2 * depth
    return total
