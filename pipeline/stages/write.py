"""Runs -> shards and their lineage, straight to their final names.

A unit is one shard, or some neighbours. It reads the buckets that the interval of the stream touches, from all runs,
sorts them by key, lays them out and cuts: a shard's bytes follow from the plan and the documents alone, so any number
of workers, in any order, write the same. Memory: the shard's tokens once, and beside them what was read (on local disk
mapped, not held).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from manifests.errors import UserError
from manifests.lineage import LINEAGE_SCHEMA, write_lineage
from manifests.manifest import Manifest, ShardEntry
from manifests.shard import ExampleFormat, write_shard
from pipeline.kernels.ragged import copy_pieces
from pipeline.packing import Layout, best_fit, concat
from pipeline.plan import ShardPlan, SplitPlan
from pipeline.runs import Run, bucket_of, buckets_of_groups, key_order, on_disk, read_buckets
from pipeline.runtime import Runtime, Summary, Unit
from pipeline.stages.encode import Encoded

FORMAT = 4
RUNS_PER_SHARD = 256
"""A unit writes one shard for each so many runs it reads from, and asks each run once for all of them: 1 MB a read,
whatever the size of the corpus.
"""
MAX_SHARDS = 16
"""Of a unit: what waits on the local disk is up to 5 GB then."""


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One shard to write."""

    plan: ShardPlan
    shard_url: str
    lineage_url: str
    expected_sha256: str | None
    """Where the version exists already: what its manifest says of this shard, which must not change."""


@dataclass(frozen=True, kw_only=True)
class WriteTask:
    """Write neighbouring shards."""

    shards: tuple[ShardTask, ...]
    plan_buckets: int
    """How many buckets the plan is made of: those of the runs, or with best_fit its groups."""
    version: str
    example: ExampleFormat
    runs: tuple[Run, ...]
    run_buckets: int

    def buckets(self, shards: Sequence[ShardTask]) -> tuple[int, int]:
        """Of the runs: the first and the last that hold tokens of neighbouring shards."""
        first, last = shards[0].plan.first_bucket, shards[-1].plan.last_bucket
        return buckets_of_groups(first, last, self.plan_buckets, self.run_buckets)


@dataclass(frozen=True, kw_only=True)
class _Documents:
    """Documents of the shard's buckets in key order, their tokens where they were read."""

    table: pa.Table
    """id, repeat, num_tokens, key_high; and source, a number in `sources`."""
    sources: list[str]
    tokens: list[np.ndarray]
    """By piece read."""
    piece: np.ndarray
    """int64 (n,): which of `tokens` holds a document's."""
    start: np.ndarray
    """int64 (n,): where in it they begin."""


def write_shards(task: WriteTask) -> Summary:
    """Write each shard, then its lineage; say what they hold."""
    with ExitStack() as stack:
        runs: Sequence[Run] = task.runs
        if len(task.shards) > 1 and storage.local_path(runs[0].url) is None:
            runs = stack.enter_context(on_disk(runs, task.example.dtype, *task.buckets(task.shards)))
        written = [_write_shard(shard, _gather(runs, shard, task), task) for shard in task.shards]
    files = [url for shard in task.shards for url in (shard.shard_url, shard.lineage_url)]
    return {"shards": written, "files": files}


def _write_shard(shard: ShardTask, documents: _Documents, task: WriteTask) -> Summary:
    plan, example = shard.plan, task.example
    layout = _layout(documents, plan, task)
    tokens = _tokens(documents, layout, plan.num_examples * example.seq_len, example)
    with storage.atomic_writer(shard.shard_url) as stream:
        digest = write_shard(
            stream,
            [tokens.reshape(plan.num_examples, example.seq_len)],
            version=task.version,
            shard=plan.shard,
            num_examples=plan.num_examples,
            format=example,
        )
        if shard.expected_sha256 not in (None, digest.sha256):
            # Raised inside the writer: nothing appears under the shard's name.
            raise UserError(
                f"version: {task.version} exists already, and this build would write {shard.shard_url} with sha256"
                f" {digest.sha256} instead of {shard.expected_sha256}: it was made by other code, give another version"
            )
    lineage = _lineage(documents, layout, example.seq_len)
    write_lineage(shard.lineage_url, lineage)
    return {
        "sha256": digest.sha256,
        "num_bytes": digest.num_bytes,
        "num_examples": plan.num_examples,
        "num_tokens": int(layout.num_tokens.sum()),
        "num_documents": int(np.count_nonzero(lineage["ends"].to_numpy())),
    }


