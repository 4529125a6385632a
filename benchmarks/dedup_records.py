"""Millions of documents' band records through the real stages: how long, how much memory a task, how many bytes.

No text: signatures are drawn at random, a tenth of them as revisions of an earlier one, and the pairs that meet
are given a similarity instead of being measured. Ranks are a permutation of the documents, so that most edges lead from
one range of ranks to another. Each task runs in a process of its own, so that its peak memory is its own.
"""

import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from manifests import storage
from pipeline.dedup import bands
from pipeline.dedup.records import BAND, EDGE, PAIR, places, ranks, sizes
from pipeline.runtime import Summary
from pipeline.shuffle import read_part, write_run
from pipeline.stages import candidates, settle
from pipeline.stages.candidates import RankRanges
from pipeline.stages.near import PART_RECORDS, SETTLE_DOCUMENTS

BANDS, ROWS = 14, 8
GROUP = 500_000
"""Documents of a task that writes band records."""
TEXT_BYTES = 2_500
RANK_STEP = 1_299_709_843
"""A prime above any number of documents tried: times it, modulo their number, is a permutation far from the order."""
REVISED_FRACTION = 0.1
KEPT_ENTRIES = 0.85
"""Share of a signature's entries that a revision keeps: 99 % of such pairs meet in a band."""


@dataclass
class Stages:
    """What each stage took."""

    rows: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def run(self, stage: str, function: Callable[..., Summary], *arguments: Any) -> Summary:
        """One task in a child process; its summary."""
        receive, send = os.pipe()
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(receive)
            code = 1
            try:
                summary = function(*arguments)
                usage = resource.getrusage(resource.RUSAGE_SELF)
                moved = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
                told = {
                    "summary": summary,
                    "cpu": usage.ru_utime + usage.ru_stime,
                    "peak": usage.ru_maxrss * 1024,
                    "read": int(moved["rchar"]),
                    "written": int(moved["wchar"]),
                }
                with os.fdopen(send, "w") as pipe:
                    pipe.write(repr(told))
                code = 0
            finally:
                os._exit(code)
        os.close(send)
        with os.fdopen(receive) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        assert status == 0, f"a task of {stage} failed"
        told = eval(text, {"__builtins__": {}})  # our own child's repr of numbers, strings, lists and dicts
        row = self.rows[stage]
        row["tasks"] += 1
        row["wall_s"] += time.monotonic() - start
        row["cpu_s"] += told["cpu"]
        row["peak_bytes"] = max(row["peak_bytes"], told["peak"])
        row["read_bytes"] += told["read"]
        row["written_bytes"] += told["written"]
        result: Summary = told["summary"]
        return result


def sign(group: int, num_documents: int, num_all: int, num_parts: int, url: str) -> Summary:
    """Band records of one group of random signatures."""
    generator = np.random.default_rng([7, group])
    signatures = generator.integers(0, 2**32, (num_documents, BANDS * ROWS), dtype=np.uint32)
    revised = np.flatnonzero(generator.random(num_documents) < REVISED_FRACTION)[1:]
    original = (generator.random(len(revised)) * revised).astype(np.int64)
    keeps = generator.random((len(revised), BANDS * ROWS)) < KEPT_ENTRIES
    signatures[revised] = np.where(keeps, signatures[original], signatures[revised])
    hashes = bands.band_hashes(signatures, bands=BANDS, rows=ROWS)
    del signatures, keeps
    records = np.empty(hashes.size, BAND)
    document = group * GROUP + np.arange(num_documents)
    records["hash"] = hashes.ravel()
    rank = document * RANK_STEP % num_all
    records["place"] = np.repeat(places(rank, np.full(num_documents, TEXT_BYTES)), BANDS)
    records["document"] = np.repeat(document, BANDS)
    part = (records["hash"] >> np.uint64(40)).astype(np.int64) * num_parts >> 24
    write_run(url, records, part, num_parts, ["hash", "place"])
    return {"files": [url]}


def alike(pairs_url: str, num_lots: int, url: str) -> Summary:
    """Every pair as an edge: what verification would leave."""
    pairs = np.concatenate(
        [read_part([pairs_url], PAIR, lot, max(1, num_lots), ["member", "other"]) for lot in range(max(1, num_lots))]
    )
    edges = np.empty(len(pairs), EDGE)
    for side in ("member", "other"):
        edges[side], edges[f"{side}_size"] = ranks(pairs[side]), sizes(pairs[side])
        edges[f"{side}_document"] = pairs[f"{side}_document"]
    edges["similarity"] = 0.9
    storage.write_bytes(url, edges.tobytes())
    return {"files": [url]}


