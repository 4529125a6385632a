"""Input files -> batches of documents, and an account of every record that could not be read.

    url -> Source (hash, decompress by content) -> archive? then each member as a Source of its own
        -> format (asked for, else by content, else by name) -> READERS[format].read -> Records, ... -> FileSummary

A new format is one file here, with a `read` like the others', and one line in READERS. No fault in a file's content
raises: it becomes a BadRecord. What does raise is the machine's own trouble (a missing file, storage out of reach),
which a retry may cure.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from manifests import storage
from pipeline.readers import archives, csv, eml, html, json, jsonl, mbox, parquet, text
from pipeline.readers.formats import ENCODED, FIELDED, FORMAT_OF_NAME, format_of
from pipeline.readers.names import no_data, no_text
from pipeline.readers.parts import Part
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

    def __init__(
        self,
        url: str,
        format: str,
        fields: Fields,
        limits: Limits,
        encoding: str | None,
        markup: str | None,
        part: Part | None,
    ) -> None:
        self._url, self._format, self._fields, self._limits = url, format, fields, limits
        self._encoding, self._markup, self._part = encoding, markup, part
        self._summary: FileSummary | None = None

    def __iter__(self) -> Iterator[Records]:
        num_documents = num_bad = 0
        part = self._part
        with storage.open_stream(self._url, 0 if part is None else part.offset) as stream:
            source = Source(self._url, stream, self._limits, path=storage.local_path(self._url), part=part)
            self._found = (archives.kind_of(source.head) if part is None else None) or self._format_of(source)
            for records in self._read(source):
                num_documents += records.documents.num_rows
                num_bad += sum(bad.num_records for bad in records.bad)
                yield records
            if part is None:
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
        if source.part is not None:
            return source.part.format
        return self._format if self._format != "auto" else format_of(source.name, source.head)

    def _read(self, source: Source) -> Iterator[Records]:
        kind = archives.kind_of(source.head) if source.part is None else None
        if kind is not None:
            named_no_data = no_text if self._format == "auto" else no_data
            return archives.read(kind, source, self._limits, self._read, named_no_data)
        format = self._format_of(source)
        if format in ENCODED:
            source.encoding = self._encoding
        reader = _unknown if format == "unknown" else READERS[format]
        batches = reader(source, self._fields, self._limits)
        return map(html.extracted, batches) if self._markup == "html" and format in FIELDED else batches

    @property
    def summary(self) -> FileSummary:
        assert self._summary is not None, "the summary is complete only when every record has been taken"
        return self._summary


def read_file(
    url: str,
    *,
    format: str = "auto",
    fields: Fields | None = None,
    limits: Limits | None = None,
    encoding: str | None = None,
    markup: str | None = None,
    part: Part | None = None,
) -> Reading:
    """The records of the file at `url` (local or s3://), or of one `part` of it (see parts.py).

    `format` is "auto" or a key of READERS; `encoding` the character set of files of ENCODED formats that have no
    byte-order mark, charset_names.GUESS to tell it from each file's bytes, None for UTF-8.
    `markup` "html" says that the text fields of FIELDED formats hold HTML. The summary of a part counts
    its records only; its bytes and hash are of no use.
    """
    assert format == "auto" or format in READERS, format
    return Reading(url, format, fields or Fields(), limits or Limits(), encoding, markup, part)


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
