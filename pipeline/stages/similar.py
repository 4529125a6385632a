"""Pairs -> how alike they are: shingle sets travel to the pairs, texts are read where they lie, once and in order.

1. ship     a unit is a group of files: shingle sets of the documents that some lot needs, written by lot
2. verify   a unit is a run of lots of pairs: their Jaccard similarity, exact; what reaches the threshold is an edge

Two documents are alike where their whole texts reach the threshold and, if a template line stands in one of them, their
cores nearly do (CORE_FACTOR): a shared form adds nothing, and whoever compares whole texts finds them as similar as
stated. Nearly, since taking equal lines out of two revisions of one page always leaves them less similar than they are.

A document of the base version has no text here, only its signature (of its core, where it had template lines): then the
similarity is an estimate (verify.estimated_pairs).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manifests import storage
from pipeline.batches import read_batch_by_batch, write_batches
from pipeline.config import NearConfig
from pipeline.dedup import minhash, verify
from pipeline.dedup.records import EDGE, PAIR, ranks, sizes
from pipeline.dedup.templates import core_words
from pipeline.documents import DocumentsFile, open_parquet
from pipeline.kernels.text import Words
from pipeline.kernels.words import words_of
from pipeline.reads import ByteRange, read_many
from pipeline.runtime import Summary
from pipeline.shuffle import read_part, read_parts
from pipeline.stages.candidates import NEED, read_cores
from pipeline.stages.exact import Group
from pipeline.stages.templates import read_templates

CORE_FACTOR = 0.875
"""0.70 at a threshold of 0.80. Of 1,731 pairs of manual pages and advisories at 0.80 and over, some 20 had cores
between the two, since every page ends in the same lines; tickets on one form with different problems are below 0.3.
"""

SCHEMA = pa.schema(
    [
        ("lot", pa.int64()),
        ("document", pa.int64()),
        ("shingles", pa.large_list(pa.uint64())),  # of the whole text; empty where only the signature is known
        ("core", pa.large_list(pa.uint64())),  # null where the text holds no template line
        ("signature", pa.large_binary()),  # null unless a document of the base is in the build
    ]
)


@dataclass(frozen=True, kw_only=True)
class ShipTask:
    """Write what the lots of pairs need of one group."""

    group: Group
    near: NearConfig
    needs_urls: tuple[str, ...]
    """One for each range of ranks that needs something."""
    first_lots: tuple[int, ...]
    """Of each of them: its lots are numbered on from there."""
    num_groups: int
    num_lots: int
    templates_urls: dict[str, tuple[str, ...]]
    cores_url: str
    has_base: bool
    run_url: str


def ship(task: ShipTask) -> Summary:
    """Write SCHEMA, a batch a lot."""
    needs = []
    parts = read_parts(task.needs_urls, NEED, task.group.number, task.num_groups)
    for part, first in zip(parts, task.first_lots, strict=True):
        own = part.copy()
        own["lot"] += first
        needs.append(own)
    need = np.concatenate([np.empty(0, NEED), *needs])
    need = need[np.lexsort((need["lot"], need["document"]))]
    documents, of_need = np.unique(need["document"], return_inverse=True)
    tables = [SCHEMA.empty_table().drop_columns(["lot"])]
    for file in task.group.files:
        low, high = np.searchsorted(documents, [file.first_document, file.first_document + file.num_documents])
        if low < high:
            tables.append(_of_file(file, documents[low:high], task))
    table = pa.concat_tables(tables).take(pa.array(of_need))
    table = table.add_column(0, "lot", pa.array(need["lot"]))
    order = np.argsort(need["lot"], kind="stable")
    ends = np.cumsum(np.bincount(need["lot"], minlength=task.num_lots))
    write_batches(task.run_url, table.take(pa.array(order)), [0, *ends.tolist()])
    return {"num_documents": len(documents), "files": [task.run_url]}


def _of_file(file: DocumentsFile, documents: np.ndarray, task: ShipTask) -> pa.Table:
    lines = np.empty(0, np.uint64)
    if file.source in task.templates_urls and not task.group.is_base:
        lines = read_templates(task.templates_urls[file.source])["hash"]
    tables = []
    with open_parquet(file.url) as parquet:
        start = file.first_document
        for number in range(parquet.num_row_groups):
            end = start + parquet.metadata.row_group(number).num_rows
            inside = documents[(documents >= start) & (documents < end)]
            if len(inside):
                columns = [
                    *(["signature"] if task.has_base else []),
                    *([] if task.group.is_base else ["text"]),
                ]
                table = parquet.read_row_group(number, columns=columns, use_threads=False).take(
                    pa.array(inside - start)
                )
                tables.append(_shingled(inside, table, lines, task))
            start = end
    table = pa.concat_tables(tables)
    if task.has_base and len(lines):
        with open_parquet(task.cores_url) as parquet:
            cores = read_cores(parquet, file.first_document, file.first_document + file.num_documents)
        signatures = np.array(table["signature"].to_pylist(), object)
        known = dict(zip(cores["document"].to_pylist(), cores["signature"].to_pylist(), strict=True))
        for i, document in enumerate(documents.tolist()):
            if document in known:
                signatures[i] = known[document]
        column = pa.array(signatures.tolist(), pa.large_binary())
        table = table.set_column(table.schema.get_field_index("signature"), "signature", column)
    return table


def _shingled(documents: np.ndarray, table: pa.Table, lines: np.ndarray, task: ShipTask) -> pa.Table:
    n = len(documents)
    signature = table["signature"].cast(pa.large_binary()) if task.has_base else pa.nulls(n, pa.large_binary())
    if task.group.is_base:
        whole, core = pa.array([[]] * n, pa.large_list(pa.uint64())), pa.nulls(n, pa.large_list(pa.uint64()))
    else:
        text = table["text"].combine_chunks()
        whole = _sets(words_of(text), task.near.ngram)
        core = pa.nulls(n, pa.large_list(pa.uint64()))
        if len(lines):
            words, removed = core_words(text, lines)
            sets = _sets(words, task.near.ngram)
            core = pa.LargeListArray.from_arrays(
                pa.array(sets.offsets.to_numpy()), sets.values, mask=pa.array(~removed)
            )
    columns = {"document": documents, "shingles": whole, "core": core, "signature": signature}
    return pa.table(columns, schema=pa.schema([field for field in SCHEMA if field.name != "lot"]))


def _sets(words: Words, ngram: int) -> pa.LargeListArray:
    shingles, offsets = minhash.shingle_sets(words, ngram)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(shingles))


def shipped_url(prefix: str, number: int) -> str:
    """Where the turn's `number`th group that is needed has shipped to."""
    return f"{prefix}{number:06d}.shipped"