def measure(num_documents: int, folder: Path) -> dict[str, Any]:
    """Run it; rows by stage, and totals."""
    stages = Stages()
    num_parts = max(1, -(-num_documents * BANDS // PART_RECORDS))
    groups = [min(GROUP, num_documents - start) for start in range(0, num_documents, GROUP)]
    first_documents = tuple(range(0, num_documents, GROUP))
    runs = [str(folder / f"{group}.bands") for group in range(len(groups))]
    for group, size in enumerate(groups):
        stages.run("band records", sign, group, size, num_documents, num_parts, runs[group])
    ranges = RankRanges(num_ranked=num_documents, num_parts=max(1, -(-num_documents // SETTLE_DOCUMENTS)))
    pair_urls: list[str] = []
    num_pairs = 0
    for part in range(num_parts):
        task = candidates.PairTask(
            run_urls=tuple(runs),
            part=part,
            num_parts=num_parts,
            num_base_ranks=0,
            ranges=ranges,
            pairs_url=str(folder / f"pair-{part}"),
        )
        pair_urls += stages.run("pair", candidates.pair, task)["runs"]
    edges_urls, lots = [], []
    for part in range(ranges.num_parts):
        gather = candidates.GatherTask(
            run_urls=tuple(pair_urls),
            part=part,
            num_parts=ranges.num_parts,
            first_documents=first_documents,
            pairs_url=str(folder / f"gather-{part}.pairs"),
            needs_url=str(folder / f"gather-{part}.needs"),
        )
        found = stages.run("gather", candidates.gather, gather)
        num_pairs += found["num_pairs"]
        lots.append(found["num_lots"])
        edges_urls.append(str(folder / f"{part}.edges"))
        stages.run("(edges, in place of verify)", alike, gather.pairs_url, found["num_lots"], edges_urls[-1])
    known: list[str | None] = [None] * ranges.num_parts
    open_parts, rounds = list(range(ranges.num_parts)), 0
    while open_parts:
        undecided, before = [], tuple(known)
        for part in open_parts:
            status_url = str(folder / f"{rounds}-{part}.status")
            settle_task = settle.SettleTask(
                ranges=ranges, part=part, edges_urls=(edges_urls[part],), known_urls=before, status_url=status_url
            )
            if stages.run("settle", settle.settle, settle_task)["num_undecided"]:
                undecided.append(part)
            known[part] = status_url
        open_parts, rounds = undecided, rounds + 1
    num_dropped = 0
    for part in range(ranges.num_parts):
        choose = settle.ChooseTask(
            ranges=ranges,
            part=part,
            edges_urls=(edges_urls[part],),
            status_urls=tuple(known),
            first_documents=first_documents,
            chosen_url=str(folder / f"{part}.chosen"),
            near_url=str(folder / f"{part}.near"),
        )
        num_dropped += stages.run("choose", settle.choose, choose)["num_dropped"]
    return {
        "num_documents": num_documents,
        "num_band_records": num_documents * BANDS,
        "num_parts": num_parts,
        "num_rank_ranges": ranges.num_parts,
        "num_pairs": num_pairs,
        "settle_rounds": rounds,
        "num_dropped": num_dropped,
        "stages": {name: dict(row) for name, row in stages.rows.items()},
    }


def in_words(found: dict[str, Any]) -> str:
    """A table."""
    lines = [
        f"{found['num_documents']:,} documents, {found['num_band_records']:,} band records in {found['num_parts']}"
        f" ranges; {found['num_pairs']:,} pairs; {found['num_dropped']:,} dropped, settled in"
        f" {found['settle_rounds']} rounds over {found['num_rank_ranges']} ranges of ranks",
        "",
        "| stage | tasks | wall s | CPU s | peak MB a task | MB read | MB written |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in found["stages"].items():
        lines.append(
            f"| {name} | {row['tasks']:.0f} | {row['wall_s']:.1f} | {row['cpu_s']:.1f} |"
            f" {row['peak_bytes'] / 1e6:,.0f} | {row['read_bytes'] / 1e6:,.0f} | {row['written_bytes'] / 1e6:,.0f} |"
        )
    rows = found["stages"].values()
    lines.append(
        f"| all | {sum(row['tasks'] for row in rows):.0f} | {sum(row['wall_s'] for row in rows):.1f} |"
        f" {sum(row['cpu_s'] for row in rows):.1f} | {max(row['peak_bytes'] for row in rows) / 1e6:,.0f} |"
        f" {sum(row['read_bytes'] for row in rows) / 1e6:,.0f} |"
        f" {sum(row['written_bytes'] for row in rows) / 1e6:,.0f} |"
    )
    return "\n".join(lines)
