"""What goes, told by document: the table that later stages skip by and that explains every drop.

1. follow   a unit is a group of documents: exact duplicates of a near duplicate go for the same document as it does
2. name     a unit is a group: the keepers' ids, and how many went for each
3. tell     a unit is a group: its files' dropped documents, `<root>/duplicates/<version>/<group>.parquet`

The keeper of an exact duplicate may itself be like a third document, and go. Then its copies count as near duplicates
too, of the document that stays: `exact` always means that an equal text is kept.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from manifests.canonical import canonical_json
from pipeline.batches import BatchRange, read_batches, write_batches
from pipeline.documents import DocumentsFile, open_parquet, read_columns
from pipeline.runtime import Summary
from pipeline.shuffle import read_part, write_run
from pipeline.stages.exact import SAME, Group, group_of
from pipeline.stages.settle import NEAR

GONE = np.dtype([("keeper", "<i8"), ("document", "<i8"), ("is_exact", "<i8"), ("similarity", "<f8")])
NAMED_SCHEMA = pa.schema(
    [
        ("document", pa.int64()),
        ("keeper", pa.int64()),
        ("keeper_source", pa.large_string()),
        ("keeper_id", pa.large_string()),
        ("kind", pa.string()),
        ("similarity", pa.float64()),
    ]
)
DROPPED_SCHEMA = pa.schema(
    [
        ("document", pa.int64()),  # its number in the build: file by file
        ("keeper", pa.int64()),
        ("source", pa.large_string()),
        ("document_id", pa.large_string()),
        ("keeper_source", pa.large_string()),
        ("keeper_id", pa.large_string()),
        ("kind", pa.string()),  # "exact" or "near"
        ("similarity", pa.float64()),
    ]
)
FILES = "files.json"
NUM_CLUSTERS = 20
"""Keepers of a group that the report may name: those for which most documents went."""


@dataclass(frozen=True, kw_only=True)
class FollowTask:
    """Settle what goes for the documents of one group."""

    group: Group
    same_urls: tuple[str, ...]
    near_urls: tuple[str, ...]
    first_documents: tuple[int, ...]
    gone_url: str


def follow(task: FollowTask) -> Summary:
    """Write GONE by group of the keeper."""
    number, num_groups = task.group.number, len(task.first_documents)
    near = read_part(task.near_urls, NEAR, number, num_groups, ["document"])
    same = read_part(task.same_urls, SAME, number, num_groups, ["keeper", "document"])
    gone = np.empty(len(near) + len(same), GONE)
    gone["document"] = np.concatenate([near["document"], same["document"]])
    gone["keeper"] = np.concatenate([near["keeper"], same["keeper"]])
    gone["similarity"] = np.concatenate([near["similarity"], np.ones(len(same))])
    gone["is_exact"] = np.repeat([0, 1], [len(near), len(same)])
    if len(near):
        row = np.minimum(np.searchsorted(near["document"], gone["keeper"]), len(near) - 1)
        follows = near["document"][row] == gone["keeper"]
        gone["keeper"][follows], gone["is_exact"][follows] = near["keeper"][row[follows]], 0
        gone["similarity"][follows] = near["similarity"][row[follows]]
    groups = group_of(gone["keeper"], task.first_documents)
    write_run(task.gone_url, gone, groups, num_groups, ["keeper", "document"])
    return {"files": [task.gone_url]}


@dataclass(frozen=True, kw_only=True)
class NameTask:
    """Give the keepers of one group their names."""

    group: Group
    gone_urls: tuple[str, ...]
    first_documents: tuple[int, ...]
    named_url: str


def name(task: NameTask) -> Summary:
    """Write NAMED_SCHEMA, a batch a group of the dropped document; tell the largest clusters."""
    gone = read_part(task.gone_urls, GONE, task.group.number, len(task.first_documents), ["keeper", "document"])
    ids, sources = _names(task.group, gone["keeper"])
    kinds = np.where(gone["is_exact"] == 1, "exact", "near")
    columns = {
        "document": gone["document"],
        "keeper": gone["keeper"],
        "keeper_source": sources,
        "keeper_id": ids,
        "kind": pa.array(kinds.tolist(), pa.string()),
        "similarity": gone["similarity"],
    }
    table = pa.table(columns, schema=NAMED_SCHEMA)
    groups = group_of(gone["document"], task.first_documents)
    ends = np.cumsum(np.bincount(groups, minlength=len(task.first_documents)))
    write_batches(task.named_url, table.take(pa.array(np.argsort(groups, kind="stable"))), [0, *ends.tolist()])
    return {"clusters": _clusters(gone, sources, ids), "files": [task.named_url]}


def _names(group: Group, documents: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Ids and sources of `documents`, sorted numbers of the group."""
    ids, sources = [pa.array([], pa.large_string())], [pa.array([], pa.large_string())]
    for file in group.files:
        low, high = np.searchsorted(documents, [file.first_document, file.first_document + file.num_documents])
        if low < high:
            table = read_columns(file.url, ["id", "source"] if group.is_base else ["id"])
            rows = pa.array(documents[low:high] - file.first_document)
            ids += table["id"].take(rows).chunks
            if group.is_base:
                sources += table["source"].take(rows).chunks
            else:
                sources.append(pa.repeat(pa.scalar(file.source, pa.large_string()), high - low))
    return pa.concat_arrays(ids), pa.concat_arrays(sources)


