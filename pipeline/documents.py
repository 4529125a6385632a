"""What reading leaves behind: kept documents with what deduplication needs, one Parquet file a unit of work.

    id           large_string   as the record gives it, else "<file>#<record>"
    text         large_string   cleaned
    num_bytes    int64          UTF-8 bytes of text
    content_hash binary(16)     of the normalised text: equal means exact duplicate
    bands        binary(8 * b)  MinHash band hashes; null for documents too short for a shingle

One row group a batch of some 16 MB of text, so that a few documents can be fetched without the file. lz4 costs 412 MB
of text per core-second to write and 332 to read, zstd 410 and 151: read twice or more, lz4 is the cheaper one. The file
lives under `.build` and is no contract.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from pipeline.identity import CONTENT_HASH_BYTES


def documents_schema(bands: int) -> pa.Schema:
    """The schema for `bands` bands; with 0, near duplicates are not looked for and the column is all null."""
    return pa.schema(
        [
            ("id", pa.large_string()),
            ("text", pa.large_string()),
            ("num_bytes", pa.int64()),
            ("content_hash", pa.binary(CONTENT_HASH_BYTES)),
            ("bands", pa.binary(8 * max(1, bands))),
        ]
    )


def band_column(hashes: np.ndarray, has_signature: np.ndarray) -> pa.Array:
    """uint64 (n, bands) as the column `bands`, null where a document has no signature."""
    num_documents, bands = hashes.shape
    values = pa.py_buffer(np.ascontiguousarray(hashes.astype("<u8")))
    validity = pa.array(has_signature, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(8 * bands),
        num_documents,
        [validity, values],
        null_count=int(num_documents - np.count_nonzero(has_signature)),
    )


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
        return file.read(columns=None if columns is None else list(columns))
