"""Which format a file is in: by its content first, then by its name."""

import re

from pipeline.readers import jsonl
from pipeline.readers.compression import NAME_ENDINGS

FORMAT_OF_NAME = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".wml": "html",
    ".mbox": "mbox",
    ".mbx": "mbox",
    ".eml": "eml",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".markdown": "text",
    ".rst": "text",
    ".adoc": "text",
    ".po": "text",
    ".pot": "text",
    ".log": "text",
}

FIELDED = frozenset({"jsonl", "json", "csv", "parquet"})
"""Formats whose records have fields, one of which is the text."""
MAILS = frozenset({"mbox", "eml"})
"""Formats whose documents have headers."""
ENCODED = frozenset({"jsonl", "json", "csv", "text", "html"})
"""Formats whose characters are in one encoding through the file; mails say it part by part, Parquet is UTF-8."""

_PAGE = re.compile(rb"(?:<\?xml[^>]*>|<!--.*?-->|\s)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_ENVELOPE = re.compile(rb"From \S[^\n]{0,300}\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b[^\n]{0,40}\d:\d\d[^\n]*\n[!-9;-~]+:")
_MAIL = re.compile(rb"(?:Return-Path|Received|Delivered-To|Message-ID|MIME-Version|From|Date): ", re.IGNORECASE)
# A list, or an object whose first line does not end it.
_JSON_VALUE = re.compile(rb"\s*(?:\[|\{[^\n]*(?<=[{,:\[])[ \t\r]*\n|\{[ \t]*\r)")


def format_of(name: str, head: bytes) -> str:
    """A key of READERS, or "unknown", by the first plain bytes (some 4,096 of them) and the file's name or URL.

    Content that names its format comes first: Parquet's mark, the doctype of a page, the envelope of an mbox. Then the
    name's ending. A .json file that opens like a list, or like an object over several lines, is read as one value. A
    file of no telling name is JSON lines where it opens like an object, one value where it opens like a list, a mail
    where it opens with a mail's header. An empty file of no telling name counts as JSON lines: nothing in, nothing out.
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.removeprefix(jsonl.BOM)
    if _PAGE.match(start):
        return "html"
    if _ENVELOPE.match(start):
        return "mbox"
    name = name.rpartition("/")[2].lower()
    for ending in NAME_ENDINGS:
        name = name.removesuffix(ending)
    for ending, format in FORMAT_OF_NAME.items():
        if name.endswith(ending):
            return "json" if ending == ".json" and _JSON_VALUE.match(start) else format
    if start.lstrip(jsonl.WHITE_SPACE)[:1] in (b"{", b""):
        return "jsonl"
    if start.lstrip(jsonl.WHITE_SPACE)[:1] == b"[":
        return "json"
    return "eml" if _MAIL.match(start) else "unknown"
