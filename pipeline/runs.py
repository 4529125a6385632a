"""Runs: encoded documents in key order, the sorted pieces that shards are gathered from.

A document has

    key_high, key_low  uint64          its key (pipeline/identity.py), ascending in the run
    id                 large_string
    repeat             int32           0 for the document itself, 1 ... for its copies by weight
    num_tokens         int64           BOS and EOS included

and its tokens. A bucket is an interval of keys, so that a shard's task reads only the buckets that it needs. The file:

    index      int64 (buckets + 1, 2)  where a bucket's documents begin, and how many tokens lie before it
    tokens     the data set's dtype, end to end
    documents  an Arrow record batch a bucket, as batches.py has them; of an empty one there is nothing

Three reads give any stretch of buckets, 16 bytes a bucket and what is wanted, whatever the size of the run: some
thousand runs of 50 TB of text have 65,536 buckets each. Runs live under `.build` and are no contract.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from manifests import storage
from pipeline.batches import serialized, table_of
from pipeline.kernels.ragged import copy_pieces
from pipeline.reads import ByteRange, read_in_pieces, read_many
from pipeline.scratch_disk import scratch_folder, writing_to_scratch
from pipeline.tokenization.plain import SpecialIds
from pipeline.tokenization.specials import frame

DOCUMENTS = pa.schema(
    [
        ("key_high", pa.uint64()),
        ("key_low", pa.uint64()),
        ("id", pa.large_string()),
        ("repeat", pa.int32()),
        ("num_tokens", pa.int64()),
    ]
)
MAX_RUN_TOKENS = 32_000_000
"""Tokens held before a run is written: 128 MB as uint32, and as much again while they are sorted."""
MERGE_BUCKETS = 256
"""Of a run that is there to be merged: a merge holds one bucket of all of them at a time."""
_SPOOLED_BYTES = 64 << 20
_COPIED_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """What all runs of a build have in common."""

    dtype: str
    """Of a token: "uint16" or "uint32"; every id fits, which the tokenizer's vocab_size tells."""
    num_buckets: int
    special_ids: SpecialIds


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run on storage."""

    url: str
    source: str
    num_buckets: int
    first_bucket: int = 0
    """Above 0 in a copy of a part of one."""

    def index(self, first: int, last: int) -> ByteRange:
        """Where its index tells of buckets first..last, both included."""
        return ByteRange(self.url, 16 * (first - self.first_bucket), 16 * (last - first + 2))

    def tokens(self, first: int, end: int, dtype: np.dtype) -> ByteRange:
        """Where its tokens first..end - 1 are."""
        start = 16 * (self.num_buckets + 1) + dtype.itemsize * first
        return ByteRange(self.url, start, dtype.itemsize * (end - first))


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """Documents on their way into a run. Several may share one stretch of `tokens`: the copies that a weight makes."""

    documents: pa.Table
    """DOCUMENTS, a row a document."""
    tokens: np.ndarray
    """Without BOS and EOS as they come out of the engine; with them out of another run."""
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
    """Sort documents by key and write them. Every token is copied once, BOS and EOS are put around it."""
    documents, order = _in_order(batches)
    tokens = _end_to_end(batches, documents, order, layout, num_specials=layout.special_ids.num)
    ends = np.cumsum(documents["num_tokens"].to_numpy())
    frame(tokens, np.append(0, ends), layout.special_ids)
    return _write(url, source, [documents], [tokens], layout)


def merge_runs(url: str, runs: Sequence[Run], layout: RunLayout) -> Run:
    """One run of several of one source, which lie on the local disk and have the same number of buckets: a bucket of
    theirs is held at a time.
    """
    [num_buckets] = {run.num_buckets for run in runs}

    def by_bucket(*, tokens: bool) -> Iterator[list[EncodedBatch]]:
        for bucket in range(num_buckets):
            found = read_buckets(runs, layout.dtype, bucket, bucket, tokens=tokens)
            if batches := [EncodedBatch(documents=o.documents, tokens=o.tokens, starts=o.starts()) for o in found]:
                yield batches

    # Each bucket is sorted twice: its documents lie behind all tokens in the file, and to hold them would grow with
    # the run.
    documents = (_in_order(batches)[0] for batches in by_bucket(tokens=False))
    tokens = (_end_to_end(batches, *_in_order(batches), layout, num_specials=0) for batches in by_bucket(tokens=True))
    return _write(url, runs[0].source, documents, tokens, layout)


def _in_order(batches: Sequence[EncodedBatch]) -> tuple[pa.Table, np.ndarray]:
    """All documents in the order of their keys, and that order."""
    documents = pa.concat_tables([batch.documents for batch in batches])
    order = key_order(documents)
    return documents.take(pa.array(order)).combine_chunks(), order


def _end_to_end(
    batches: Sequence[EncodedBatch], documents: pa.Table, order: np.ndarray, layout: RunLayout, *, num_specials: int
) -> np.ndarray:
    """The tokens of `documents`, which are those of `batches` in `order`. Of each num_tokens the first num_specials - 1
    and the last are left free, where num_specials is above 0.
    """
    lengths = documents["num_tokens"].to_numpy()
    ends = np.cumsum(lengths)
    places = np.empty(len(order), np.int64)
    places[order] = ends - lengths + max(0, num_specials - 1)
    tokens = np.empty(ends[-1], layout.dtype)
    row = 0
    for batch in batches:
        end = row + batch.documents.num_rows
        own = batch.documents["num_tokens"].to_numpy() - num_specials
        copy_pieces(batch.tokens, batch.starts, own, places[row:end], target=tokens)
        row = end
    return tokens


def _write(
    url: str, source: str, documents: Iterable[pa.Table], tokens: Iterable[np.ndarray], layout: RunLayout
) -> Run:
    """Write documents and their tokens, both in order, in pieces of whole buckets."""
    sizes, num_tokens = np.zeros(layout.num_buckets, np.int64), np.zeros(layout.num_buckets, np.int64)
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="shardmill-run-") as spool:
        for table in documents:
            bucket = bucket_of(table["key_high"].to_numpy(), layout.num_buckets)
            np.add.at(num_tokens, bucket, table["num_tokens"].to_numpy())
            starts = np.flatnonzero(np.diff(bucket, prepend=-1)).tolist()
            for start, end in pairwise([*starts, len(bucket)]):
                with writing_to_scratch():
                    sizes[bucket[start]] = spool.write(serialized(table, start, end))
        index = np.zeros((layout.num_buckets + 1, 2), "<i8")
        np.cumsum(sizes, out=index[1:, 0])
        np.cumsum(num_tokens, out=index[1:, 1])
        index[:, 0] += index.nbytes + np.dtype(layout.dtype).itemsize * index[-1, 1]
        with storage.atomic_writer(url) as stream:
            stream.write(index.tobytes())
            for piece in tokens:
                stream.write(piece.view(np.uint8).data)
            spool.seek(0)
            shutil.copyfileobj(spool, stream, _COPIED_BYTES)
    return Run(url=url, source=source, num_buckets=layout.num_buckets)


def buckets_of_groups(first: int, last: int, num_groups: int, num_buckets: int) -> tuple[int, int]:
    """The first and last of `num_buckets` buckets that hold documents of groups first..last of `num_groups`; both are
    powers of two, so a group is some whole buckets or a part of one.
    """
    return first * num_buckets // num_groups, ((last + 1) * num_buckets - 1) // num_groups


@dataclass(frozen=True, kw_only=True)
class RunSlice:
    """What a run holds of some neighbouring buckets."""

    source: str
    documents: pa.Table
    """DOCUMENTS."""
    tokens: np.ndarray
    """End to end, in the order of the documents; none where none were asked for. On a local disk mapped, not held."""

    def starts(self) -> np.ndarray:
        """int64 (n,): where each document's tokens begin."""
        lengths = self.documents["num_tokens"].to_numpy()
        return np.cumsum(lengths) - lengths


