"""What reading leaves behind: kept documents with what deduplication needs, one Parquet file a unit of work.

    id           large_string   as the record gives it, else "<file>#<record>"
    text         large_string   cleaned
    num_bytes    int64          UTF-8 bytes of text
    date         int64          when it was written, UTC seconds; null where that is not known, or nobody asked
    content_hash binary(16)     of the normalised text: equal means exact duplicate
    text_hash    uint64         of the text as it stands: decides between documents equal in all else
    signature    binary(4 * p)  MinHash of p permutations; null for documents too short for a shingle

A row group holds some ROW_GROUP_BYTES of text, so that a few documents can be fetched without the file. On a local disk
text is not compressed, which writes four times and reads twice as fast as lz4; where a network is behind it is (to 0.39
of the size, 460 MB of text per core-second to write and 1,800 to read). The file lives under `.build` and is no
contract.

Beside it lies a file of the unit's lines, LINE records sorted by hash: in how many of its documents each line stands.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from pipeline.identity import CONTENT_HASH_BYTES

LINE = np.dtype([("hash", "<u8"), ("count", "<i8")])

ROW_GROUP_BYTES = 4_000_000
"""With 16 MB the stage `sign` takes twice as long, since nothing stays in a cache; 2 MB cost the encoder 20 %."""
GROUP_DOCUMENTS = 2_000_000
GROUP_BYTES = 256_000_000
"""A group of files is what one deduplication task goes through: few enough documents for its records to fit in memory
(700 MB of band records), enough text for a task of seconds.
"""
MAX_GROUPS = 4096
"""Where that would make more groups than this, they hold more text each: every group reads a piece of every other's
output, and pieces should be large.
"""


@dataclass(frozen=True, kw_only=True)
class DocumentsFile:
    """What a read unit kept, as later stages see it."""

    key: str
    """Fingerprint of the read unit."""
    url: str
    source: str
    priority: int
    num_documents: int
    first_document: int
    """Its first document's number in the build."""
    num_bytes: int = 0
    """UTF-8 bytes of text."""
    group: int = 0


def in_groups(files: Sequence[DocumentsFile]) -> tuple[DocumentsFile, ...]:
    """The files with their groups: neighbours, until a group has enough."""
    most_bytes = max(GROUP_BYTES, sum(file.num_bytes for file in files) // MAX_GROUPS)
    grouped: list[DocumentsFile] = []
    group = num_documents = num_bytes = 0
    for file in files:
        if num_documents and (
            num_documents + file.num_documents > GROUP_DOCUMENTS or num_bytes + file.num_bytes > most_bytes
        ):
            group, num_documents, num_bytes = group + 1, 0, 0
        num_documents, num_bytes = num_documents + file.num_documents, num_bytes + file.num_bytes
        grouped.append(replace(file, group=group))
    return tuple(grouped)


def documents_schema(num_permutations: int) -> pa.Schema:
    """The schema for signatures of so many permutations; where near duplicates are not looked for, all are null."""
    return pa.schema(
        [
            ("id", pa.large_string()),
            ("text", pa.large_string()),
            ("num_bytes", pa.int64()),
            ("date", pa.int64()),
            ("content_hash", pa.binary(CONTENT_HASH_BYTES)),
            ("text_hash", pa.uint64()),
            ("signature", pa.binary(4 * num_permutations)),
        ]
    )


def compression(url: str) -> str:
    """Of a documents file: see above."""
    return "lz4" if storage.local_path(url) is None else "none"


def row_group_rows(num_documents: int, num_bytes: int) -> int:
    """How many documents of a batch make a row group."""
    return max(1, -(-num_documents * ROW_GROUP_BYTES // max(ROW_GROUP_BYTES, num_bytes)))


def signature_column(signatures: np.ndarray, has_signature: np.ndarray) -> pa.Array:
    """uint32 (n, permutations) as the column `signature`, null where a document has none."""
    num_documents, num_permutations = signatures.shape
    values = pa.py_buffer(np.ascontiguousarray(signatures.astype("<u4")))
    validity = pa.array(has_signature, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(4 * num_permutations),
        num_documents,
        [validity, values],
        null_count=int(num_documents - np.count_nonzero(has_signature)),
    )


def add_lines(counted: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """LINE (k,), sorted by hash: `counted` with one more for each of `hashes`, uint64 (m,)."""
    new, counts = np.unique(hashes, return_counts=True)
    added = np.empty(len(new), LINE)
    added["hash"], added["count"] = new, counts
    return sum_lines([counted, added])


def sum_lines(parts: Sequence[np.ndarray]) -> np.ndarray:
    """LINE (k,), sorted by hash: equal hashes of all parts added up."""
    lines = np.concatenate([np.empty(0, LINE), *parts])
    hashes, place = np.unique(lines["hash"], return_inverse=True)
    total = np.zeros(len(hashes), LINE)
    total["hash"] = hashes
    np.add.at(total["count"], place, lines["count"])
    return total


def fixed_bytes(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """A binary(width) column as uint8 (n, width), whatever its nulls hold."""
    chunks = []
    for chunk in column.chunks:
        raw = np.frombuffer(chunk.buffers()[1] or b"", np.uint8)
        chunks.append(raw[chunk.offset * width : (chunk.offset + len(chunk)) * width].reshape(-1, width))
    return np.concatenate(chunks) if chunks else np.empty((0, width), np.uint8)


@contextmanager
def open_parquet(url: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file on local disk or S3: only the row groups and columns asked for are read."""
    path = storage.local_path(url)
    if path is not None:
        with pq.ParquetFile(path) as file:
            yield file
        return
    with storage.open_ranged(url) as stream, pq.ParquetFile(stream) as file:
        yield file


def read_columns(url: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Whole columns, or all of them, of a Parquet file."""
    with open_parquet(url) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=False)