def _clusters(gone: np.ndarray, sources: pa.Array, ids: pa.Array) -> list[dict[str, Any]]:
    """The keepers that most documents went for: of equals the smallest source and id."""
    starts = np.flatnonzero(np.diff(gone["keeper"], prepend=-1))
    exact, size = (
        np.add.reduceat(gone["is_exact"], starts) if len(starts) else starts,
        np.diff(starts, append=len(gone)),
    )
    largest = np.flatnonzero(size >= np.sort(size)[-min(NUM_CLUSTERS, len(size))]) if len(size) else starts
    rows = [
        {
            "source": sources[int(starts[i])].as_py(),
            "id": ids[int(starts[i])].as_py(),
            "num_exact": int(exact[i]),
            "num_near": int(size[i] - exact[i]),
        }
        for i in largest[np.argsort(-size[largest], kind="stable")][: 10 * NUM_CLUSTERS].tolist()
    ]
    return sorted(rows, key=lambda row: (-row["num_exact"] - row["num_near"], row["source"], row["id"]))[:NUM_CLUSTERS]


@dataclass(frozen=True, kw_only=True)
class TellTask:
    """Write one group's dropped documents."""

    group: Group
    named_urls: tuple[str, ...]
    dropped_url: str


def tell(task: TellTask) -> Summary:
    """Write DROPPED_SCHEMA, sorted by document."""
    number = task.group.number
    own = [BatchRange(url, number, number + 1) for url in task.named_urls]
    named = pa.concat_tables(read_batches(own, NAMED_SCHEMA)).sort_by("document")
    documents = named["document"].to_numpy()
    ids, sources = _names(task.group, documents)
    columns = {"source": sources, "document_id": ids} | {name: named[name] for name in NAMED_SCHEMA.names}
    table = pa.table(columns).select(DROPPED_SCHEMA.names)
    table = table.cast(DROPPED_SCHEMA)
    with storage.atomic_writer(task.dropped_url) as stream:
        pq.write_table(table, stream, row_group_size=65_536, compression="zstd")
    return {"counts": _counts(task.group, documents, named["kind"].to_pylist()), "files": [task.dropped_url]}


def _counts(group: Group, documents: np.ndarray, kinds: Sequence[str]) -> list[list[Any]]:
    """Rows [source, kind, num_documents, num_bytes], sorted."""
    is_exact = np.array([kind == "exact" for kind in kinds], np.bool_)
    num: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for file in group.files:
        low, high = np.searchsorted(documents, [file.first_document, file.first_document + file.num_documents])
        if low < high:
            num_bytes = read_columns(file.url, ["num_bytes"])["num_bytes"].to_numpy()
            of_file = num_bytes[documents[low:high] - file.first_document]
            for kind, chosen in (("exact", is_exact[low:high]), ("near", ~is_exact[low:high])):
                num[file.source, kind] += int(chosen.sum())
                size[file.source, kind] += int(of_file[chosen].sum())
    return [[source, kind, n, size[source, kind]] for (source, kind), n in sorted(num.items()) if n]


def dropped_url(folder: str, group: int) -> str:
    """Where a group's dropped documents lie."""
    return storage.join(folder, f"{group:06d}.parquet")


def write_files(folder: str, files: Sequence[DocumentsFile]) -> None:
    """Tell where the texts of the documents lie while `.build` is there: for `python -m pipeline duplicates`."""
    rows = [[file.source, file.url, file.first_document, file.num_documents] for file in files]
    storage.write_bytes(storage.join(folder, FILES), canonical_json({"files": rows}))


def kept_rows(folder: str, file: DocumentsFile) -> np.ndarray:
    """bool (file.num_documents,): which of a file's documents stay."""
    first, end = file.first_document, file.first_document + file.num_documents
    kept = np.ones(file.num_documents, np.bool_)
    with open_parquet(dropped_url(folder, file.group)) as parquet:
        for number in range(parquet.num_row_groups):
            bounds = parquet.metadata.row_group(number).column(0).statistics
            if bounds is not None and bounds.max >= first and bounds.min < end:
                table = parquet.read_row_group(number, columns=["document"], use_threads=False)
                document = table["document"].to_numpy()
                kept[document[(document >= first) & (document < end)] - first] = False
    return kept
