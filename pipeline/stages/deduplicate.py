"""Which documents go because another one stands for them.

1. candidates: exact duplicates by content hash; then, of what is left, pairs that share a band, each with its bucket's
   preferred member.
2. verify: the exact Jaccard similarity of every pair, from the documents' shingle sets. A unit is a run of pairs whose
   texts fit in memory.
3. resolve: a document is dropped when it is similar enough to a preferred one that is itself kept. A document whose
   likeness was dropped may be like the one that stands for it: such pairs go back to 2, until there are none.

Preferred is: higher source priority, then smaller id, then smaller source name, then smaller content hash. Two
documents equal in all four are one and the same text, so which of them stays changes nothing that is written.

Documents are numbered from 0 through all read units in their order. Candidates and resolve hold some 400 bytes a
document in one process: some millions of documents on a laptop; beyond that they are to be range partitioned.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.config import DedupConfig
from pipeline.dedup import bands, components, exact, minhash, verify
from pipeline.documents import fixed_bytes, open_parquet, read_columns
from pipeline.kernels.text import analyse
from pipeline.runtime import BuildError, Runtime, Summary, Unit, short

FORMAT = 1
VERIFY_TEXT_BYTES = 64_000_000
"""Text that one verify unit may have to hold, counted once a pair side: an upper bound, since pairs share documents."""

MAX_ROUNDS = 20
"""A round settles every chain one link further; real text needs two or three."""

DROPPED_SCHEMA = pa.schema(
    [
        ("document", pa.int64()),
        ("keeper", pa.int64()),
        ("kind", pa.string()),  # "exact" or "near"
        ("similarity", pa.float64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class DocumentsFile:
    """What a read unit kept, as later stages see it."""

    key: str
    """Fingerprint of the read unit."""
    url: str
    source: str
    priority: int
    num_documents: int
    first_document: int
    """Its first document's number in the build."""


@dataclass(frozen=True, kw_only=True)
class CandidatesTask:
    """Find exact duplicates and near candidates over all documents."""

    files: tuple[DocumentsFile, ...]
    config: DedupConfig
    exact_url: str
    pairs_url: str


def find_candidates(task: CandidatesTask) -> Summary:
    """Write exact duplicates (DROPPED_SCHEMA) and candidate pairs (document, other, verify unit) ."""
    table = _read_all(task.files)
    num_documents = table.num_rows
    rank = _rank(table)
    hashes = fixed_bytes(table["content_hash"], 16)
    keeper = (
        exact.keepers(hashes.view("<u8").astype(np.uint64), rank) if task.config.exact else np.arange(num_documents)
    )
    document = np.flatnonzero(keeper != np.arange(num_documents))
    with storage.atomic_writer(task.exact_url) as stream:
        pq.write_table(_dropped(document, keeper[document], "exact", np.ones(len(document))), stream)

    pairs = np.empty((0, 2), np.int64)
    near = task.config.near
    if near.enabled:
        signed = np.flatnonzero((keeper == np.arange(num_documents)) & _valid(table["bands"]))
        band_hashes = fixed_bytes(table["bands"], 8 * near.bands)[signed].view("<u8").astype(np.uint64)
        records = np.repeat(signed, near.bands)
        pairs = bands.candidates(band_hashes.ravel(), records, rank[records])
    num_units = _write_pairs(task.pairs_url, pairs, table["num_bytes"].to_numpy())
    return {"num_pairs": len(pairs), "num_units": num_units, "files": [task.exact_url, task.pairs_url]}


def _read_all(files: Sequence[DocumentsFile]) -> pa.Table:
    tables = []
    for file in files:
        table = read_columns(file.url, ["id", "num_bytes", "content_hash", "bands"])
        table = table.append_column("source", pa.repeat(pa.scalar(file.source), table.num_rows))
        tables.append(table.append_column("unwanted", pa.repeat(pa.scalar(-file.priority, pa.int64()), table.num_rows)))
    return pa.concat_tables(tables)


def _rank(table: pa.Table) -> np.ndarray:
    """int64 (n,): each document's place in the order of preference, 0 first."""
    order = pc.sort_indices(
        table, sort_keys=[(name, "ascending") for name in ("unwanted", "id", "source", "content_hash")]
    ).to_numpy()
    rank = np.empty(table.num_rows, np.int64)
    rank[order] = np.arange(table.num_rows)
    return rank


def _valid(column: pa.ChunkedArray) -> np.ndarray:
    return pc.is_valid(column).to_numpy()


