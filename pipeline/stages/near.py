"""Near duplicates: what exact deduplication left -> pairs worth measuring -> who goes, by the stages of the search."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from manifests import storage
from pipeline.counted_lines import CountedLines
from pipeline.runtime import Summary
from pipeline.stages import candidates, ranks, templates, uncount
from pipeline.stages.candidates import RankRanges
from pipeline.stages.exact import UniteTask
from pipeline.stages.search import Search, num_parts_for
from pipeline.stages.turns import Turn, settled

PART_RECORDS = 32_000_000
"""Band records of a range of hashes: 768 MB to read, merge and pair; 4,400 ranges for 10**10 documents."""
SETTLE_DOCUMENTS = 8_000_000
"""Ranks of a range that pairs and decisions are cut into: 1,250 ranges for 10**10 documents, each of which reads what
is decided in all others, a MB each.
"""
LINES_PART_BYTES = 512_000_000


@dataclass(frozen=True, kw_only=True)
class Near:
    """What the search for near duplicates left."""

    near_urls: tuple[str, ...] = ()
    cores_urls: tuple[str, ...] = ()
    num_pairs: int = 0
    templates: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)
    """By source: how many template lines, and the commonest of them."""
    templates_urls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By source, where it has some."""


def near_duplicates(
    search: Search,
    united: Sequence[tuple[UniteTask, Summary]],
    lines: Sequence[CountedLines],
    known_url: str | None,
) -> Near:
    """Find them among what exact deduplication left (`united`); `lines` as deduplicate has them, and `known_url` is of
    the base version's template lines.
    """
    if not search.groups:
        return Near()
    ranked = _ranked(search, united)
    templates_urls, num_templates = _templates(search, [*lines, *_uncounted(search, ranked, lines)], known_url)
    signed, cores_urls = _signed(search, ranked, templates_urls)
    ranges = RankRanges(num_ranked=ranked.num_ranked, num_parts=num_parts_for(ranked.num_ranked, SETTLE_DOCUMENTS))
    turn = _pairs(search, ranges, signed)
    near_urls, num_pairs = settled(search, ranges, turn, templates_urls, cores_urls)
    return Near(
        near_urls=near_urls,
        cores_urls=cores_urls,
        num_pairs=num_pairs,
        templates=_described(num_templates, signed),
        templates_urls=templates_urls,
    )


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    """Files of ranks, a range of keys each."""

    urls: tuple[str, ...]
    first_ranks: tuple[int, ...]
    num_ranked: int


def _ranked(search: Search, united: Sequence[tuple[UniteTask, Summary]]) -> _Ranked:
    num_survivors = sum(result["num_survivors"] for _, result in united)
    found = ranks.ranges(
        [(task.survivors_url, result["starts"]) for task, result in united],
        num_parts_for(num_survivors, ranks.RANGE_DOCUMENTS),
    )
    tasks = [
        ranks.RankTask(
            pieces=pieces,
            start=start,
            end=end,
            first_documents=search.first_documents,
            ranks_url=search.url("rank", f"{number:06d}.ranks"),
        )
        for number, (start, end, pieces) in enumerate(found)
    ]
    results = search.stage("rank", ranks.rank, [(f"rank {number}", task) for number, task in enumerate(tasks)])
    ends = list(accumulate(result["num_documents"] for result in results))
    return _Ranked(
        urls=tuple(task.ranks_url for task in tasks),
        first_ranks=(0, *ends[:-1]),
        num_ranked=ends[-1],
    )


def _signed(
    search: Search, ranked: _Ranked, templates_urls: dict[str, tuple[str, ...]]
) -> tuple[list[Summary], tuple[str, ...]]:
    """(results of `sign`, urls of the signatures of cores), an entry a group."""
    near = search.config.near
    tasks = [
        candidates.SignTask(
            group=group,
            near=near,
            ranks_urls=ranked.urls,
            first_ranks=ranked.first_ranks,
            num_groups=len(search.groups),
            templates_urls=templates.of_sources(templates_urls, group),
            num_parts=num_parts_for(ranked.num_ranked * near.bands, PART_RECORDS),
            runs_url=search.url("sign", f"{group.number:06d}"),
            cores_url=search.url("sign", f"{group.number:06d}.cores.parquet"),
        )
        for group in search.groups
    ]
    results = search.stage("sign", candidates.sign, [(f"sign {task.group.number}", task) for task in tasks])
    return results, tuple(task.cores_url for task in tasks)


