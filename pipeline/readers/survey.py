"""A large file's first pass: its hash, and the parts that tasks can read one by one (parts.py)."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from pipeline.charset_names import GUESS
from pipeline.readers import archives, parquet
from pipeline.readers.compression import DamagedStream
from pipeline.readers.formats import format_of
from pipeline.readers.parts import Part, lines_parts, row_group_parts
from pipeline.readers.records import Fields, Limits
from pipeline.readers.source import BYTE_ORDER_MARKS, Source, utf_16_of


@dataclass(frozen=True, kw_only=True)
class Survey:
    """`parts` is empty where the file is to be read whole; only then may `sha256` (64 hex digits) be empty too."""

    parts: tuple[Part, ...] = ()
    sha256: str = ""


def survey(
    url: str, *, part_bytes: int, format: str = "auto", fields: Fields | None = None, encoding: str | None = None
) -> Survey:
    """Cut the file at `url` into parts of some `part_bytes` bytes as they lie in storage, at least."""
    fields = fields or Fields()
    with storage.open_stream(url) as stream:
        source = Source(url, stream, Limits(), path=storage.local_path(url))
        if archives.kind_of(source.head) is not None:
            return Survey()
        found = format if format != "auto" else format_of(url, source.head)
        parts: tuple[Part, ...] = ()
        if found == "jsonl" and encoding in (None, GUESS) and _is_utf8(source.head):
            try:
                parts = lines_parts(source, part_bytes)
            except DamagedStream:
                return Survey()
        elif found == "parquet" and source.compression == "none":
            try:
                with storage.open_ranged(url) as seekable, pq.ParquetFile(seekable) as file:
                    parts = row_group_parts(file, part_bytes) if parquet.has_text(file, fields) else ()
            except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:  # the disk's trouble, not the content's
                    raise
                return Survey()
        if not parts:
            return Survey()
        source.raw.drain()
        return Survey(parts=parts, sha256=source.raw.sha256)


def _is_utf8(head: bytes) -> bool:
    mark = next((encoding for mark, encoding in BYTE_ORDER_MARKS if head.startswith(mark)), utf_16_of(head) or "utf-8")
    return mark == "utf-8"
