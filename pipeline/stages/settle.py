"""Edges -> who goes for whom, by ranges of ranks, in rounds.

1. settle    a unit is a range of ranks: decide its documents as far as the statuses of other ranges allow. All ranges
             run at once, and again until none has an undecided document: that is the convergence check.
2. choose    a unit is a range: of each document that goes, the document it goes for
3. propose   a unit is a range: pairs that have to be compared before this is final

No task holds more than the edges of its range, and the statuses (a byte a rank) of a few other ranges at a time. Stored
they are a sixth of that: each task of a round reads those of all ranges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import zstandard

from manifests import storage
from pipeline.dedup import components
from pipeline.dedup.components import DROPPED, KEPT, UNDECIDED
from pipeline.dedup.records import EDGE, PAIR, unique_pairs, without
from pipeline.reads import ByteRange, read_many
from pipeline.runtime import Summary
from pipeline.shuffle import read_part, write_run
from pipeline.stages.candidates import RankRanges, write_pairs
from pipeline.stages.exact import group_of
from pipeline.stages.similar import read_edges

NEAR = np.dtype([("document", "<i8"), ("keeper", "<i8"), ("similarity", "<f8")])
"""A near duplicate and the document that stays for it."""


def statuses(ranks: np.ndarray, ranges: RankRanges, urls: Sequence[str | None]) -> np.ndarray:
    """uint8 (n,): what the files say of each rank; UNDECIDED where a range has none yet."""
    found = np.full(len(ranks), UNDECIDED, np.uint8)
    part_of = ranges.of(ranks)
    wanted = [(part, url) for part in np.unique(part_of).tolist() if (url := urls[part]) is not None]
    for (part, _), data in zip(wanted, read_many([ByteRange(url, 0, None) for _, url in wanted]), strict=True):
        inside = part_of == part
        of_part = np.frombuffer(zstandard.decompress(data), np.uint8)
        found[inside] = of_part[ranks[inside] - ranges.start(part)]
    return found


@dataclass(frozen=True, kw_only=True)
class SettleTask:
    """Decide one range."""

    ranges: RankRanges
    part: int
    edges_urls: tuple[str, ...]
    known_urls: tuple[str | None, ...]
    """Of every range: its statuses by the round before."""
    status_url: str


def settle(task: SettleTask) -> Summary:
    """Write a status a rank."""
    edges = read_edges(task.edges_urls)
    first = task.ranges.start(task.part)
    outside = np.full(len(edges), UNDECIDED, np.uint8)
    elsewhere = edges["other"] < first
    outside[elsewhere] = statuses(edges["other"][elsewhere], task.ranges, task.known_urls)
    status = components.settle(edges, outside, first, task.ranges.size(task.part))
    storage.write_bytes(task.status_url, zstandard.compress(status.tobytes(), 1))
    return {"num_undecided": int(np.count_nonzero(status == UNDECIDED)), "files": [task.status_url]}


@dataclass(frozen=True, kw_only=True)
class ChooseTask:
    """Name the keepers of one range's documents."""

    ranges: RankRanges
    part: int
    edges_urls: tuple[str, ...]
    status_urls: tuple[str | None, ...]
    first_documents: tuple[int, ...]
    chosen_url: str
    """EDGE, sorted by member."""
    near_url: str
    """NEAR, by group of the document."""


def choose(task: ChooseTask) -> Summary:
    """Write the edge each dropped document goes by."""
    edges = read_edges(task.edges_urls)
    chosen = components.chosen(edges, statuses(edges["other"], task.ranges, task.status_urls))
    storage.write_bytes(task.chosen_url, chosen.tobytes())
    near = np.empty(len(chosen), NEAR)
    near["document"], near["keeper"] = chosen["member_document"], chosen["other_document"]
    near["similarity"] = chosen["similarity"]
    groups = group_of(near["document"], task.first_documents)
    write_run(task.near_url, near, groups, len(task.first_documents), ["document"])
    return {"num_dropped": len(chosen), "files": [task.chosen_url, task.near_url]}


@dataclass(frozen=True, kw_only=True)
class ProposeTask:
    """Find what one range has to compare yet."""

    ranges: RankRanges
    part: int
    edges_urls: tuple[str, ...]
    status_urls: tuple[str | None, ...]
    chosen_urls: tuple[str, ...]
    """Of every range."""
    compared: tuple[tuple[str, int], ...]
    """(pairs url, number of lots) of every turn so far."""
    first_documents: tuple[int, ...]
    pairs_url: str
    needs_url: str


def propose(task: ProposeTask) -> Summary:
    """Write new pairs as candidates.gather does."""
    edges = read_edges(task.edges_urls)
    member = statuses(edges["member"], task.ranges, task.status_urls)
    other = statuses(edges["other"], task.ranges, task.status_urls)
    loose = (member == KEPT) & (other == DROPPED)
    edges, member = edges[loose], member[loose]
    proposed = [np.empty(0, PAIR)]
    part_of = task.ranges.of(edges["other"])
    parts = np.unique(part_of).tolist()
    for part, data in zip(
        parts, read_many([ByteRange(task.chosen_urls[part], 0, None) for part in parts]), strict=True
    ):
        inside = part_of == part
        proposed.append(components.proposals(edges[inside], member[inside], np.frombuffer(data, EDGE)))
    pairs = unique_pairs(np.concatenate(proposed))
    for url, num_lots in task.compared:
        for lot in range(max(1, num_lots)):
            if len(pairs):
                pairs = without(pairs, read_part([url], PAIR, lot, max(1, num_lots), ["member", "other"]))
    return write_pairs(pairs, task.pairs_url, task.needs_url, task.first_documents)
