"""Exact duplicates: documents -> by content hash -> one of each stays.

1. spread   a unit is a group of files: what decides about each of its documents, written by ranges of content hash
2. unite    a unit is a range of content hashes: of equal ones the most preferred stays; what stays is written in the
            order of preference, for ranks.py

Preferred is: what the base version already holds; higher source priority; the longest or the newest, where configured,
of which those without a date are the oldest; the smallest id; the smallest source name; then the smallest hash
of the content and of the text as it stands. Documents equal in all of these are one and the same text, so which of them
stays changes nothing that is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.batches import BatchRange, read_batches, write_batches
from pipeline.dedup import exact
from pipeline.documents import DocumentsFile, fixed_bytes, read_columns
from pipeline.runtime import Summary
from pipeline.shuffle import write_run

PREFERENCE = ("unwanted", "policy", "id", "source", "content_hash", "text_hash", "document")
SCHEMA = pa.schema(
    [
        ("unwanted", pa.int64()),
        ("policy", pa.int64()),
        ("id", pa.large_string()),
        ("source", pa.large_string()),
        ("content_hash", pa.binary(16)),
        ("text_hash", pa.uint64()),
        ("document", pa.int64()),
        ("num_bytes", pa.int64()),
    ]
)
IN_BASE = -(1 << 62)
"""`unwanted` of what the base version holds: no priority comes before it."""
UNDATED = 1 << 62
"""`policy` of a document without a date, where the newest stays: no date comes after it."""
SAME = np.dtype([("keeper", "<i8"), ("document", "<i8")])
"""An exact duplicate and the document that stays for it."""
BATCH_ROWS = 65_536
MAX_KEY_CHARS = 200
"""Of an id, where keys are cut into ranges: any string can be a boundary, and ids may be long."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """What one task goes through: some files of the build, or of the base version's signatures."""

    number: int
    files: tuple[DocumentsFile, ...]
    is_base: bool

    @property
    def first_document(self) -> int:
        """The number of its first document."""
        return self.files[0].first_document


def group_of(documents: np.ndarray, first_documents: Sequence[int]) -> np.ndarray:
    """int64 (n,): the group of each document."""
    return np.searchsorted(np.array(first_documents), documents, side="right") - 1


@dataclass(frozen=True, kw_only=True)
class SpreadTask:
    """Write a group's documents by ranges of content hash."""

    group: Group
    keep: str
    """DedupConfig.keep."""
    num_parts: int
    run_url: str


def spread(task: SpreadTask) -> Summary:
    """Write SCHEMA, a batch a part."""
    tables = [_preferences(file, task) for file in task.group.files]
    table = pa.concat_tables([SCHEMA.empty_table(), *tables])
    leading = fixed_bytes(table["content_hash"], 16)[:, :2].astype(np.int64)
    part = ((leading[:, 0] << 8) | leading[:, 1]) * task.num_parts >> 16
    order = np.argsort(part, kind="stable")
    ends = np.cumsum(np.bincount(part, minlength=task.num_parts))
    table = table.take(pa.array(order))
    write_batches(task.run_url, table, [0, *ends.tolist()])
    return {"files": [task.run_url]}


def _preferences(file: DocumentsFile, task: SpreadTask) -> pa.Table:
    columns = ["id", "num_bytes", "content_hash", "text_hash"]
    # What the base version holds comes before all else, so its dates would decide nothing, and are not stored.
    is_by_date = task.keep == "newest" and not task.group.is_base
    columns += ["source"] if task.group.is_base else []
    table = read_columns(file.url, [*columns, "date"] if is_by_date else columns)
    n = table.num_rows
    num_bytes = table["num_bytes"].to_numpy()
    policy = -num_bytes if task.keep == "longest" else np.zeros(n, np.int64)
    if is_by_date:
        policy = pc.fill_null(pc.negate(table["date"]), UNDATED).to_numpy()
    return pa.table(
        {
            "unwanted": np.full(n, IN_BASE if task.group.is_base else -file.priority),
            "policy": policy,
            "id": table["id"],
            "source": table["source"]
            if task.group.is_base
            else pa.repeat(pa.scalar(file.source, pa.large_string()), n),
            "content_hash": table["content_hash"],
            "text_hash": table["text_hash"],
            "document": np.arange(file.first_document, file.first_document + n),
            "num_bytes": num_bytes,
        },
        schema=SCHEMA,
    )


@dataclass(frozen=True, kw_only=True)
class UniteTask:
    """Settle a range of content hashes."""

    run_urls: tuple[str, ...]
    part: int
    remove: bool
    """False: exact duplicates stay, everything is passed on."""
    first_documents: tuple[int, ...]
    """Of each group."""
    same_url: str
    survivors_url: str


def unite(task: UniteTask) -> Summary:
    """Write the duplicates (SAME, by the group of their keeper) and, in order of preference, what is left (SCHEMA).

    `starts` in the result holds the first key of each batch of the latter, for cutting all of them into ranges.
    """
    table = pa.concat_tables(read_batches([BatchRange(url, task.part, task.part + 1) for url in task.run_urls], SCHEMA))
    same = np.empty(0, SAME)
    if task.remove:
        table, same = _remove_equal(table)
    table = sorted_by_preference(table)
    bounds = [*range(0, table.num_rows, BATCH_ROWS), table.num_rows]
    write_batches(task.survivors_url, table, bounds)
    groups = group_of(same["keeper"], task.first_documents)
    write_run(task.same_url, same, groups, len(task.first_documents), SAME.names or ())
    first_rows = table.take(pa.array(bounds[:-1], pa.int64()))
    starts = [[row["unwanted"], row["policy"], row["id"][:MAX_KEY_CHARS]] for row in first_rows.to_pylist()]
    return {
        "num_survivors": table.num_rows,
        "num_same": len(same),
        "starts": starts,
        "files": [task.same_url, task.survivors_url],
    }


def _remove_equal(table: pa.Table) -> tuple[pa.Table, np.ndarray]:
    group = exact.groups(fixed_bytes(table["content_hash"], 16).view("<u8").astype(np.uint64))
    shared = np.flatnonzero(np.bincount(group)[group] > 1)
    candidates = table.take(pa.array(shared)).append_column("group", pa.array(group[shared]))
    # The row's number goes along, so that what is sorted away can be named in `table`.
    candidates = candidates.append_column("row", pa.array(shared))
    order = pc.sort_indices(candidates, sort_keys=[(name, "ascending") for name in ("group", *PREFERENCE)])
    candidates = candidates.select(["group", "row", "document", "unwanted"]).take(order)
    of_group, document = candidates["group"].to_numpy(), candidates["document"].to_numpy()
    opens = np.diff(of_group, prepend=-1) != 0
    keeper = document[np.flatnonzero(opens)[np.cumsum(opens) - 1]] if len(document) else document
    # What the base version holds is in its shards; it stays, even where two of its documents are equal.
    goes = (keeper != document) & (candidates["unwanted"].to_numpy() != IN_BASE)
    same = np.empty(int(goes.sum()), SAME)
    same["keeper"], same["document"] = keeper[goes], document[goes]
    stays = np.ones(table.num_rows, np.bool_)
    stays[candidates["row"].to_numpy()[goes]] = False
    return table.filter(pa.array(stays)), same


def sorted_by_preference(table: pa.Table) -> pa.Table:
    """SCHEMA in order."""
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in PREFERENCE]))