@dataclass(frozen=True, kw_only=True)
class VerifyTask:
    """Measure the pairs of lots first_lot..end_lot - 1 of a range of ranks."""

    near: NearConfig
    pairs_url: str
    first_lot: int
    end_lot: int
    num_lots: int
    """Of the range of ranks."""
    first_shipped: int
    """The number of `first_lot` among all lots of this turn."""
    shipped_prefix: str
    num_shipped: int
    """The files are shipped_url(prefix, 0) and on: thousands of their names in each of many thousand tasks would be
    most of what the driver sends.
    """
    edges_url: str


def verify_pairs(task: VerifyTask) -> Summary:
    """Write EDGE: the pairs that are alike, in their order."""
    urls = [shipped_url(task.shipped_prefix, number) for number in range(task.num_shipped)]
    end = task.first_shipped + task.end_lot - task.first_lot
    num_pairs, edges = 0, []
    for lot, shipped in enumerate(read_batch_by_batch(urls, SCHEMA, task.first_shipped, end), task.first_lot):
        pairs = read_part([task.pairs_url], PAIR, lot, task.num_lots, ["member", "other"])
        num_pairs += len(pairs)
        edges.append(_edges(pairs, shipped, task.near))
    found = np.concatenate(edges)
    storage.write_bytes(task.edges_url, found.tobytes())
    return {"num_pairs": num_pairs, "num_edges": len(found), "files": [task.edges_url]}


def _edges(pairs: np.ndarray, shipped: pa.Table, near: NearConfig) -> np.ndarray:
    """EDGE (k,) of the pairs that are alike; SCHEMA of their documents."""
    shipped = shipped.take(pa.array(np.argsort(shipped["document"].to_numpy(), kind="stable")))
    documents = shipped["document"].to_numpy()
    rows = np.stack([np.searchsorted(documents, pairs[name]) for name in ("member_document", "other_document")], axis=1)
    similarity, alike = similarities(shipped.combine_chunks(), rows, near)
    edges = np.empty(int(alike.sum()), EDGE)
    pairs = pairs[alike]
    for side in ("member", "other"):
        edges[side], edges[f"{side}_size"] = ranks(pairs[side]), sizes(pairs[side])
        edges[f"{side}_document"] = pairs[f"{side}_document"]
    edges["similarity"] = similarity[alike]
    return edges


def similarities(shipped: pa.Table, rows: np.ndarray, near: NearConfig) -> tuple[np.ndarray, np.ndarray]:
    """(float64 (k,), bool (k,)): similarity of the whole texts, and whether each pair is alike.

    `shipped` has SCHEMA, a row a document; `rows` int64 (k, 2) are pairs of its rows.
    """
    shingles, offsets = _flat(shipped["shingles"])
    similarity = verify.jaccard_pairs(shingles, offsets, rows)
    alike: np.ndarray = similarity >= near.threshold
    has_core = shipped["core"].is_valid().to_numpy()
    cut = np.flatnonzero(alike & np.any(has_core[rows], axis=1))
    if len(cut):
        # Sets of cores lie behind those of whole texts; a document without template lines is its own core.
        cores, core_offsets = _flat(shipped["core"])
        both, both_offsets = np.concatenate([shingles, cores]), [*offsets, *(core_offsets[1:] + len(shingles))]
        core_rows = np.where(has_core, shipped.num_rows, 0)[rows[cut]] + rows[cut]
        alike[cut] = verify.jaccard_pairs(both, np.array(both_offsets), core_rows) >= CORE_FACTOR * near.threshold
    signed = shipped["signature"].is_valid().to_numpy()
    by_signature = np.flatnonzero(np.any(np.diff(offsets)[rows] == 0, axis=1) & np.all(signed[rows], axis=1))
    if len(by_signature):
        width = 4 * near.bands * near.rows
        values = np.zeros((shipped.num_rows, near.bands * near.rows), np.uint32)
        raw = b"".join(value for value in shipped["signature"].to_pylist() if value is not None)
        values[signed] = np.frombuffer(raw, "<u4").reshape(-1, width // 4)
        left, right = rows[by_signature].T
        similarity[by_signature] = verify.estimated_pairs(values[left], values[right])
        alike[by_signature] = similarity[by_signature] >= near.threshold
    return similarity, alike


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Values and offsets of a column of lists without the values of nulls, offsets from 0."""
    lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    return lists.flatten().to_numpy(), np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def read_edges(urls: Sequence[str]) -> np.ndarray:
    """EDGE (k,)."""
    found = read_many([ByteRange(url, 0, None) for url in urls])
    return np.concatenate([np.empty(0, EDGE), *(np.frombuffer(data, EDGE) for data in found)])
