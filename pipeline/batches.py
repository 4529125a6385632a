"""Tables on their way from many tasks to many others, as shuffle.py has it for records of fixed width.

A file is an index of P + 1 positions in it (int64: where each batch starts, where the last ends) and then P Arrow
record batches without their schema, one after another; of an empty one there is nothing. So a task finds its batch with
two range reads, 16 bytes and what it needs, where an Arrow file's footer would tell it of all P: 24 bytes each, again
for every task that reads.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from manifests import storage


def write_batches(url: str, table: pa.Table, bounds: Sequence[int]) -> None:
    """Write `table` as one batch for each pair of neighbouring bounds."""
    table = table.combine_chunks()
    sizes = [sum(map(pa.ipc.get_record_batch_size, _batches(table, start, end))) for start, end in pairwise(bounds)]
    index = np.cumsum([8 * (len(sizes) + 1), *sizes]).astype("<i8")
    with storage.atomic_writer(url) as stream:
        stream.write(index.tobytes())
        for start, end in pairwise(bounds):
            for batch in _batches(table, start, end):
                stream.write(batch.serialize())


def _batches(table: pa.Table, start: int, end: int) -> list[pa.RecordBatch]:
    return table.slice(start, end - start).to_batches() if start < end else []


def read_batches(url: str, schema: pa.Schema, first: int, end: int) -> pa.Table:
    """Batches first..end - 1 of such a file."""
    index = np.frombuffer(storage.read_bytes(url, 8 * first, 8 * (end - first + 1)), "<i8").tolist()
    if index[0] == index[-1]:
        return schema.empty_table()
    reader = pa.BufferReader(storage.read_bytes(url, index[0], index[-1] - index[0]))
    batches = []
    while reader.tell() < reader.size():
        batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema))
    return pa.Table.from_batches(batches, schema=schema)