def _write_pairs(url: str, pairs: np.ndarray, num_bytes: np.ndarray) -> int:
    """Write pairs with the verify unit of each, so that a unit's texts stay below VERIFY_TEXT_BYTES (a single pair may
    exceed it); how many units.
    """
    cost = np.cumsum(num_bytes[pairs[:, 0]] + num_bytes[pairs[:, 1]])
    units, unit = np.unique(cost // VERIFY_TEXT_BYTES, return_inverse=True)
    with storage.atomic_writer(url) as stream:
        pq.write_table(pa.table({"document": pairs[:, 0], "other": pairs[:, 1], "unit": unit}), stream)
    return len(units)


@dataclass(frozen=True, kw_only=True)
class VerifyTask:
    """Measure the pairs of one verify unit."""

    files: tuple[DocumentsFile, ...]
    config: DedupConfig
    pairs_url: str
    unit: int
    edges_url: str


def verify_pairs(task: VerifyTask) -> Summary:
    """Write the unit's pairs whose exact Jaccard similarity reaches the threshold: document, other, similarity."""
    table = read_columns(task.pairs_url)
    table = table.filter(pc.equal(table["unit"], task.unit))
    pairs = _pairs(table)
    documents, places = np.unique(pairs, return_inverse=True)
    _, words = analyse(_fetch_texts(task.files, documents))
    shingles, offsets = minhash.shingle_sets(words, task.config.near.ngram)
    similarity = verify.jaccard_pairs(shingles, offsets, places.reshape(pairs.shape))
    similar = similarity >= task.config.near.threshold
    edges = pa.table({"document": pairs[similar, 0], "other": pairs[similar, 1], "similarity": similarity[similar]})
    with storage.atomic_writer(task.edges_url) as stream:
        pq.write_table(edges, stream)
    return {"num_pairs": len(pairs), "num_edges": edges.num_rows, "files": [task.edges_url]}


def _fetch_texts(files: Sequence[DocumentsFile], documents: np.ndarray) -> pa.Array:
    """Texts of `documents` (ascending numbers), reading only the row groups that hold one."""
    found = []
    for file in files:
        inside = documents[(documents >= file.first_document) & (documents < file.first_document + file.num_documents)]
        if not len(inside):
            continue
        with open_parquet(file.url) as parquet:
            start = file.first_document
            for group in range(parquet.num_row_groups):
                end = start + parquet.metadata.row_group(group).num_rows
                rows = inside[(inside >= start) & (inside < end)] - start
                if len(rows):
                    found.append(parquet.read_row_group(group, columns=["text"])["text"].take(pa.array(rows)))
                start = end
    return pa.concat_arrays([chunk for column in found for chunk in column.chunks])


@dataclass(frozen=True, kw_only=True)
class ResolveTask:
    """Settle who is kept, as far as the pairs measured so far tell."""

    files: tuple[DocumentsFile, ...]
    exact_url: str
    pairs_urls: tuple[str, ...]
    """Pairs of every round so far."""
    edges_urls: tuple[str, ...]
    """Edges of every round so far."""
    dropped_url: str
    proposed_url: str


def resolve_duplicates(task: ResolveTask) -> Summary:
    """Write every dropped document with its keeper, sorted by document, and pairs to measure before that is final."""
    table = _read_all(task.files)
    rank = _rank(table)
    exact_dropped = read_columns(task.exact_url)
    compared = np.concatenate([_pairs(read_columns(url)) for url in task.pairs_urls])
    edges = [read_columns(url) for url in task.edges_urls]
    pairs = np.concatenate([np.empty((0, 2), np.int64), *map(_pairs, edges)])
    similarity = np.concatenate([np.empty(0), *(table["similarity"].to_numpy() for table in edges)])
    keeper, kept_similarity = components.resolve(table.num_rows, pairs, similarity, rank)
    proposed = components.proposals(pairs, compared, keeper, rank)
    num_units = _write_pairs(task.proposed_url, proposed, table["num_bytes"].to_numpy())

    # A keeper of exact duplicates may itself go for a near one; then its copies are explained by the one that stays.
    first = exact_dropped["keeper"].to_numpy()
    near = np.flatnonzero(keeper != np.arange(table.num_rows))
    dropped = pa.concat_tables(
        [
            _dropped(exact_dropped["document"].to_numpy(), keeper[first], "exact", kept_similarity[first]),
            _dropped(near, keeper[near], "near", kept_similarity[near]),
        ]
    ).sort_by("document")
    with storage.atomic_writer(task.dropped_url) as stream:
        pq.write_table(dropped, stream, row_group_size=65_536)
    return {
        "counts": _counts(table, dropped),
        "num_pairs": len(proposed),
        "num_units": num_units,
        "files": [task.dropped_url, task.proposed_url],
    }


def _pairs(table: pa.Table) -> np.ndarray:
    return np.stack([table["document"].to_numpy(), table["other"].to_numpy()], axis=1)


def _dropped(document: np.ndarray, keeper: np.ndarray, kind: str, similarity: np.ndarray) -> pa.Table:
    columns = {"document": document, "keeper": keeper, "kind": pa.repeat(kind, len(document)), "similarity": similarity}
    return pa.table(columns, schema=DROPPED_SCHEMA)


def _counts(table: pa.Table, dropped: pa.Table) -> list[list[Any]]:
    """Rows [source, kind, num_documents, num_bytes], sorted."""
    of_dropped = table.select(["source", "num_bytes"]).take(dropped["document"]).append_column("kind", dropped["kind"])
    groups = of_dropped.group_by(["source", "kind"]).aggregate([("num_bytes", "count"), ("num_bytes", "sum")])
    return sorted(
        [row["source"], row["kind"], row["num_bytes_count"], row["num_bytes_sum"]] for row in groups.to_pylist()
    )


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """The outcome of deduplication."""

    key: str
    url: str
    """Parquet of DROPPED_SCHEMA, sorted by document."""
    counts: tuple[tuple[str, str, int, int], ...]
    """(source, "exact" or "near", num_documents, num_bytes)."""
    num_pairs: int
    """Candidate pairs measured."""

    def in_words(self) -> str:
        """One line for the person who waits."""
        num = {kind: sum(n for _, k, n, _ in self.counts if k == kind) for kind in ("exact", "near")}
        return (
            f"found {num['exact']:,} exact and {num['near']:,} near duplicates"
            f" ({self.num_pairs:,} candidate pairs measured)"
        )


def deduplicate(runtime: Runtime, build_url: str, files: tuple[DocumentsFile, ...], config: DedupConfig) -> Dropped:
    """Run the three steps over everything that was read and kept."""
    settings = dataclasses.asdict(config)
    key = fingerprint(["deduplicate", FORMAT, settings, [[file.key, file.source, file.priority] for file in files]])

    def url(name: str) -> str:
        return storage.join(build_url, "deduplicate", f"{short(key)}-{name}.parquet")

    def unit(name: str, task: Any) -> Unit:
        return Unit(key=fingerprint([key, name]), label=name, task=task)

    candidates = CandidatesTask(files=files, config=config, exact_url=url("exact"), pairs_url=url("pairs-0"))
    [found] = runtime.run("deduplicate", find_candidates, [unit("candidates", candidates)])
    num_pairs, pairs_urls, edges_urls = 0, [candidates.pairs_url], []
    for turn in range(MAX_ROUNDS):
        num_pairs += found["num_pairs"]
        tasks = [
            VerifyTask(
                files=files, config=config, pairs_url=pairs_urls[-1], unit=i, edges_url=url(f"edges-{turn}-{i:06d}")
            )
            for i in range(found["num_units"])
        ]
        runtime.run("verify", verify_pairs, [unit(f"verify {turn} {task.unit}", task) for task in tasks])
        edges_urls += [task.edges_url for task in tasks]
        resolve = ResolveTask(
            files=files,
            exact_url=candidates.exact_url,
            pairs_urls=tuple(pairs_urls),
            edges_urls=tuple(edges_urls),
            dropped_url=url(f"dropped-{turn}"),
            proposed_url=url(f"pairs-{turn + 1}"),
        )
        [found] = runtime.run("deduplicate", resolve_duplicates, [unit(f"resolve {turn}", resolve)])
        if not found["num_pairs"]:
            counts = tuple((source, kind, n, size) for source, kind, n, size in found["counts"])
            return Dropped(key=key, url=resolve.dropped_url, counts=counts, num_pairs=num_pairs)
        pairs_urls.append(resolve.proposed_url)
    raise BuildError(
        f"deduplicate: {found['num_pairs']:,} pairs are still open after {MAX_ROUNDS} rounds: raise"
        " dedup.near.threshold, or look for a template that chains the documents of a source"
    )


def kept_rows(dropped_url: str, file: DocumentsFile) -> np.ndarray:
    """bool (file.num_documents,): which of a file's documents stay."""
    first, end = file.first_document, file.first_document + file.num_documents
    kept = np.ones(file.num_documents, np.bool_)
    with open_parquet(dropped_url) as parquet:
        for group in range(parquet.num_row_groups):
            bounds = parquet.metadata.row_group(group).column(0).statistics
            if bounds is not None and bounds.max >= first and bounds.min < end:
                document = parquet.read_row_group(group, columns=["document"])["document"].to_numpy()
                kept[document[(document >= first) & (document < end)] - first] = False
    return kept