def _gather(runs: Sequence[Run], shard: ShardTask, task: WriteTask) -> _Documents:
    """The documents of the shard's buckets, sorted by key; on a local disk their tokens stay where they are."""
    plan = shard.plan
    sources = sorted({run.source for run in runs})
    tables: list[pa.Table] = []
    tokens: list[np.ndarray] = []
    pieces, starts = [], []
    for stretch in read_buckets(runs, task.example.dtype, *task.buckets([shard])):
        num_documents = stretch.documents.num_rows
        source = np.full(num_documents, sources.index(stretch.source), np.int32)
        tables.append(stretch.documents.append_column("source", pa.array(source)))
        starts.append(stretch.starts())
        pieces.append(np.full(num_documents, len(tokens)))
        tokens.append(stretch.tokens)
    table = pa.concat_tables(tables)
    piece, start = np.concatenate(pieces), np.concatenate(starts)
    bucket = bucket_of(table["key_high"].to_numpy(), task.plan_buckets)
    order = _settle_twins(key_order(table), table, tokens, piece, start)
    # A bucket of the runs may hold several groups of the plan.
    order = order[(bucket[order] >= plan.first_bucket) & (bucket[order] <= plan.last_bucket)]
    return _Documents(
        table=table.take(pa.array(order)).combine_chunks(),
        sources=sources,
        tokens=tokens,
        piece=piece[order],
        start=start[order],
    )


