"""Documents -> band records -> pairs worth comparing.

1. sign      a unit is a group of files: band records of each document that has a rank, by ranges of band hash. Of
             documents that hold template lines the text is read again, and their core has band records too: documents
             on one form crowd each other's buckets, their cores do not.
2. pair      a unit is a range of band hashes: each bucket becomes a star, its pairs written by ranges of ranks
3. gather    a unit is a range of ranks: each pair once, cut into lots to measure, and which document each lot needs
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from pipeline.config import NearConfig
from pipeline.dedup import bands, minhash
from pipeline.dedup.records import BAND, PAIR, places, ranks, sizes, unique_pairs
from pipeline.dedup.templates import core_words, find_lines
from pipeline.documents import DocumentsFile, fixed_bytes, open_parquet, signature_column
from pipeline.runtime import Summary
from pipeline.shuffle import merge_part, write_run
from pipeline.stages.exact import Group, group_of
from pipeline.stages.ranks import read_ranks
from pipeline.stages.templates import read_templates

MAX_RUN_RECORDS = 8_000_000
"""Band records held before a run of them is written: 200 MB, and as much again while they are sorted."""
MAX_PAIRS = 4_000_000
"""Pairs held before they are written, 128 MB."""
LOT_TEXT_BYTES = 64_000_000
"""Text of one lot of pairs, counted once a pair side: an upper bound of what it holds, since pairs share documents."""
NUM_EXAMPLES = 10
"""Template lines of a source whose text is looked up, the commonest: for the report."""
MAX_LINE_CHARS = 200

NEED = np.dtype([("document", "<i8"), ("lot", "<i8")])
"""A document that a lot of its range of ranks needs."""


@dataclass(frozen=True, kw_only=True)
class SignTask:
    """Write band records of one group."""

    group: Group
    near: NearConfig
    ranks_urls: tuple[str, ...]
    first_ranks: tuple[int, ...]
    num_groups: int
    templates_urls: dict[str, tuple[str, ...]]
    """By source, where it has template lines."""
    num_parts: int
    runs_url: str
    """Prefix of the runs' urls."""
    cores_url: str


def sign(task: SignTask) -> Summary:
    """Write the runs, and the signatures of cores (document, signature) for the next version to find."""
    ranked = read_ranks(task.ranks_urls, task.first_ranks, task.group.number, task.num_groups)
    templates = {source: read_templates(urls) for source, urls in task.templates_urls.items()}
    examples: dict[str, dict[int, dict[str, Any]]] = {}
    pending: list[np.ndarray] = []
    urls: list[str] = []

    def flush() -> None:
        records = np.concatenate(pending)
        urls.append(f"{task.runs_url}-{len(urls):03d}.bands")
        # The leading bits of a hash are its part: ranges, so that parts in order are the records in order.
        part = (records["hash"] >> np.uint64(40)).astype(np.int64) * task.num_parts >> 24
        write_run(urls[-1], records, part, task.num_parts, ["hash", "place"])
        pending.clear()

    num_permutations = task.near.bands * task.near.rows
    schema = cores_schema(num_permutations)
    with (
        storage.atomic_writer(task.cores_url) as stream,
        pq.ParquetWriter(
            stream, schema, compression="none", use_dictionary=False, write_statistics=["document"]
        ) as cores,
    ):
        for file, start, table in row_groups(task):
            end = start + table.num_rows
            low, high = np.searchsorted(ranked["document"], [start, end])
            own = ranked[low:high]
            rows = own["document"] - start
            num_bytes = table["num_bytes"].to_numpy()[rows]
            values = fixed_bytes(table["signature"], 4 * num_permutations).view("<u4")[rows]
            signed = table["signature"].is_valid().to_numpy()[rows]
            pending.append(_band_records(values, signed, own, num_bytes, task.near))
            if sum(map(len, pending)) >= MAX_RUN_RECORDS:
                flush()
            lines = templates.get(file.source)
            if lines is None or not len(own):
                continue
            text = table["text"].combine_chunks()
            text = text if len(own) == len(text) else text.take(pa.array(rows))
            words, removed = core_words(text, lines["hash"])
            values, signed = minhash.signatures(words, ngram=task.near.ngram, num_permutations=num_permutations)
            pending.append(_band_records(values, signed, own, num_bytes, task.near))
            columns = [own["document"][removed], signature_column(values[removed], signed[removed])]
            cores.write_table(pa.table(columns, schema=schema))
            _add_examples(examples.setdefault(file.source, {}), lines, text)
    if pending:
        flush()
    return {
        "runs": urls,
        "examples": {source: list(found.values()) for source, found in sorted(examples.items())},
        "files": [*urls, task.cores_url],
    }


def row_groups(task: SignTask) -> Iterator[tuple[DocumentsFile, int, pa.Table]]:
    """(file, number of the first document, what is needed of a row group), one after another."""
    for file in task.group.files:
        columns = ["num_bytes", "signature", *(["text"] if file.source in task.templates_urls else [])]
        start = file.first_document
        with open_parquet(file.url) as parquet:
            for number in range(parquet.num_row_groups):
                table = parquet.read_row_group(number, columns=columns, use_threads=False)
                yield file, start, table
                start += table.num_rows


def _band_records(
    values: np.ndarray, signed: np.ndarray, ranked: np.ndarray, num_bytes: np.ndarray, near: NearConfig
) -> np.ndarray:
    """BAND (k,) of the documents `ranked`, as far as they are signed."""
    ranked = ranked[signed]
    hashes = bands.band_hashes(values[signed], bands=near.bands, rows=near.rows)
    records = np.empty(hashes.size, BAND)
    records["hash"] = hashes.ravel()
    records["place"] = np.repeat(places(ranked["rank"], num_bytes[signed]), near.bands)
    records["document"] = np.repeat(ranked["document"], near.bands)
    return records


