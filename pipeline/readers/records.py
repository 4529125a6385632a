"""What every reader gives: batches of documents, and every record that could not be read.

The account is exact: a file's records = documents given + the `num_records` of its bad records, and nothing else.
"""

import re
from dataclasses import dataclass

import pyarrow as pa

# One row a document. `id` is null where the record has none; `record` is its place in the file, from 1: the line of a
# JSON lines or CSV file, the row of a Parquet file, the message of an mbox, 1 for a file that is one document. `text`
# is null where the record says null: reading does not judge emptiness, the caller drops null, empty and blank texts by
# name.
# `date` is when the record says it was written (dates.py), null where it says nothing or nobody asked.
SCHEMA = pa.schema(
    [("id", pa.large_string()), ("record", pa.int64()), ("text", pa.large_string()), ("date", pa.int64())]
)

# Why a record, or the rest of a file, was not read. These words stand in reports and manifests: do not rename them.
REASONS = {
    "invalid_json": "the line is not JSON",
    "invalid_utf8": "the bytes are not UTF-8",
    "utf_16": "the text is UTF-16 without a byte-order mark",
    "not_an_object": "the line is JSON, but no object with fields",
    "missing_field": "the record has no text field",
    "wrong_type": "the text field holds a number, a truth value, a list or an object",
    "record_too_long": "the record is longer than the stated limit",
    "too_deep": "the record is nested more deeply than the parser follows",
    "truncated": "the compressed file ends before its data does",
    "damaged_stream": "the compressed or encoded file does not decode from here on",
    "window_too_large": "the zstd frame needs a larger window than the stated limit",
    "expands_too_much": "the compressed file gives far more plain bytes than the stated limit allows",
    "damaged_parquet": "the Parquet file, or a part of it, cannot be decoded",
    "wrong_columns": "the row of the table has another number of fields than its header",
    "invalid_row": "the row of the table cannot be parsed",
    "unclosed_quote": "a quoted field of the table never ends",
    "damaged_message": "the mail cannot be parsed",
    "damaged_html": "the page cannot be parsed",
    "too_many_tags": "the page has more tags than the stated limit",
    "damaged_archive": "the archive breaks off or breaks here",
    "encrypted": "the archive's member asks for a password",
    "not_a_file": "the archive's member is a link or a device: it is never followed",
    "nested_too_deep": "archives inside archives beyond the stated depth",
    "unknown_format": "neither content nor name tells the format",
}

NUM_FIRST_BYTES = 200


@dataclass(frozen=True, kw_only=True)
class BadRecord:
    """A record, or a stretch of a file, that was not read.

    `place` is for people ("line 17", "rows 4 to 9", "byte 812 of the decompressed stream"); `num_bytes` is its length
    where known; `first_bytes` its beginning, at most NUM_FIRST_BYTES; `num_records` how many records it stands for
    (1 where that cannot be known, as after a cut).
    """

    place: str
    reason: str
    detail: str
    num_bytes: int
    first_bytes: bytes
    num_records: int = 1
    member: str = ""
    """Inside an archive: the path of the file there."""

    def __post_init__(self) -> None:
        assert self.reason in REASONS, self.reason
        object.__setattr__(self, "first_bytes", bytes(self.first_bytes[:NUM_FIRST_BYTES]))


@dataclass(frozen=True, kw_only=True)
class Records:
    """One batch: `documents` by SCHEMA, each column in one piece, and the bad records found on the way."""

    documents: pa.Table
    bad: tuple[BadRecord, ...] = ()
    member: str = ""
    """Inside an archive: the path of the file there, the same for all documents of the batch."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Inside an archive: (path, reason) of files that are no data by their names, wherever in it they lie."""
    num_attachments: int = 0
    """Left out of the mails among the documents (mail.py)."""

    @property
    def text(self) -> pa.LargeStringArray:
        """The texts as one Arrow array, nulls where the record says null."""
        return self.documents.column("text").chunk(0)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Which fields hold text, id and date. `a.b` goes into nested records; a key spelled `a.b` itself goes first.

    `id` None asks for ids by place: the column is all null. So is that of dates, unless they are `dated`: asked for, by
    the field `date` where records have fields, of mails by their header.
    """

    text: str = "text"
    id: str | None = "id"
    date: str | None = None
    dated: bool = False

    def __post_init__(self) -> None:
        assert self.dated or self.date is None, "a date is read only where dates are asked for"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds that keep memory flat whatever a file holds.

    `max_record_bytes`: a longer line, text or file of text is quarantined as record_too_long. `batch_bytes`: about how
    much text one `Records` holds (at most one record more). `free_expansion_bytes`, `max_expansion`: a compressed file
    gives at most that many plain bytes, plus that many times its own size, members of archives included; then it is a
    bomb. Real logs reach 100 times; gzip cannot go beyond 1,032.
    """

    max_record_bytes: int = 64 << 20
    batch_bytes: int = 16 << 20
    free_expansion_bytes: int = 256 << 20
    max_expansion: int = 250


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _whole(text: str | None) -> str | None:
    return None if text is None else _LONE_SURROGATE.sub("\ufffd", text)


class Batch:
    """Records being gathered until there is enough text to hand on."""

    # A file of nothing but bad lines must not be gathered whole: with 200 first bytes each this is a few MB.
    MAX_BAD = 10_000

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clear()

    def _clear(self) -> None:
        self._chunks: list[tuple[pa.Array, pa.Array, pa.Array, pa.Array]] = []
        self._rows: list[tuple[str | None, int, str | None, int | None]] = []
        self._num_row_chars = 0
        self._num_bytes = 0
        self.bad: list[BadRecord] = []
        self.num_attachments = 0

    def add(self, ids: pa.Array, records: pa.Array, texts: pa.Array, dates: pa.Array | None = None) -> None:
        """Arrays of one length, typed as SCHEMA's columns; no dates at all: None."""
        self._chunks.append((ids, records, texts, pa.nulls(len(ids), pa.int64()) if dates is None else dates))
        self._num_bytes += texts.nbytes

    def add_one(self, identity: str | None, record: int, text: str | None, date: int | None = None) -> None:
        """One document, for readers that come by them singly. Halves of surrogate pairs become U+FFFD."""
        self._rows.append((_whole(identity), record, _whole(text), date))
        self._num_row_chars += len(text or "")
        # Handed on in blocks, so that the strings do not pile up beside the arrays made of them.
        if self._num_row_chars > 1 << 20 or len(self._rows) >= 10_000:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            self.add(*(pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)))
            self._rows, self._num_row_chars = [], 0

    def __bool__(self) -> bool:
        return bool(self._chunks or self._rows or self.bad)

    @property
    def full(self) -> bool:
        return self._num_bytes >= self._limits.batch_bytes or len(self.bad) >= self.MAX_BAD

    def take(self) -> Records:
        """Everything gathered so far; the batch is empty afterwards."""
        self._flush()
        chunks = self._chunks or [tuple(pa.array([], column.type) for column in SCHEMA)]
        columns = [pa.concat_arrays(column) for column in zip(*chunks, strict=True)]
        records = Records(
            documents=pa.Table.from_arrays(columns, schema=SCHEMA),
            bad=tuple(self.bad),
            num_attachments=self.num_attachments,
        )
        self._clear()
        return records