def read_buckets(runs: Sequence[Run], dtype: str, first: int, last: int, *, tokens: bool = True) -> Iterator[RunSlice]:
    """Buckets first..last, both included, of each run that has documents there, in the order of `runs`."""
    found = list(_with_documents(runs, first, last))
    documents = read_many([_documents(run, index) for run, index in found])
    wanted = [_tokens(run, index, dtype) for run, index in found] if tokens else []
    of_runs = _arrays(wanted, np.dtype(dtype))
    for (run, _), data in zip(found, documents, strict=True):
        held = next(of_runs) if tokens else np.empty(0, dtype)
        yield RunSlice(source=run.source, documents=table_of(data, DOCUMENTS), tokens=held)


@contextmanager
def on_disk(runs: Sequence[Run], dtype: str, first: int, last: int) -> Iterator[list[Run]]:
    """Copies of buckets first..last of `runs` on the local disk, each read at once."""
    num_buckets = last - first + 1
    with scratch_folder() as folder:
        copies: list[Run] = []
        reads: list[ByteRange] = []
        with writing_to_scratch():
            for run, index in _with_documents(runs, first, last):
                url = str(folder / str(len(copies)))
                copies.append(Run(url=url, source=run.source, num_buckets=num_buckets, first_bucket=first))
                reads += [_tokens(run, index, dtype), _documents(run, index)]
                own = index - index[0]
                own[:, 0] += own.nbytes + np.dtype(dtype).itemsize * own[-1, 1]
                Path(url).write_bytes(own.tobytes())
            for number, pieces in groupby(read_in_pieces(reads), key=lambda piece: piece.number // 2):
                with Path(copies[number].url).open("ab") as file:
                    file.writelines(piece.data for piece in pieces)
        yield copies


def _with_documents(runs: Sequence[Run], first: int, last: int) -> Iterator[tuple[Run, np.ndarray]]:
    """Each run that has documents in these buckets, and what its index tells of them."""
    for run, index in zip(runs, _indexes(runs, first, last), strict=True):
        if index[0, 0] < index[-1, 0]:
            yield run, index


def _documents(run: Run, index: np.ndarray) -> ByteRange:
    return ByteRange(run.url, int(index[0, 0]), int(index[-1, 0] - index[0, 0]))


def _tokens(run: Run, index: np.ndarray, dtype: str) -> ByteRange:
    return run.tokens(int(index[0, 1]), int(index[-1, 1]), np.dtype(dtype))


def _indexes(runs: Sequence[Run], first: int, last: int) -> Iterator[np.ndarray]:
    for data in read_many([run.index(first, last) for run in runs]):
        yield np.frombuffer(data, "<i8").reshape(-1, 2)


def _arrays(reads: Sequence[ByteRange], dtype: np.dtype) -> Iterator[np.ndarray]:
    if reads and storage.local_path(reads[0].url) is not None:
        for url, start, num_bytes in reads:
            assert num_bytes, "every document ends in EOS"
            yield np.memmap(url, dtype, "r", offset=start, shape=(num_bytes // dtype.itemsize,))
        return
    for data in read_many(reads):
        yield np.frombuffer(data, dtype)


def bucket_totals(runs: Sequence[Run], num_buckets: int) -> list[int]:
    """Tokens of each bucket over all runs."""
    totals = np.zeros(num_buckets, np.int64)
    for index in _indexes(runs, 0, num_buckets - 1):
        totals += np.diff(index[:, 1])
    return [int(n) for n in totals]