def _settle_twins(
    order: np.ndarray, table: pa.Table, tokens: Sequence[np.ndarray], piece: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """`order`, with documents of equal key and length in the order of their tokens: they may differ in white space, and
    which file came first must not decide. There are none where exact duplicates are dropped.
    """
    columns = [table[name].to_numpy()[order] for name in ("key_high", "key_low", "num_tokens")]
    equal_next = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    if not equal_next.any():
        return order

    def tokens_of(row: int) -> bytes:
        begin, num = int(start[row]), int(table["num_tokens"][row].as_py())
        return tokens[int(piece[row])][begin : begin + num].tobytes()

    begins = np.flatnonzero(np.append(True, ~equal_next))
    settled = order.copy()
    for begin, end in pairwise([*begins, len(order)]):
        if end - begin > 1:
            settled[begin:end] = sorted(order[begin:end], key=tokens_of)
    return settled


def _layout(documents: _Documents, plan: ShardPlan, task: WriteTask) -> Layout:
    """Where each document's tokens lie in the shard; places are counted from its first one."""
    seq_len = task.example.seq_len
    lengths = documents.table["num_tokens"].to_numpy()
    first = plan.first_token - plan.bucket_start
    end = first + plan.num_examples * seq_len
    if task.example.packing == "concat":
        return concat(lengths).between(first, end)
    group = bucket_of(documents.table["key_high"].to_numpy(), task.plan_buckets)
    bounds = np.searchsorted(group, np.arange(plan.first_bucket, plan.last_bucket + 2))
    layouts, num_places = [], 0
    for start, stop in pairwise(bounds):
        packed, num_rows = best_fit(lengths[start:stop], seq_len)
        layouts.append(packed.between(first - num_places, end - num_places).after(int(start)))
        num_places += num_rows * seq_len
    return Layout.joined(layouts)


def _tokens(documents: _Documents, layout: Layout, num_places: int, example: ExampleFormat) -> np.ndarray:
    """The shard's tokens, `num_places` of them: each copied once, from where it was read."""
    tokens = np.empty(num_places, example.numpy_dtype)
    if example.packing == "best_fit":
        tokens.fill(example.padding_id)
    piece = documents.piece[layout.document]
    start = documents.start[layout.document] + layout.document_offset
    by_piece = np.argsort(piece, kind="stable")
    bounds = np.searchsorted(piece[by_piece], np.arange(len(documents.tokens) + 1))
    for values, begin, end in zip(documents.tokens, bounds, bounds[1:], strict=False):
        pieces = by_piece[begin:end]
        copy_pieces(values, start[pieces], layout.num_tokens[pieces], layout.place[pieces], target=tokens)
    return tokens


def _lineage(documents: _Documents, layout: Layout, seq_len: int) -> pa.Table:
    """Which document's tokens lie where: LINEAGE_SCHEMA, in the order of places."""
    of_piece = documents.table.take(pa.array(layout.document))
    return pa.table(
        {
            "source": pa.array(documents.sources, pa.string()).take(of_piece["source"].combine_chunks()),
            "document_id": of_piece["id"].cast(pa.string()),
            "repeat": of_piece["repeat"],
            "first_example": layout.place // seq_len,
            "first_token": layout.place % seq_len,
            "num_tokens": layout.num_tokens,
            "document_offset": layout.document_offset,
            "ends": layout.document_offset + layout.num_tokens == of_piece["num_tokens"].to_numpy(),
        },
        schema=LINEAGE_SCHEMA,
    )


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the shards go, and what they look like."""

    root: str
    version: str
    example: ExampleFormat
    existing: Manifest | None
    """The version as it is there already: each shard is only written again with the bytes its manifest names."""


def write(runtime: Runtime, target: Target, split: str, plan: SplitPlan, encoded: Encoded) -> tuple[ShardEntry, ...]:
    """Write all shards of a split; entries in shard order, paths relative to the target's root."""
    root, version, example, existing = target.root, target.version, target.example, target.existing
    expected = {shard.path: shard.sha256 for shard in existing.splits[split].shards} if existing else {}
    paths = [f"shards/{split}/{version}-{shard.shard:06d}.tar" for shard in plan.shards]
    shards = [
        ShardTask(
            plan=shard,
            shard_url=storage.join(root, path),
            lineage_url=storage.join(root, f"lineage/{split}/{version}-{shard.shard:06d}.parquet"),
            expected_sha256=expected.get(path),
        )
        for shard, path in zip(plan.shards, paths, strict=True)
    ]
    num_together = min(MAX_SHARDS, max(1, -(-len(encoded.runs[split]) // RUNS_PER_SHARD)))
    units = []
    for first in range(0, len(shards), num_together):
        together = tuple(shards[first : first + num_together])
        task = WriteTask(
            shards=together,
            plan_buckets=plan.num_buckets,
            version=version,
            example=example,
            runs=encoded.runs[split],
            run_buckets=encoded.num_buckets,
        )
        places = [[one.plan.shard, one.plan.first_example, one.plan.num_examples] for one in together]
        units.append(
            Unit(
                key=fingerprint(["write", FORMAT, split, version, places, example.to_json(), list(encoded.keys)]),
                label=paths[first],
                task=task,
                num_bytes=sum(example.shard_num_bytes(one.plan.num_examples) for one in together),
            )
        )
    results = runtime.run("write", write_shards, units)
    return tuple(_entries(paths, [shard for result in results for shard in result["shards"]]))


def _entries(paths: Sequence[str], results: Sequence[Summary]) -> Iterator[ShardEntry]:
    for path, result in zip(paths, results, strict=True):
        yield ShardEntry(
            path=path,
            sha256=result["sha256"],
            num_bytes=result["num_bytes"],
            num_examples=result["num_examples"],
            num_tokens=result["num_tokens"],
            num_documents=result["num_documents"],
        )
