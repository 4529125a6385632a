"""Runs: encoded documents in key order, the sorted pieces that shards are gathered from.

A run is an Arrow IPC file, a record batch a bucket (an interval of keys), so that a shard's task reads only the buckets
it needs:

    key_high, key_low  uint64          the document's key (pipeline/identity.py), ascending in the run
    id                 large_string
    repeat             int32           0 for the document itself, 1 ... for its copies by weight
    num_tokens         int64           of the document, EOS included
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
from pipeline.kernels.ragged import copy_pieces
from pipeline.tokenization.plain import SpecialIds
from pipeline.tokenization.specials import frame

NUM_INDEX_COLUMNS = 5
"""Columns before `tokens`."""
MAX_RUN_TOKENS = 32_000_000
"""Tokens held before a run is written: 128 MB as uint32, and as much again while they are sorted."""


def run_schema(dtype: str) -> pa.Schema:
    """The schema of a run for tokens of `dtype`."""
    return pa.schema(
        [
            ("key_high", pa.uint64()),
            ("key_low", pa.uint64()),
            ("id", pa.large_string()),
            ("repeat", pa.int32()),
            ("num_tokens", pa.int64()),
            ("tokens", pa.large_list(getattr(pa, dtype)())),
        ]
    )


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """What all runs of a build have in common."""

    dtype: str
    """Of a token: "uint16" or "uint32"; every id fits, which the tokenizer's vocab_size tells."""
    num_buckets: int
    special_ids: SpecialIds


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


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """Documents on their way into a run. Several may share one stretch of `tokens`: the copies that a weight makes."""

    documents: pa.Table
    """The columns of run_schema but tokens, one row a document; `num_tokens` counts EOS, and BOS where there is one."""
    tokens: np.ndarray
    """As they came out of the engine: no EOS, no BOS."""
    starts: np.ndarray
    """int64 (n,): where each document's tokens begin in `tokens`."""

    @property
    def num_tokens(self) -> int:
        """Over all its documents."""
        return int(self.documents["num_tokens"].to_numpy().sum())


def bucket_of(key_high: np.ndarray, num_buckets: int) -> np.ndarray:
    """The bucket of each key: its leading bits. int64 (n,)."""
    bits = num_buckets.bit_length() - 1
    if bits == 0:
        return np.zeros(len(key_high), np.int64)
    return (key_high >> np.uint64(64 - bits)).astype(np.int64)


def key_order(documents: pa.Table) -> np.ndarray:
    """The rows of documents in the order of their keys, int64 (n,).

    Equal keys mean one source, id, text (white space aside) and copy: such twins are kept only where exact duplicates
    are, and then the shorter one goes first.
    """
    return np.lexsort([documents[name].to_numpy() for name in ("num_tokens", "key_low", "key_high")])


def write_run(url: str, source: str, batches: Sequence[EncodedBatch], layout: RunLayout) -> Run:
    """Sort documents by key and write them, a record batch a bucket. Every token is copied once, BOS and EOS are put
    around it.
    """
    documents = pa.concat_tables([batch.documents for batch in batches])
    order = key_order(documents)
    documents = documents.take(pa.array(order)).combine_chunks()
    offsets = np.zeros(len(order) + 1, np.int64)
    np.cumsum(documents["num_tokens"].to_numpy(), out=offsets[1:])
    places = np.empty(len(order), np.int64)
    places[order] = offsets[:-1] + layout.special_ids.num - 1  # after BOS
    tokens = np.empty(offsets[-1], layout.dtype)
    row = 0
    for batch in batches:
        end = row + batch.documents.num_rows
        lengths = batch.documents["num_tokens"].to_numpy() - layout.special_ids.num
        copy_pieces(batch.tokens, batch.starts, lengths, places[row:end], target=tokens)
        row = end
    frame(tokens, offsets, layout.special_ids)
    documents = documents.append_column("tokens", pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens)))
    bucket = bucket_of(documents["key_high"].to_numpy(), layout.num_buckets)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], len(bucket))
    with (
        storage.atomic_writer(url) as stream,
        pa.ipc.new_file(pa.PythonFile(stream, mode="w"), documents.schema) as writer,
    ):
        for start, end in zip(starts, ends, strict=True):
            [record_batch] = documents.slice(start, end - start).to_batches()
            writer.write_batch(record_batch)
    return Run(
        url=url,
        source=source,
        buckets=tuple(int(b) for b in bucket[starts]),
        num_tokens=tuple(int(n) for n in offsets[ends] - offsets[starts]),
        num_documents=tuple(int(n) for n in ends - starts),
    )


def buckets_of_groups(first: int, last: int, num_groups: int, num_buckets: int) -> tuple[int, int]:
    """The first and last of `num_buckets` buckets that hold documents of groups first..last of `num_groups`; both are
    powers of two, so a group is some whole buckets or a part of one.
    """
    return first * num_buckets // num_groups, ((last + 1) * num_buckets - 1) // num_groups


def read_buckets(run: Run, first_bucket: int, last_bucket: int, *, tokens: bool = True) -> Iterator[pa.RecordBatch]:
    """The batches of buckets first_bucket..last_bucket, both included; without `tokens`, all columns but that one, and
    then tokens are not read either.
    """
    wanted = [i for i, bucket in enumerate(run.buckets) if first_bucket <= bucket <= last_bucket]
    if not wanted:
        return
    options = pa.ipc.IpcReadOptions(included_fields=None if tokens else list(range(NUM_INDEX_COLUMNS)))
    with _open_source(run.url) as source, pa.ipc.open_file(source, options=options) as reader:
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
