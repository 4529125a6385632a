"""Runs: encoded documents in key order, the sorted pieces that shards are gathered from.

A run is an Arrow IPC file, a record batch a bucket (an interval of keys), so that a shard's task reads only the buckets
it needs:

    key_high, key_low  uint64          the document's key (pipeline/identity.py), ascending in the run
    id                 large_string
    repeat             int32           0 for the document itself, 1 ... for its copies by weight
    tokens             large_list      of the data set's dtype, EOS included

An encode unit writes a run whenever MAX_RUN_TOKENS have come together, so its memory does not grow with its file. Where
a run's buckets begin, and how many tokens each holds, is in the unit's result; runs live under `.build` and are no
contract.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from manifests import storage
from pipeline.kernels.ragged import take_lists

MAX_RUN_TOKENS = 32_000_000
"""Tokens held before a run is written: 128 MB as uint32, twice that while they are sorted."""


def run_schema(dtype: str) -> pa.Schema:
    """The schema of a run for tokens of `dtype`."""
    return pa.schema(
        [
            ("key_high", pa.uint64()),
            ("key_low", pa.uint64()),
            ("id", pa.large_string()),
            ("repeat", pa.int32()),
            ("tokens", pa.large_list(getattr(pa, dtype)())),
        ]
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run on storage and its index. All four lists have one entry a record batch."""

    url: str
    source: str
    buckets: tuple[int, ...]
    """Ascending; buckets without documents have no batch."""
    num_tokens: tuple[int, ...]
    num_documents: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """For a unit's result."""
        return {
            "url": self.url,
            "source": self.source,
            "buckets": list(self.buckets),
            "num_tokens": list(self.num_tokens),
            "num_documents": list(self.num_documents),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Run":
        """The inverse of to_json."""
        return cls(
            url=value["url"],
            source=value["source"],
            buckets=tuple(value["buckets"]),
            num_tokens=tuple(value["num_tokens"]),
            num_documents=tuple(value["num_documents"]),
        )


def bucket_of(key_high: np.ndarray, num_buckets: int) -> np.ndarray:
    """The bucket of each key: its leading bits. int64 (n,)."""
    bits = num_buckets.bit_length() - 1
    if bits == 0:
        return np.zeros(len(key_high), np.int64)
    return (key_high >> np.uint64(64 - bits)).astype(np.int64)


def write_run(url: str, source: str, documents: pa.Table, num_buckets: int) -> Run:
    """Sort documents (columns of run_schema) by key and write them, a batch a bucket."""
    high, low = documents["key_high"].to_numpy(), documents["key_low"].to_numpy()
    order = np.lexsort((low, high))
    tokens = take_lists(documents["tokens"].combine_chunks(), order)
    documents = documents.drop_columns("tokens").take(pa.array(order)).append_column("tokens", tokens).combine_chunks()
    bucket = bucket_of(high[order], num_buckets)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], len(bucket))
    num_tokens = []
    with (
        storage.atomic_writer(url) as stream,
        pa.ipc.new_file(pa.PythonFile(stream, mode="w"), documents.schema) as writer,
    ):
        for start, end in zip(starts, ends, strict=True):
            [batch] = documents.slice(start, end - start).to_batches()
            offsets = batch["tokens"].offsets
            num_tokens.append(offsets[-1].as_py() - offsets[0].as_py())
            writer.write_batch(batch)
    return Run(
        url=url,
        source=source,
        buckets=tuple(int(b) for b in bucket[starts]),
        num_tokens=tuple(num_tokens),
        num_documents=tuple(int(n) for n in ends - starts),
    )


def read_buckets(run: Run, first_bucket: int, last_bucket: int) -> Iterator[pa.RecordBatch]:
    """The batches of buckets first_bucket..last_bucket, both included."""
    wanted = [i for i, bucket in enumerate(run.buckets) if first_bucket <= bucket <= last_bucket]
    if not wanted:
        return
    with _open_source(run.url) as source, pa.ipc.open_file(source) as reader:
        for i in wanted:
            yield reader.get_batch(i)


@contextmanager
def _open_source(url: str) -> Iterator[Any]:
    """Mapped where the run is on local disk, else read by ranges."""
    path = storage.local_path(url)
    if path is not None:
        with pa.memory_map(str(path)) as mapped:
            yield mapped
        return
    with storage.open_ranged(url) as stream:
        yield pa.PythonFile(stream, mode="r")


def bucket_totals(runs: Sequence[Run], num_buckets: int) -> list[int]:
    """Tokens of each bucket over all runs."""
    totals = np.zeros(num_buckets, np.int64)
    for run in runs:
        np.add.at(totals, list(run.buckets), np.array(run.num_tokens, np.int64))
    return [int(n) for n in totals]