def _add_examples(found: dict[int, dict[str, Any]], lines: np.ndarray, text: pa.LargeStringArray) -> None:
    """Add the text of the commonest template lines, as far as it is not known and stands in `text`."""
    commonest = lines[np.lexsort((lines["hash"], -lines["count"]))][:NUM_EXAMPLES]
    wanted = commonest[~np.isin(commonest["hash"], list(found))]
    for (value, count), line in zip(wanted.tolist(), find_lines(text, wanted["hash"]), strict=True):
        if line is not None:
            found[value] = {"line": line[:MAX_LINE_CHARS], "count": count}


def cores_schema(num_permutations: int) -> pa.Schema:
    """Signatures of cores, sorted by document: a row for each that has a rank and holds a template line."""
    return pa.schema([("document", pa.int64()), ("signature", pa.binary(4 * num_permutations))])


def read_cores(cores: pq.ParquetFile, start: int, end: int) -> pa.Table:
    """The rows of the documents start..end - 1."""
    tables = [cores.schema_arrow.empty_table()]
    for number in range(cores.num_row_groups):
        bounds = cores.metadata.row_group(number).column(0).statistics
        if bounds is not None and bounds.max >= start and bounds.min < end:
            table = cores.read_row_group(number, use_threads=False)
            low, high = np.searchsorted(table["document"].to_numpy(), [start, end])
            tables.append(table.slice(low, high - low))
    return pa.concat_tables(tables)


@dataclass(frozen=True, kw_only=True)
class RankRanges:
    """Ranks 0..num_ranked - 1 in `num_parts` ranges, equal but for the last."""

    num_ranked: int
    num_parts: int

    @property
    def length(self) -> int:
        """Ranks in a range."""
        return max(1, -(-self.num_ranked // self.num_parts))

    def of(self, rank: np.ndarray) -> np.ndarray:
        """int64 (n,): the range of each rank."""
        return rank // self.length

    def start(self, part: int) -> int:
        """The first rank of a range."""
        return min(self.num_ranked, part * self.length)

    def size(self, part: int) -> int:
        """How many ranks are in a range."""
        return self.start(part + 1) - self.start(part)


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """Make stars of one range of band hashes."""

    run_urls: tuple[str, ...]
    part: int
    num_parts: int
    num_base_ranks: int
    """Documents of the base version have these ranks: two of them are never compared."""
    ranges: RankRanges
    pairs_url: str
    """Prefix."""


def pair(task: PairTask) -> Summary:
    """Write PAIR by range of the member's rank, in as many runs as it takes."""
    pending: list[np.ndarray] = []
    urls: list[str] = []
    num_records = num_pairs = 0

    def flush() -> None:
        nonlocal num_pairs
        pairs = unique_pairs(np.concatenate([np.empty(0, PAIR), *pending]))
        num_pairs += len(pairs)
        urls.append(f"{task.pairs_url}-{len(urls):03d}.pairs")
        part = task.ranges.of(ranks(pairs["member"]))
        write_run(urls[-1], pairs, part, task.ranges.num_parts, ["member", "other"])
        pending.clear()

    bucket = np.empty(0, BAND)
    for records in merge_part(task.run_urls, BAND, task.part, task.num_parts, ["hash", "place"]):
        num_records += len(records)
        pairs, bucket = bands.star_pairs(records, bucket)
        pending.append(pairs[ranks(pairs["member"]) >= task.num_base_ranks])
        if sum(map(len, pending)) >= MAX_PAIRS:
            flush()
    flush()
    return {"num_records": num_records, "num_pairs": num_pairs, "runs": urls, "files": list(urls)}


@dataclass(frozen=True, kw_only=True)
class GatherTask:
    """Collect the pairs of one range of ranks."""

    run_urls: tuple[str, ...]
    part: int
    num_parts: int
    first_documents: tuple[int, ...]
    pairs_url: str
    needs_url: str


def gather(task: GatherTask) -> Summary:
    """Write the range's pairs by lot, and the needs."""
    # Two revisions of a page meet in ten bands, so there may be ten times as many pairs as stay.
    pieces = merge_part(task.run_urls, PAIR, task.part, task.num_parts, ["member", "other"])
    pairs = unique_pairs(np.concatenate([np.empty(0, PAIR), *map(unique_pairs, pieces)]))
    return write_pairs(pairs, task.pairs_url, task.needs_url, task.first_documents)


def write_pairs(pairs: np.ndarray, pairs_url: str, needs_url: str, first_documents: Sequence[int]) -> Summary:
    """Cut pairs into lots of LOT_TEXT_BYTES (a single pair may exceed it); write PAIR by lot, NEED by group."""
    cost = np.cumsum(sizes(pairs["member"]) + sizes(pairs["other"]))
    lots, lot = np.unique(cost // LOT_TEXT_BYTES, return_inverse=True)
    write_run(pairs_url, pairs, lot, max(1, len(lots)), ["member", "other"])
    needs = np.empty(2 * len(pairs), NEED)
    needs["document"] = np.concatenate([pairs["member_document"], pairs["other_document"]])
    needs["lot"] = np.concatenate([lot, lot])
    needs = np.unique(needs)
    groups = group_of(needs["document"], first_documents)
    write_run(needs_url, needs, groups, len(first_documents), ["document", "lot"])
    counts = np.bincount(groups, minlength=len(first_documents))
    return {
        "num_pairs": len(pairs),
        "num_lots": len(lots),
        "needed_groups": np.flatnonzero(counts).tolist(),
        "files": [pairs_url, needs_url],
    }
