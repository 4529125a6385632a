"""Runs -> one shard and its lineage, straight to their final names.

A unit is one shard. It reads the buckets its interval of the stream touches, from all runs, sorts them by key, lays
them out and cuts: a shard's bytes follow from the plan and the documents alone, so any number of workers, in any order,
write the same. Memory: the shard's tokens once, and beside them what was read (on local disk mapped, not held).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
from pipeline.runs import Run, bucket_of, buckets_of_groups, key_order, read_buckets
from pipeline.runtime import Runtime, Summary, Unit
from pipeline.stages.encode import Encoded

FORMAT = 3


@dataclass(frozen=True, kw_only=True)
class WriteTask:
    """Write one shard."""

    plan: ShardPlan
    plan_buckets: int
    """How many buckets the plan is made of: those of the runs, or with best_fit its groups."""
    version: str
    example: ExampleFormat
    runs: tuple[Run, ...]
    run_buckets: int
    shard_url: str
    lineage_url: str
    expected_sha256: str | None
    """Where the version exists already: what its manifest says of this shard, which must not change."""


@dataclass(frozen=True, kw_only=True)
class _Documents:
    """Documents of the shard's buckets in key order, their tokens where they were read."""

    table: pa.Table
    """id, repeat, num_tokens, key_high; and source, a number in `sources`."""
    sources: list[str]
    tokens: list[np.ndarray]
    """By batch read."""
    batch: np.ndarray
    """int64 (n,): which of `tokens` holds a document's."""
    start: np.ndarray
    """int64 (n,): where in it they begin."""


def write_one_shard(task: WriteTask) -> Summary:
    """Write the shard, then its lineage; say what it holds."""
    plan, example = task.plan, task.example
    documents = _gather(task)
    layout = _layout(documents, task)
    tokens = _tokens(documents, layout, plan.num_examples * example.seq_len, example)
    with storage.atomic_writer(task.shard_url) as stream:
        digest = write_shard(
            stream,
            [tokens.reshape(plan.num_examples, example.seq_len)],
            version=task.version,
            shard=plan.shard,
            num_examples=plan.num_examples,
            format=example,
        )
        if task.expected_sha256 not in (None, digest.sha256):
            # Raised inside the writer: nothing appears under the shard's name.
            raise UserError(
                f"version: {task.version} exists already, and this build would write {task.shard_url} with sha256"
                f" {digest.sha256} instead of {task.expected_sha256}: it was made by other code, give another version"
            )
    lineage = _lineage(documents, layout, example.seq_len)
    write_lineage(task.lineage_url, lineage)
    return {
        "sha256": digest.sha256,
        "num_bytes": digest.num_bytes,
        "num_examples": plan.num_examples,
        "num_tokens": int(layout.num_tokens.sum()),
        "num_documents": int(np.count_nonzero(lineage["ends"].to_numpy())),
        "files": [task.shard_url, task.lineage_url],
    }


def _gather(task: WriteTask) -> _Documents:
    """The documents of the plan's buckets: read once, sorted by key; their tokens stay where they are."""
    plan = task.plan
    buckets = buckets_of_groups(plan.first_bucket, plan.last_bucket, task.plan_buckets, task.run_buckets)
    sources = sorted({run.source for run in task.runs})
    tables: list[pa.Table] = []
    tokens: list[np.ndarray] = []
    batches, starts = [], []
    for run in task.runs:
        for batch in read_buckets(run, *buckets):
            index = pa.Table.from_batches([batch.select(["key_high", "key_low", "id", "repeat", "num_tokens"])])
            source = np.full(batch.num_rows, sources.index(run.source), np.int32)
            tables.append(index.append_column("source", pa.array(source)))
            lists = batch["tokens"]
            starts.append(lists.offsets.to_numpy()[:-1])
            batches.append(np.full(batch.num_rows, len(tokens)))
            tokens.append(lists.values.to_numpy())
    table = pa.concat_tables(tables)
    batch_of, start = np.concatenate(batches), np.concatenate(starts)
    bucket = bucket_of(table["key_high"].to_numpy(), task.plan_buckets)
    order = _settle_twins(key_order(table), table, tokens, batch_of, start)
    # A bucket of the runs may hold several groups of the plan.
    order = order[(bucket[order] >= plan.first_bucket) & (bucket[order] <= plan.last_bucket)]
    return _Documents(
        table=table.take(pa.array(order)).combine_chunks(),
        sources=sources,
        tokens=tokens,
        batch=batch_of[order],
        start=start[order],
    )


def _settle_twins(
    order: np.ndarray, table: pa.Table, tokens: Sequence[np.ndarray], batch: np.ndarray, start: np.ndarray
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
        return tokens[int(batch[row])][begin : begin + num].tobytes()

    begins = np.flatnonzero(np.append(True, ~equal_next))
    settled = order.copy()
    for begin, end in pairwise([*begins, len(order)]):
        if end - begin > 1:
            settled[begin:end] = sorted(order[begin:end], key=tokens_of)
    return settled


def _layout(documents: _Documents, task: WriteTask) -> Layout:
    """Where each document's tokens lie in the shard; places are counted from its first one."""
    plan, seq_len = task.plan, task.example.seq_len
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
    batch = documents.batch[layout.document]
    start = documents.start[layout.document] + layout.document_offset
    by_batch = np.argsort(batch, kind="stable")
    bounds = np.searchsorted(batch[by_batch], np.arange(len(documents.tokens) + 1))
    for values, begin, end in zip(documents.tokens, bounds, bounds[1:], strict=False):
        pieces = by_batch[begin:end]
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
    units, paths = [], []
    for shard in plan.shards:
        name = f"{version}-{shard.shard:06d}"
        paths.append(f"shards/{split}/{name}.tar")
        low, high = buckets_of_groups(shard.first_bucket, shard.last_bucket, plan.num_buckets, encoded.num_buckets)
        needed = tuple(run for run in encoded.runs[split] if any(low <= bucket <= high for bucket in run.buckets))
        task = WriteTask(
            plan=shard,
            plan_buckets=plan.num_buckets,
            version=version,
            example=example,
            runs=needed,
            run_buckets=encoded.num_buckets,
            shard_url=storage.join(root, paths[-1]),
            lineage_url=storage.join(root, f"lineage/{split}/{name}.parquet"),
            expected_sha256=expected.get(paths[-1]),
        )
        place: list[Any] = [split, version, shard.shard, shard.first_example, shard.num_examples, example.to_json()]
        units.append(
            Unit(
                key=fingerprint(["write", FORMAT, *place, list(encoded.keys)]),
                label=paths[-1],
                task=task,
                num_bytes=example.shard_num_bytes(shard.num_examples),
            )
        )
    results = runtime.run("write", write_one_shard, units)
    return tuple(_entries(paths, results))


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