def _pairs(search: Search, ranges: RankRanges, signed: Sequence[Summary]) -> Turn:
    """Every pair that meets in a band, once."""
    num_parts = num_parts_for(ranges.num_ranked * search.config.near.bands, PART_RECORDS)
    num_base = sum(file.num_documents for group in search.groups if group.is_base for file in group.files)
    pair_tasks = [
        candidates.PairTask(
            run_urls=tuple(url for result in signed for url in result["runs"]),
            part=part,
            num_parts=num_parts,
            num_base_ranks=num_base,
            ranges=ranges,
            pairs_url=search.url("pair", f"{part:06d}"),
        )
        for part in range(num_parts)
    ]
    paired = search.stage("pair", candidates.pair, [(f"pair {task.part}", task) for task in pair_tasks])
    gather_tasks = [
        candidates.GatherTask(
            run_urls=tuple(url for result in paired for url in result["runs"]),
            part=part,
            num_parts=ranges.num_parts,
            first_documents=search.first_documents,
            pairs_url=search.url("gather", f"0-{part:06d}.pairs"),
            needs_url=search.url("gather", f"0-{part:06d}.needs"),
        )
        for part in range(ranges.num_parts)
    ]
    return Turn(
        [task.pairs_url for task in gather_tasks],
        [task.needs_url for task in gather_tasks],
        search.stage("gather", candidates.gather, [(f"gather {task.part}", task) for task in gather_tasks]),
    )


def _uncounted(search: Search, ranked: _Ranked, lines: Sequence[CountedLines]) -> list[CountedLines]:
    """What exact duplicates have added to `lines`: a page that 150 documents copy is no form."""
    if not search.config.exact or not search.config.near.templates.enabled:
        return []
    tasks = [
        uncount.UncountTask(
            group=group,
            ranks_urls=ranked.urls,
            first_ranks=ranked.first_ranks,
            num_groups=len(search.groups),
            levels={counted.source: counted.level for counted in lines},
            lines_url=search.url("templates", f"{group.number:06d}"),
        )
        for group in search.groups
        if not group.is_base
    ]
    results = search.stage("templates", uncount.uncount, [(f"uncount {task.group.number}", task) for task in tasks])
    return [CountedLines(**counted) for result in results for counted in result["counted"]]


def _templates(
    search: Search, lines: Sequence[CountedLines], known_url: str | None
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """Urls of the template lines of each source that has some, and how many it has."""
    limits = search.config.near.templates
    tasks: list[tuple[str, templates.TemplatesTask]] = []
    sources = sorted({counted.source for counted in lines}) if limits.enabled else []
    for source in sources:
        urls = tuple(counted.url for counted in lines if counted.source == source)
        num_counted = sum(counted.num_documents for counted in lines if counted.source == source)
        num_parts = num_parts_for(sum(storage.stat(url).num_bytes for url in urls), LINES_PART_BYTES)
        for part in range(num_parts):
            task = templates.TemplatesTask(
                lines_urls=urls,
                part=part,
                num_parts=num_parts,
                min_count=max(limits.min_documents, -int(-limits.fraction * num_counted // 1)),
                templates_url=search.url("templates", f"{source}-{part:06d}.lines"),
            )
            tasks.append((source, task))
    results = search.stage(
        "templates", templates.find_templates, [(f"{source}, part {task.part}", task) for source, task in tasks]
    )
    own_urls: dict[str, tuple[str, ...]] = {}
    for (source, task), result in zip(tasks, results, strict=True):
        if result["num_templates"]:
            own_urls[source] = (*own_urls.get(source, ()), task.templates_url)
    joins = [
        templates.JoinTask(
            source=source,
            own_urls=own_urls.get(source, ()),
            known_url=known_url,
            templates_url=search.url("templates", f"{source}.lines"),
        )
        for source in sources
        if source in own_urls or known_url is not None
    ]
    joined = search.stage("templates", templates.join_templates, [(f"join {task.source}", task) for task in joins])
    found = [(task, result["num_templates"]) for task, result in zip(joins, joined, strict=True)]
    return (
        {task.source: (task.templates_url,) for task, num_templates in found if num_templates},
        {task.source: num_templates for task, num_templates in found if num_templates},
    )


def _described(num_templates: dict[str, int], signed: Sequence[Summary]) -> dict[str, tuple[int, list[dict[str, Any]]]]:
    described = {}
    for source, number in sorted(num_templates.items()):
        lines = {row["line"]: row for result in signed for row in result["examples"].get(source, ())}
        commonest = sorted(lines.values(), key=lambda row: (-row["count"], row["line"]))[: candidates.NUM_EXAMPLES]
        described[source] = (number, commonest)
    return described
