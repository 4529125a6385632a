"""Tables on their way from many tasks to many others, as shuffle.py has it for records of fixed width.

A file is an index of P + 1 positions in it (int64: where each batch starts, where the last ends) and then P Arrow
record batches without their schema, one after another; of an empty one there is nothing. So a task finds its batch with
two range reads, 16 bytes and what it needs, where an Arrow file's footer would tell it of all P: 24 bytes each, again
for every task that reads.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from manifests import storage
from pipeline.reads import ByteRange, read_in_pieces, read_many
from pipeline.scratch_disk import scratch_folder, writing_to_scratch


def write_batches(url: str, table: pa.Table, bounds: Sequence[int]) -> None:
    """Write `table` as one batch for each pair of neighbouring bounds."""
    table = table.combine_chunks()
    sizes = [sum(map(pa.ipc.get_record_batch_size, _batches(table, start, end))) for start, end in pairwise(bounds)]
    index = np.cumsum([8 * (len(sizes) + 1), *sizes]).astype("<i8")
    with storage.atomic_writer(url) as stream:
        stream.write(index.tobytes())
        for start, end in pairwise(bounds):
            stream.write(serialized(table, start, end))


def serialized(table: pa.Table, start: int, end: int) -> bytes:
    """Rows start..end - 1 of a table in one chunk as such a batch."""
    return b"".join(batch.serialize() for batch in _batches(table, start, end))


def _batches(table: pa.Table, start: int, end: int) -> list[pa.RecordBatch]:
    return table.slice(start, end - start).to_batches() if start < end else []


class BatchRange(NamedTuple):
    """Batches first..end - 1 of a file."""

    url: str
    first: int
    end: int


def read_batches(stretches: Sequence[BatchRange], schema: pa.Schema) -> Iterator[pa.Table]:
    """A table for each of `stretches`, in their order."""
    indexes = list(_indexes(stretches))
    reads = [ByteRange(one.url, index[0], index[-1] - index[0]) for one, index in zip(stretches, indexes, strict=True)]
    for data in read_many(reads):
        yield table_of(data, schema)


def read_batch_by_batch(urls: Sequence[str], schema: pa.Schema, first: int, end: int) -> Iterator[pa.Table]:
    """Batches first..end - 1, one after another, each of all files together.

    A file on S3 is asked once for all of them, in one piece; what comes later waits on the local disk.
    """
    if end - first == 1 or all(storage.local_path(url) is not None for url in urls):
        for number in range(first, end):
            stretches = [BatchRange(url, number, number + 1) for url in urls]
            yield pa.concat_tables([schema.empty_table(), *read_batches(stretches, schema)])
        return
    stretches = [BatchRange(url, first, end) for url in urls]
    indexes = list(_indexes(stretches))
    reads = [ByteRange(one.url, index[0], index[-1] - index[0]) for one, index in zip(stretches, indexes, strict=True)]
    with scratch_folder() as folder:
        paths = [folder / str(number) for number in range(first, end)]
        with writing_to_scratch(), ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for number, begin, data in read_in_pieces(reads):
                places = np.clip(np.array(indexes[number]) - indexes[number][0] - begin, 0, len(data)).tolist()
                for file, (start, stop) in zip(files, pairwise(places), strict=True):
                    file.write(data[start:stop])
        for path in paths:
            yield table_of(path.read_bytes(), schema)
            path.unlink()


def _indexes(stretches: Sequence[BatchRange]) -> Iterator[list[int]]:
    reads = [ByteRange(one.url, 8 * one.first, 8 * (one.end - one.first + 1)) for one in stretches]
    for data in read_many(reads):
        yield np.frombuffer(data, "<i8").tolist()


def table_of(data: bytes, schema: pa.Schema) -> pa.Table:
    """Batches one after another, as one table."""
    reader = pa.BufferReader(data)
    batches = []
    while reader.tell() < reader.size():
        batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema))
    return pa.Table.from_batches(batches, schema=schema)
