"""HTML: one page, one document, its text as resiliparse extracts it.

Text      the page's main content, without navigation, headers and footers; where that finds nothing, or less than
          MIN_MAIN_FRACTION of the page's visible text, all visible text: a page is never lost to a heuristic. A
          fragment, markup without html or body, has no navigation: all its visible text. Scripts, styles and
          comments are not text.
Fields    of other formats that hold HTML (`markup: html` of a source) are fragments or pages like these; one without a
          tag or an entity stays as it is.
Encoding  a byte-order mark, else UTF-8 where the bytes are that, else what the page declares, else resiliparse's guess;
          bytes that do not fit become U+FFFD, as in a browser.
Bad       a page over the record limit, one whose compressed stream breaks, one the parser refuses: half a page is not
          the page.

Limits: finding the main content takes time with the square of the nesting, so pages nested beyond MAX_MAIN_DEPTH give
all visible text (20,000 levels: 30 s against 0.1 s). Items of lists are indented by the lists around them; where that
would add more than MAX_INDENTATION (20,000 lists in each other: 180 kB of page, 400 MB of spaces), the text comes
without line ends and bullets.
"""

import dataclasses
import re
from collections.abc import Iterator

import pyarrow as pa
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from pipeline.readers.charsets import decoded
from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import SCHEMA, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source
from pipeline.readers.whole import Unreadable, whole, whole_file

MAX_MAIN_DEPTH = 500
MIN_MAIN_FRACTION = 0.2
_WHOLE_PAGE = re.compile(r"<(?:html|body)\b", re.IGNORECASE)
_MARKUP = re.compile(r"<[a-zA-Z/!]|&#?\w{1,30};")
# A tag that never ends takes the rest of the page: looking for its end once a tag would take the square of the length.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^>]*>?")
_LISTS = frozenset(("ul", "ol", "menu", "dir"))
# Spaces that the indentation of lists may add to a page.
MAX_INDENTATION = 8 << 20
# Elements that hold nothing, or that the parser closes by itself: they add no depth.
_VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"),
        *("p", "li", "td", "tr", "th", "dd", "dt", "option"),
    )
)


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


def text_of(markup: str, *, may_be_page: bool = True) -> str:
    """The text of a page or a fragment, by the rules above; where it cannot be a page, all that is visible.

    Raises Unreadable.
    """
    if not markup.strip():
        return ""
    is_page = may_be_page and _WHOLE_PAGE.search(markup) is not None
    try:
        tree = HTMLTree.parse(markup)
        if _indentation(markup) > MAX_INDENTATION:
            flat: str = extract_plain_text(tree, main_content=False, preserve_formatting=False, list_bullets=False)
            return flat
        everything: str = extract_plain_text(tree, main_content=False)
        if not is_page or _depth(markup) > MAX_MAIN_DEPTH:
            return everything
        main: str = extract_plain_text(tree, main_content=True)
    except (ValueError, RuntimeError, RecursionError, MemoryError) as error:
        raise Unreadable("damaged_html", f"{type(error).__name__}: {error}"[:500]) from None
    return main if len(main) >= MIN_MAIN_FRACTION * len(everything) and main.strip() else everything


def _depth(markup: str) -> int:
    """About how deeply the page is nested: never too little."""
    if markup.count("<") <= MAX_MAIN_DEPTH:
        return 0
    depth = deepest = 0
    for closing, name in _TAG.findall(markup):
        if name.lower() in _VOID:
            continue
        depth = max(0, depth - 1) if closing else depth + 1
        deepest = max(deepest, depth)
    return deepest


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
