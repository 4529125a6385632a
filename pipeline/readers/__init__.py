"""Input files -> batches of documents, and an account of every record that could not be read.

    url -> Source (hash, decompress by content) -> format (asked for, else by content, else by name)
        -> READERS[format].read -> Records, Records, ... -> FileSummary

A new format is one file here, with a `read` like the others', and one line in READERS. No fault in a file's content
raises: it becomes a BadRecord. What does raise is the machine's own trouble (a missing file, storage out of reach),
which a retry may cure.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from manifests import storage
from pipeline.readers import jsonl, parquet, text
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
    "parquet": parquet.read,
    "text": text.read,
}

FORMAT_OF_NAME = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".markdown": "text",
    ".rst": "text",
    ".adoc": "text",
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
            source = Source(self._url, stream)
            format = self._format if self._format != "auto" else format_of(self._url, source.head)
            reader = _unknown if format == "unknown" else READERS[format]
            for records in reader(source, self._fields, self._limits):
                num_documents += records.documents.num_rows
                num_bad += sum(bad.num_records for bad in records.bad)
                yield records
            source.raw.drain()  # a reader stops at a fault, or seeks in the file itself: the hash is of all of it
        self._summary = FileSummary(
            format=format,
            compression=source.compression,
            sha256=source.raw.sha256,
            num_bytes=source.raw.num_bytes,
            num_documents=num_documents,
            num_bad_records=num_bad,
        )

    @property
    def summary(self) -> FileSummary:
        assert self._summary is not None, "the summary is complete only when every record has been taken"
        return self._summary


def read_file(url: str, *, format: str = "auto", fields: Fields | None = None, limits: Limits | None = None) -> Reading:
    """The records of the file at `url` (local or s3://). `format` is "auto" or a key of READERS."""
    assert format == "auto" or format in READERS, format
    return Reading(url, format, fields or Fields(), limits or Limits())


def format_of(url: str, head: bytes) -> str:
    """A key of READERS, or "unknown", by the first plain bytes, else the name, else whether it opens like a JSON
    object.

    An empty file of no telling name counts as JSON lines: nothing in, nothing out.
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    name = url.rpartition("/")[2].lower()
    for ending in NAME_ENDINGS:
        name = name.removesuffix(ending)
    for ending, format in FORMAT_OF_NAME.items():
        if name.endswith(ending):
            return format
    return "jsonl" if head.removeprefix(jsonl.BOM).lstrip(jsonl.WHITE_SPACE)[:1] in (b"{", b"") else "unknown"


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
