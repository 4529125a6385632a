"""Encoded runs -> the plan of every split's shards, from exact counts.

`concat` needs no more than the tokens of each bucket, which the runs' index tells. `best_fit` must know how many rows
each group of documents takes: a unit reads the keys and lengths (no tokens) of some groups and packs them. The write
stage packs the groups of its shard again, which costs less than to store and read where every document went.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from manifests.canonical import fingerprint
from manifests.shard import ExampleFormat
from pipeline.packing import best_fit, num_groups_for
from pipeline.plan import SplitPlan, plan_split
from pipeline.runs import DOCUMENTS, Run, bucket_of, bucket_totals, buckets_of_groups, key_order, read_buckets
from pipeline.runtime import Runtime, Summary, Unit
from pipeline.stages.encode import SPLITS, Encoded

FORMAT = 3
UNIT_GROUPS = 1024
"""Groups a unit packs: 1 to 2 G tokens. It holds some 70 bytes a document, 1 GB where they have 100 tokens each, and
packs a million a second.
"""


@dataclass(frozen=True, kw_only=True)
class PackTask:
    """Count the rows of groups first_group..last_group, both included."""

    runs: tuple[Run, ...]
    dtype: str
    num_buckets: int
    num_groups: int
    first_group: int
    last_group: int
    seq_len: int


def count_rows(task: PackTask) -> Summary:
    """How many examples each group takes."""
    buckets = buckets_of_groups(task.first_group, task.last_group, task.num_groups, task.num_buckets)
    found = read_buckets(task.runs, task.dtype, *buckets, tokens=False)
    documents = pa.concat_tables(
        [_sizes(DOCUMENTS.empty_table()), *(_sizes(one.documents) for one in found)]
    ).combine_chunks()
    order = key_order(documents)
    lengths = documents["num_tokens"].to_numpy()[order]
    group = bucket_of(documents["key_high"].to_numpy()[order], task.num_groups)
    bounds = np.searchsorted(group, np.arange(task.first_group, task.last_group + 2))
    return {"num_examples": [best_fit(lengths[start:end], task.seq_len)[1] for start, end in pairwise(bounds)]}


def _sizes(documents: pa.Table) -> pa.Table:
    """What decides where documents are packed, copied: as it was read, their ids would be held as well."""
    return pa.table({name: documents[name].to_numpy().copy() for name in ("key_high", "key_low", "num_tokens")})


def plan_shards(runtime: Runtime, encoded: Encoded, example: ExampleFormat, max_bytes: int) -> dict[str, SplitPlan]:
    """The shards of every split.

    Raises:
        UserError: not even one example fits into `max_bytes`.
    """
    totals = {split: bucket_totals(encoded.runs[split], encoded.num_buckets) for split in SPLITS}
    if example.packing == "concat":
        return {split: plan_split(totals[split], example, max_bytes) for split in SPLITS}
    tasks = {split: _tasks(encoded.runs[split], encoded.num_buckets, sum(totals[split]), example) for split in SPLITS}
    units = [_unit(split, task, encoded.keys) for split in SPLITS for task in tasks[split]]
    results = iter(runtime.run("pack", count_rows, units))
    rows = {split: [n for _ in tasks[split] for n in next(results)["num_examples"]] for split in SPLITS}
    return {split: plan_split([n * example.seq_len for n in rows[split]], example, max_bytes) for split in SPLITS}


def _tasks(runs: Sequence[Run], num_buckets: int, num_tokens: int, example: ExampleFormat) -> list[PackTask]:
    if not num_tokens:
        return []
    num_groups = num_groups_for(num_tokens, example.seq_len)
    tasks = []
    for first in range(0, num_groups, UNIT_GROUPS):
        last = min(first + UNIT_GROUPS, num_groups) - 1
        task = PackTask(
            runs=tuple(runs),
            dtype=example.dtype,
            num_buckets=num_buckets,
            num_groups=num_groups,
            first_group=first,
            last_group=last,
            seq_len=example.seq_len,
        )
        tasks.append(task)
    return tasks


def _unit(split: str, task: PackTask, encode_keys: Sequence[str]) -> Unit:
    place: list[Any] = [split, task.num_groups, task.first_group, task.last_group, task.seq_len]
    return Unit(
        key=fingerprint(["pack", FORMAT, *place, list(encode_keys)]),
        label=f"{split}, groups {task.first_group} to {task.last_group}",
        task=task,
    )
