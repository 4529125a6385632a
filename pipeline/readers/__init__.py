"""Input files -> batches of documents, and an account of every record that could not be read.

    url -> Source (hash, decompress by content) -> archive? then each member as a Source of its own
        -> format (asked for, else by content, else by name) -> READERS[format].read -> Records, ... -> FileSummary

A new format is one file here, with a `read` like the others', and one line in READERS. No fault in a file's content
raises: it becomes a BadRecord. What does raise is the machine's own trouble (a missing file, storage out of reach),
which a retry may cure.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from manifests import storage
from pipeline.readers import archives, csv, eml, html, json, jsonl, mbox, parquet, text
from pipeline.readers.compression import NAME_ENDINGS
from pipeline.readers.records import REASONS, SCHEMA, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source

__all__ = [
    "FORMAT_OF_NAME",
    "READERS",
    "REASONS",
    "SCHEMA",
    "BadRecord",
    "Fields",
    "FileSummary",
    "Limits",
    "Reading",
    "Records",
    "format_of",
    "read_file",
]

READERS: dict[str, Callable[[Source, Fields, Limits], Iterator[Records]]] = {
    "jsonl": jsonl.read,
    "json": json.read,
    "parquet": parquet.read,
    "csv": csv.read,
    "text": text.read,
    "html": html.read,
    "mbox": mbox.read,
    "eml": eml.read,
}

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


@dataclass(frozen=True, kw_only=True)
class FileSummary:
    """One file's account. `sha256` (64 hex digits) and `num_bytes` are of the raw file, as it lies in storage."""

    format: str
    compression: str
    sha256: str
    num_bytes: int
    num_documents: int
    num_bad_records: int

    @property
    def num_records(self) -> int:
        return self.num_documents + self.num_bad_records


class Reading:
    """Iterate once for the file's Records; `summary` is there afterwards, whatever state the file is in."""

    def __init__(self, url: str, format: str, fields: Fields, limits: Limits) -> None:
        self._url, self._format, self._fields, self._limits = url, format, fields, limits
        self._summary: FileSummary | None = None

    def __iter__(self) -> Iterator[Records]:
        num_documents = num_bad = 0
        with storage.open_stream(self._url) as stream:
            source = Source(self._url, stream, self._limits, path=storage.local_path(self._url))
            self._found = archives.kind_of(source.head) or self._format_of(source)
            for records in self._read(source):
                num_documents += records.documents.num_rows
                num_bad += sum(bad.num_records for bad in records.bad)
                yield records
            source.raw.drain()  # a reader stops at a fault, or seeks in the file itself: the hash is of all of it
        self._summary = FileSummary(
            format=self._found,
            compression=source.compression,
            sha256=source.raw.sha256,
            num_bytes=source.raw.num_bytes,
            num_documents=num_documents,
            num_bad_records=num_bad,
        )

    def _format_of(self, source: Source) -> str:
        return self._format if self._format != "auto" else format_of(source.name, source.head)

    def _read(self, source: Source) -> Iterator[Records]:
        kind = archives.kind_of(source.head)
        if kind is not None:
            return archives.read(kind, source, self._limits, self._read)
        format = self._format_of(source)
        reader = _unknown if format == "unknown" else READERS[format]
        return reader(source, self._fields, self._limits)

    @property
    def summary(self) -> FileSummary:
        assert self._summary is not None, "the summary is complete only when every record has been taken"
        return self._summary


def read_file(url: str, *, format: str = "auto", fields: Fields | None = None, limits: Limits | None = None) -> Reading:
    """The records of the file at `url` (local or s3://). `format` is "auto" or a key of READERS."""
    assert format == "auto" or format in READERS, format
    return Reading(url, format, fields or Fields(), limits or Limits())


_PAGE = re.compile(rb"(?:<\?xml[^>]*>|<!--.*?-->|\s)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_ENVELOPE = re.compile(rb"From \S[^\n]{0,300}\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b[^\n]{0,40}\d:\d\d[^\n]*\n[!-9;-~]+:")
_MAIL = re.compile(rb"(?:Return-Path|Received|Delivered-To|Message-ID|MIME-Version|From|Date): ", re.IGNORECASE)
_JSON_VALUE = re.compile(rb"\s*(?:\[|\{\s*[\r\n])")


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


def _unknown(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:  # noqa: ARG001 - a reader's shape
    batch = Batch(limits)
    batch.bad.append(
        BadRecord(
            place="the whole file",
            reason="unknown_format",
            detail=f"name the source's format: one of {', '.join(READERS)}",
            num_bytes=0,
            first_bytes=source.head,
        )
    )
    yield batch.take()
