"""What exact deduplication left -> each document's rank: its place in the order of preference.

A unit is a range of keys. It reads that range from every sorted survivors file, merges, and numbers; a document's rank
is its number plus what all ranges before hold. Ranks follow from content alone, and are dense: later stages cut them
into ranges as evenly as they like.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.batches import BatchRange, read_batches
from pipeline.runtime import Summary
from pipeline.shuffle import read_parts, write_run
from pipeline.stages.exact import SCHEMA, group_of, sorted_by_preference

RANGE_DOCUMENTS = 2_000_000
"""Documents of a range of ranks, about: 200 MB of keys to sort."""

RANK = np.dtype([("document", "<i8"), ("rank", "<i8")])
Key = tuple[int, int, str]


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """Number one range of keys."""

    pieces: tuple[BatchRange, ...]
    """Of the survivors' files, the batches that may hold keys of the range."""
    start: Key | None
    end: Key | None
    """The range is start <= key < end; None is open."""
    first_documents: tuple[int, ...]
    ranks_url: str


def rank(task: RankTask) -> Summary:
    """Write RANK, numbered from 0 in the range, by group of documents."""
    tables = [_inside(table, task.start, task.end) for table in read_batches(task.pieces, SCHEMA)]
    table = sorted_by_preference(pa.concat_tables([SCHEMA.empty_table(), *tables]))
    records = np.empty(table.num_rows, RANK)
    records["document"], records["rank"] = table["document"].to_numpy(), np.arange(table.num_rows)
    groups = group_of(records["document"], task.first_documents)
    write_run(task.ranks_url, records, groups, len(task.first_documents), ["document"])
    return {"num_documents": table.num_rows, "files": [task.ranks_url]}


def _inside(table: pa.Table, start: Key | None, end: Key | None) -> pa.Table:
    if start is not None:
        table = table.filter(_not_below(table, start))
    if end is not None:
        table = table.filter(pc.invert(_not_below(table, end)))
    return table


def _not_below(table: pa.Table, key: Key) -> Any:
    unwanted, policy, document_id = key
    by_id = pc.greater_equal(table["id"], pa.scalar(document_id, pa.large_string()))
    by_policy = pc.or_(
        pc.greater(table["policy"], policy),
        pc.and_(pc.equal(table["policy"], policy), by_id),
    )
    return pc.or_(pc.greater(table["unwanted"], unwanted), pc.and_(pc.equal(table["unwanted"], unwanted), by_policy))


def ranges(
    survivors: Sequence[tuple[str, Sequence[Sequence[Any]]]], num_ranges: int
) -> list[tuple[Key | None, Key | None, tuple[BatchRange, ...]]]:
    """(start, end, pieces) of each range: boundaries are first keys of batches, evenly spaced among all of them.

    `survivors` are (url, first key of each batch) of every sorted file.
    """
    keyed = [(url, [(int(u), int(p), str(i)) for u, p, i in starts]) for url, starts in survivors]
    every = list(heapq.merge(*(keys for _, keys in keyed)))
    inner = sorted({every[len(every) * i // num_ranges] for i in range(1, num_ranges)}) if every else []
    bounds: list[Key | None] = [None, *inner, None]
    found = []
    for start, end in pairwise(bounds):
        pieces = []
        for url, keys in keyed:
            # A batch's last key is not known, so the batch before the first that starts inside may reach into it.
            first = 0 if start is None else max(0, sum(key < start for key in keys) - 1)
            last = len(keys) if end is None else sum(key < end for key in keys)
            if first < last:
                pieces.append(BatchRange(url, first, last))
        found.append((start, end, tuple(pieces)))
    return found


def read_ranks(urls: Sequence[str], first_ranks: Sequence[int], group: int, num_groups: int) -> np.ndarray:
    """RANK (n,) of one group, sorted by document, with ranks of the whole build."""
    parts = []
    for part, first in zip(read_parts(urls, RANK, group, num_groups), first_ranks, strict=True):
        own = part.copy()
        own["rank"] += first
        parts.append(own)
    records = np.concatenate([np.empty(0, RANK), *parts])
    return records[np.argsort(records["document"], kind="stable")]
