"""Pairs -> who goes: measure, decide, and measure what the decision proposes, until nothing is proposed."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.runtime import BuildError, Summary
from pipeline.stages import settle, similar, templates
from pipeline.stages.candidates import RankRanges
from pipeline.stages.search import Search

MAX_TURNS = 20
"""A turn settles every chain one link further; real text needs two or three."""

FILES_PER_LOT = 64
"""A task measures one lot for each so many files it reads from, and asks each file once for all of them: a lot of 64 MB
is then about 1 MB of a read, whatever the size of the corpus.
"""
MAX_LOTS = 128
"""Of a task: what waits on the local disk is up to 8 GB then."""


@dataclass
class Turn:
    """Pairs of one turn, a file a range of ranks."""

    pairs_urls: list[str]
    needs_urls: list[str]
    results: list[Summary]


def settled(
    search: Search,
    ranges: RankRanges,
    turn: Turn,
    templates_urls: dict[str, tuple[str, ...]],
    cores_urls: Sequence[str],
) -> tuple[tuple[str, ...], int]:
    """Measure, decide, and measure what is proposed, until nothing is: (urls of what goes, pairs measured)."""
    parts = range(ranges.num_parts)
    edges_urls: list[tuple[str, ...]] = [() for _ in parts]
    compared: list[tuple[tuple[str, int], ...]] = [() for _ in parts]
    num_pairs = 0
    for number in range(MAX_TURNS):
        num_pairs += sum(result["num_pairs"] for result in turn.results)
        for part, urls in enumerate(_verify(search, number, turn, templates_urls, cores_urls)):
            edges_urls[part] += urls
        for part in parts:
            compared[part] += ((turn.pairs_urls[part], turn.results[part]["num_lots"]),)
        status_urls = _statuses(search, number, ranges, edges_urls)
        choose = [
            settle.ChooseTask(
                ranges=ranges,
                part=part,
                edges_urls=edges_urls[part],
                status_urls=status_urls,
                first_documents=search.first_documents,
                chosen_url=search.url("settle", f"{number}-{part:06d}.chosen"),
                near_url=search.url("settle", f"{number}-{part:06d}.near"),
            )
            for part in parts
        ]
        search.stage("settle", settle.choose, [(f"choose {number} {task.part}", task) for task in choose])
        propose = [
            settle.ProposeTask(
                ranges=ranges,
                part=part,
                edges_urls=edges_urls[part],
                status_urls=status_urls,
                chosen_urls=tuple(task.chosen_url for task in choose),
                compared=compared[part],
                first_documents=search.first_documents,
                pairs_url=search.url("settle", f"{number}-{part:06d}.pairs"),
                needs_url=search.url("settle", f"{number}-{part:06d}.needs"),
            )
            for part in parts
        ]
        turn = Turn(
            [task.pairs_url for task in propose],
            [task.needs_url for task in propose],
            search.stage("settle", settle.propose, [(f"propose {number} {task.part}", task) for task in propose]),
        )
        if not any(result["num_pairs"] for result in turn.results):
            return tuple(task.near_url for task in choose), num_pairs
    raise BuildError(
        f"deduplicate: {sum(result['num_pairs'] for result in turn.results):,} pairs are still open after"
        f" {MAX_TURNS} turns: raise dedup.near.threshold, or look for what chains the documents of a source"
    )


def _verify(
    search: Search,
    number: int,
    turn: Turn,
    templates_urls: dict[str, tuple[str, ...]],
    cores_urls: Sequence[str],
) -> list[tuple[str, ...]]:
    """Measure a turn's pairs: urls of the edges of each range of ranks."""
    first_lots, num_lots = [], 0
    for result in turn.results:
        first_lots.append(num_lots)
        num_lots += result["num_lots"]
    asking = [part for part, result in enumerate(turn.results) if result["num_lots"]]
    needed = sorted({group for result in turn.results for group in result["needed_groups"]})
    shipped_prefix = search.url("verify", f"{number}-")
    ship = [
        similar.ShipTask(
            group=search.groups[group],
            near=search.config.near,
            needs_urls=tuple(turn.needs_urls[part] for part in asking),
            first_lots=tuple(first_lots[part] for part in asking),
            num_groups=len(search.groups),
            num_lots=num_lots,
            templates_urls=templates.of_sources(templates_urls, search.groups[group]),
            cores_url=cores_urls[group],
            has_base=any(group.is_base for group in search.groups),
            run_url=similar.shipped_url(shipped_prefix, place),
        )
        for place, group in enumerate(needed)
    ]
    search.stage("verify", similar.ship, [(f"ship {number} {task.group.number}", task) for task in ship])
    lots_a_task = min(MAX_LOTS, -(-len(ship) // FILES_PER_LOT))
    verify = [
        (
            part,
            similar.VerifyTask(
                near=search.config.near,
                pairs_url=turn.pairs_urls[part],
                first_lot=lot,
                end_lot=min(lot + lots_a_task, turn.results[part]["num_lots"]),
                num_lots=turn.results[part]["num_lots"],
                first_shipped=first_lots[part] + lot,
                shipped_prefix=shipped_prefix,
                num_shipped=len(ship),
                edges_url=search.url("verify", f"{number}-{part:06d}-{lot:06d}.edges"),
            ),
        )
        for part in asking
        for lot in range(0, turn.results[part]["num_lots"], lots_a_task)
    ]
    search.stage(
        "verify", similar.verify_pairs, [(f"verify {number} {part} {task.first_lot}", task) for part, task in verify]
    )
    urls: list[tuple[str, ...]] = [() for _ in turn.results]
    for part, task in verify:
        urls[part] += (task.edges_url,)
    return urls


def _statuses(
    search: Search, number: int, ranges: RankRanges, edges_urls: Sequence[tuple[str, ...]]
) -> tuple[str | None, ...]:
    """Decide all documents: rounds over the ranges that have undecided ones, until there is none."""
    known: list[str | None] = [None] * ranges.num_parts
    open_parts = list(range(ranges.num_parts))
    for turn in range(ranges.num_parts + 1):
        tasks = [
            settle.SettleTask(
                ranges=ranges,
                part=part,
                edges_urls=edges_urls[part],
                known_urls=tuple(known),
                status_url=search.url("settle", f"{number}-{turn}-{part:06d}.status"),
            )
            for part in open_parts
        ]
        results = search.stage(
            "settle", settle.settle, [(f"settle {number} {turn} {task.part}", task) for task in tasks]
        )
        for task in tasks:
            known[task.part] = task.status_url
        open_parts = [task.part for task, result in zip(tasks, results, strict=True) if result["num_undecided"]]
        if not open_parts:
            return tuple(known)
    # Each round settles at least the first range that is open, so this is a defect of ours, or of the storage.
    raise BuildError(f"deduplicate: ranges {open_parts[:5]} of ranks have undecided documents after every round")
