"""Runs -> one shard and its lineage, straight to their final names.

A unit is one shard. It reads the buckets its interval of the stream touches, from all runs, sorts them by key, and
cuts: a shard's bytes follow from the plan and the documents alone, so any number of workers, in any order, write the
same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from manifests.errors import UserError
from manifests.lineage import LINEAGE_SCHEMA, write_lineage
from manifests.manifest import Manifest, ShardEntry
from manifests.shard import ExampleFormat, write_shard
from pipeline.kernels.ragged import take_lists
from pipeline.plan import ShardPlan, SplitPlan
from pipeline.runs import Run, read_buckets
from pipeline.runtime import Runtime, Summary, Unit

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class WriteTask:
    """Write one shard."""

    plan: ShardPlan
    version: str
    example: ExampleFormat
    runs: tuple[Run, ...]
    shard_url: str
    lineage_url: str
    expected_sha256: str | None
    """Where the version exists already: what its manifest says of this shard, which must not change."""


@dataclass(frozen=True, kw_only=True)
class _Documents:
    """Documents of the shard's buckets in key order, as one stretch of the stream."""

    tokens: np.ndarray
    """All their tokens end to end."""
    starts: np.ndarray
    """int64 (n + 1,): where each document begins in `tokens`; the last entry is the end."""
    ids: pa.Array
    repeats: np.ndarray
    sources: list[str]


def write_one_shard(task: WriteTask) -> Summary:
    """Write the shard, then its lineage; say what it holds."""
    plan, seq_len = task.plan, task.example.seq_len
    documents = _gather(task)
    first = plan.first_token - plan.bucket_start
    end = first + plan.num_examples * seq_len
    examples = documents.tokens[first:end].reshape(plan.num_examples, seq_len)
    with storage.atomic_writer(task.shard_url) as stream:
        digest = write_shard(
            stream,
            [examples],
            version=task.version,
            shard=plan.shard,
            num_examples=plan.num_examples,
            format=task.example,
        )
        if task.expected_sha256 not in (None, digest.sha256):
            # Raised inside the writer: nothing appears under the shard's name.
            raise UserError(
                f"version: {task.version} exists already, and this build would write {task.shard_url} with sha256"
                f" {digest.sha256} instead of {task.expected_sha256}: it was made by other code, give another version"
            )
    lineage = _lineage(documents, first, end, seq_len)
    write_lineage(task.lineage_url, lineage)
    return {
        "sha256": digest.sha256,
        "num_bytes": digest.num_bytes,
        "num_examples": plan.num_examples,
        "num_tokens": end - first,
        "num_documents": int(np.count_nonzero(lineage["ends"].to_numpy())),
        "files": [task.shard_url, task.lineage_url],
    }


def _gather(task: WriteTask) -> _Documents:
    batches, sources = [], []
    for run in task.runs:
        for batch in read_buckets(run, task.plan.first_bucket, task.plan.last_bucket):
            batches.append(batch)
            sources.append(run.source)
    table = pa.Table.from_batches(batches)
    order = np.lexsort((table["key_low"].to_numpy(), table["key_high"].to_numpy()))
    names = sorted(set(sources))
    of_row = np.repeat([names.index(source) for source in sources], [batch.num_rows for batch in batches])[order]
    tokens = take_lists(table["tokens"].combine_chunks(), order)
    return _Documents(
        tokens=tokens.values.to_numpy(),
        starts=tokens.offsets.to_numpy(),
        ids=table["id"].combine_chunks().take(pa.array(order)),
        repeats=table["repeat"].to_numpy()[order],
        sources=[names[i] for i in of_row],
    )


def _lineage(documents: _Documents, first: int, end: int, seq_len: int) -> pa.Table:
    """Which document's tokens lie where, for tokens [first, end) of `documents.tokens`: LINEAGE_SCHEMA, in stream
    order.
    """
    starts, ends = documents.starts[:-1], documents.starts[1:]
    inside = np.flatnonzero((ends > first) & (starts < end))
    run_start = np.maximum(starts[inside], first)
    run_end = np.minimum(ends[inside], end)
    return pa.table(
        {
            "source": pa.array([documents.sources[i] for i in inside], pa.string()),
            "document_id": documents.ids.take(pa.array(inside)).cast(pa.string()),
            "repeat": documents.repeats[inside].astype(np.int32),
            "first_example": (run_start - first) // seq_len,
            "first_token": (run_start - first) % seq_len,
            "num_tokens": run_end - run_start,
            "document_offset": run_start - starts[inside],
            "ends": run_end == ends[inside],
        },
        schema=LINEAGE_SCHEMA,
    )


def write(
    runtime: Runtime,
    root: str,
    version: str,
    split: str,
    plan: SplitPlan,
    runs: Sequence[Run],
    run_keys: Sequence[str],
    example: ExampleFormat,
    existing: Manifest | None,
) -> tuple[ShardEntry, ...]:
    """Write all shards of a split; entries in shard order, paths relative to `root`.

    Where the version exists already, each shard is only written again with the bytes its manifest names.
    """
    expected = {shard.path: shard.sha256 for shard in existing.splits[split].shards} if existing else {}
    units, paths = [], []
    for shard in plan.shards:
        name = f"{version}-{shard.shard:06d}"
        paths.append(f"shards/{split}/{name}.tar")
        needed = tuple(run for run in runs if any(shard.first_bucket <= b <= shard.last_bucket for b in run.buckets))
        task = WriteTask(
            plan=shard,
            version=version,
            example=example,
            runs=needed,
            shard_url=storage.join(root, paths[-1]),
            lineage_url=storage.join(root, f"lineage/{split}/{name}.parquet"),
            expected_sha256=expected.get(paths[-1]),
        )
        place: list[Any] = [split, version, shard.shard, shard.first_example, shard.num_examples, example.to_json()]
        units.append(
            Unit(
                key=fingerprint(["write", FORMAT, *place, list(run_keys)]),
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
