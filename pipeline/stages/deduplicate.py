"""Which documents go because another one stands for them: the order of the stages that decide it.

    exact.py       spread -> unite            of equal texts the most preferred stays
    ranks.py       rank                       each document's place in the order of preference
    templates.py   find_templates             lines that many documents of a source share
    candidates.py  sign -> pair -> gather     documents that share a band, each with its bucket's most preferred
    similar.py     ship -> verify             the Jaccard similarity of every pair
    settle.py      settle -> choose -> propose   who goes for whom; what has to be compared yet goes back to `ship`
    outcome.py     follow -> name -> tell     what went, for what, by which likeness
    signatures.py  write_signatures           what the next version compares with

Every arrow goes through storage (pipeline/shuffle.py): a unit of a stage reads its range of what all units of the stage
before wrote. No unit sees all documents, all signatures or all edges; how many units there are follows from counts, and
decides no byte of the result. A small corpus is one unit a stage.

Documents are numbered from 0 through all read units in their order, the base version's after them.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifests import storage
from manifests.canonical import fingerprint
from manifests.manifest import Dataset
from pipeline.config import DedupConfig
from pipeline.documents import DocumentsFile
from pipeline.runtime import BuildError, Runtime, Summary, Unit, short
from pipeline.stages import candidates, exact, outcome, ranks, settle, signatures, similar, templates
from pipeline.stages.candidates import RankRanges
from pipeline.stages.outcome import kept_rows

__all__ = ["DocumentsFile", "Dropped", "deduplicate", "kept_rows"]

FORMAT = 2
PART_RECORDS = 32_000_000
"""Band records of a range of hashes: 768 MB to read, merge and pair; 4,400 ranges for 10**10 documents."""
SAME_PART_DOCUMENTS = 2_000_000
"""Documents of a range of content hashes: 200 MB."""
LINES_PART_BYTES = 512_000_000
MAX_PARTS = 1 << 14
"""A range of bands or content hashes is told by 16 leading bits or more."""

LOST_FRACTION = 0.5
"""A source that lost more of its documents as duplicates is named on the terminal and at the top of the report."""
HUGE_FRACTION = 0.01
MIN_HUGE = 1_000
"""A cluster of so many documents, and of this share of all of them, is named on the terminal."""

MAX_ROUNDS = 20
"""A round settles every chain one link further; real text needs two or three."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """The outcome of deduplication."""

    key: str
    url: str
    """Folder of outcome.DROPPED_SCHEMA tables, one a group of files: `kept_rows` reads them."""
    counts: tuple[tuple[str, str, int, int], ...]
    """(source, "exact" or "near", num_documents, num_bytes)."""
    num_pairs: int
    """Candidate pairs measured."""
    clusters: tuple[dict[str, Any], ...] = ()
    """The largest: source and id of the keeper, num_exact and num_near that went for it."""
    templates: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)
    """By source: how many template lines, and the commonest with the number of documents each was counted in."""

    def warnings(self, num_documents: dict[str, int]) -> list[str]:
        """What a person should look at before trusting the result. `num_documents` by source: what reading kept."""
        lines = []
        for source, before in sorted(num_documents.items()):
            lost = sum(n for of_source, _, n, _ in self.counts if of_source == source)
            if before and lost / before > LOST_FRACTION:
                lines.append(
                    f"warning: source {source} lost {lost:,} of {before:,} documents as duplicates: look at"
                    " `python -m pipeline duplicates`"
                )
        for cluster in self.clusters:
            size = cluster["num_exact"] + cluster["num_near"]
            if size >= max(MIN_HUGE, HUGE_FRACTION * sum(num_documents.values())):
                lines.append(
                    f"warning: {size:,} documents ({cluster['num_near']:,} of them near duplicates) went for one,"
                    f" {cluster['id']} of source {cluster['source']}"
                )
        return lines

    def in_words(self) -> str:
        """One line for the person who waits."""
        num = {kind: sum(n for _, k, n, _ in self.counts if k == kind) for kind in ("exact", "near")}
        return (
            f"found {num['exact']:,} exact and {num['near']:,} near duplicates"
            f" ({self.num_pairs:,} candidate pairs measured)"
        )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One deduplication: names its files and units, and runs stages."""

    runtime: Runtime
    build_url: str
    key: str

    def url(self, stage: str, name: str) -> str:
        return storage.join(self.build_url, stage, f"{short(self.key)}-{name}")

    def stage(self, stage: str, function: Callable[[Any], Summary], tasks: Sequence[tuple[str, Any]]) -> list[Summary]:
        """`tasks` are (name, task)."""
        units = [Unit(key=fingerprint([self.key, stage, name]), label=name, task=task) for name, task in tasks]
        return self.runtime.run(stage, function, units)


def deduplicate(
    runtime: Runtime,
    root: str,
    version: str,
    files: Sequence[DocumentsFile],
    lines: Sequence[tuple[str, str, int]],
    config: DedupConfig,
    base: Dataset | None = None,
) -> Dropped:
    """Find all duplicates among what was read and kept, and of what the base version holds.

    Args:
        runtime: runs the units.
        root: the data set's.
        version: names `<root>/duplicates/<version>` and `<root>/signatures/<version>`, which are written.
        files: what reading kept, with groups (documents.in_groups).
        lines: (source, url, number of documents) of every file of counted lines.
        config: what is removed.
        base: the version that this one continues.
    """
    folder = storage.join(root, "duplicates", version)
    num_documents = sum(file.num_documents for file in files)
    num_groups = 1 + max((file.group for file in files), default=-1)
    old = signatures.base_files(base, config.near, num_documents, num_groups) if base is not None else ()
    groups = [
        exact.Group(number=number, files=tuple(file for file in files if file.group == number), is_base=False)
        for number in range(num_groups)
    ] + [exact.Group(number=file.group, files=(file,), is_base=True) for file in old]
    inputs = [[file.key, file.source, file.priority, file.group] for file in [*files, *old]]
    settings = [version, dataclasses.asdict(config), inputs, [list(counted) for counted in lines]]
    run = _Run(
        runtime=runtime,
        build_url=storage.join(root, ".build"),
        key=fingerprint(["deduplicate", FORMAT, *settings]),
    )
    if not num_documents:
        groups = groups[:num_groups]
    first_documents = tuple(group.first_document for group in groups)
    num_all = num_documents + sum(file.num_documents for file in old)

    united = _exact(run, groups, first_documents, num_all, config)
    near = _near(run, groups, first_documents, united, lines, config) if config.near.enabled else _Near()
    counts, clusters = _outcome(run, groups, first_documents, united, near, folder)
    run.stage(
        "signatures",
        signatures.write_signatures,
        [
            (
                f"signatures {group.number}",
                signatures.SignaturesTask(
                    group=group,
                    dropped_folder=folder,
                    cores_url=near.cores_urls[group.number] if near.cores_urls else None,
                    num_permutations=config.near.bands * config.near.rows,
                    signatures_url=signatures.signatures_url(root, version, group.number),
                ),
            )
            for group in groups
            if not group.is_base
        ],
    )
    outcome.write_files(folder, files)
    for kind in ("duplicates", "signatures"):
        _remove_others(storage.join(root, kind, version), num_groups)
    return Dropped(
        key=run.key,
        url=folder,
        counts=counts,
        num_pairs=near.num_pairs,
        clusters=clusters,
        templates=near.templates,
    )


def _remove_others(folder: str, num_groups: int) -> None:
    """An earlier, unfinished run of the version may have had more groups."""
    wanted = {outcome.dropped_url(folder, number) for number in range(num_groups)}
    wanted.add(storage.join(folder, outcome.FILES))
    try:
        found = storage.list_objects(folder)
    except FileNotFoundError:
        return
    for info in found:
        if info.url not in wanted:
            storage.delete(info.url)


def _parts_for(num_records: int, part_records: int) -> int:
    return min(MAX_PARTS, max(1, -(-num_records // part_records)))


def _exact(
    run: _Run, groups: Sequence[exact.Group], first_documents: tuple[int, ...], num_all: int, config: DedupConfig
) -> list[tuple[exact.UniteTask, Summary]]:
    num_parts = _parts_for(num_all, SAME_PART_DOCUMENTS)
    spread = [
        exact.SpreadTask(
            group=group,
            longest_first=config.keep == "longest",
            num_parts=num_parts,
            run_url=run.url("exact", f"spread-{group.number:06d}.arrow"),
        )
        for group in groups
    ]
    run.stage("exact", exact.spread, [(f"spread {task.group.number}", task) for task in spread])
    unite = [
        exact.UniteTask(
            run_urls=tuple(task.run_url for task in spread),
            part=part,
            remove=config.exact,
            first_documents=first_documents,
            same_url=run.url("exact", f"{part:06d}.same"),
            survivors_url=run.url("exact", f"{part:06d}.arrow"),
        )
        for part in range(num_parts if spread else 0)
    ]
    results = run.stage("exact", exact.unite, [(f"unite {task.part}", task) for task in unite])
    return list(zip(unite, results, strict=True))


@dataclass(frozen=True, kw_only=True)
class _Near:
    """What the search for near duplicates left."""

    near_urls: tuple[str, ...] = ()
    cores_urls: tuple[str, ...] = ()
    num_pairs: int = 0
    templates: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)


@dataclass
class _Turn:
    """Pairs of one turn, a file a range of ranks."""

    pairs_urls: list[str]
    needs_urls: list[str]
    results: list[Summary]


def _near(
    run: _Run,
    groups: Sequence[exact.Group],
    first_documents: tuple[int, ...],
    united: Sequence[tuple[exact.UniteTask, Summary]],
    lines: Sequence[tuple[str, str, int]],
    config: DedupConfig,
) -> _Near:
    near, num_groups = config.near, len(groups)
    if not groups:
        return _Near()
    num_survivors = sum(result["num_survivors"] for _, result in united)
    found = ranks.ranges(
        [(task.survivors_url, result["starts"]) for task, result in united],
        _parts_for(num_survivors, ranks.RANGE_DOCUMENTS),
    )
    rank_tasks = [
        ranks.RankTask(
            pieces=pieces,
            start=start,
            end=end,
            first_documents=first_documents,
            ranks_url=run.url("rank", f"{number:06d}.ranks"),
        )
        for number, (start, end, pieces) in enumerate(found)
    ]
    ranked = run.stage("rank", ranks.rank, [(f"rank {number}", task) for number, task in enumerate(rank_tasks)])
    first_ranks, num_ranked = [], 0
    for result in ranked:
        first_ranks.append(num_ranked)
        num_ranked += result["num_documents"]

    templates_urls, num_templates = _templates(run, lines, config)
    num_parts = _parts_for(num_ranked * near.bands, PART_RECORDS)
    sign_tasks = [
        candidates.SignTask(
            group=group,
            near=near,
            ranks_urls=tuple(task.ranks_url for task in rank_tasks),
            first_ranks=tuple(first_ranks),
            num_groups=num_groups,
            templates_urls=_of_sources(templates_urls, group),
            num_parts=num_parts,
            runs_url=run.url("sign", f"{group.number:06d}"),
            cores_url=run.url("sign", f"{group.number:06d}.cores.parquet"),
        )
        for group in groups
    ]
    signed = run.stage("sign", candidates.sign, [(f"sign {task.group.number}", task) for task in sign_tasks])
    cores_urls = tuple(task.cores_url for task in sign_tasks)

    ranges = RankRanges(num_ranked=num_ranked, num_parts=_parts_for(num_ranked, ranks.RANGE_DOCUMENTS))
    num_base = sum(file.num_documents for group in groups if group.is_base for file in group.files)
    pair_tasks = [
        candidates.PairTask(
            run_urls=tuple(url for result in signed for url in result["runs"]),
            part=part,
            num_parts=num_parts,
            num_base_ranks=num_base,
            ranges=ranges,
            pairs_url=run.url("pair", f"{part:06d}"),
        )
        for part in range(num_parts)
    ]
    paired = run.stage("pair", candidates.pair, [(f"pair {task.part}", task) for task in pair_tasks])
    gather_tasks = [
        candidates.GatherTask(
            run_urls=tuple(url for result in paired for url in result["runs"]),
            part=part,
            num_parts=ranges.num_parts,
            first_documents=first_documents,
            pairs_url=run.url("gather", f"0-{part:06d}.pairs"),
            needs_url=run.url("gather", f"0-{part:06d}.needs"),
        )
        for part in range(ranges.num_parts)
    ]
    turn = _Turn(
        [task.pairs_url for task in gather_tasks],
        [task.needs_url for task in gather_tasks],
        run.stage("gather", candidates.gather, [(f"gather {task.part}", task) for task in gather_tasks]),
    )
    near_urls, num_pairs = _settle(run, groups, first_documents, ranges, turn, templates_urls, cores_urls, config)
    return _Near(
        near_urls=near_urls,
        cores_urls=cores_urls,
        num_pairs=num_pairs,
        templates=_described(num_templates, signed),
    )


def _templates(
    run: _Run, lines: Sequence[tuple[str, str, int]], config: DedupConfig
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """Urls of the template lines of each source that has some, and how many it has."""
    limits = config.near.templates
    tasks: list[tuple[str, templates.TemplatesTask]] = []
    for source in sorted({source for source, _, _ in lines}) if limits.enabled else []:
        urls = tuple(url for of_source, url, _ in lines if of_source == source)
        num_counted = sum(n for of_source, _, n in lines if of_source == source)
        num_parts = _parts_for(sum(storage.stat(url).num_bytes for url in urls), LINES_PART_BYTES)
        for part in range(num_parts):
            task = templates.TemplatesTask(
                lines_urls=urls,
                part=part,
                num_parts=num_parts,
                min_count=max(limits.min_documents, -int(-limits.fraction * num_counted // 1)),
                templates_url=run.url("templates", f"{source}-{part:06d}.lines"),
            )
            tasks.append((source, task))
    results = run.stage(
        "templates", templates.find_templates, [(f"{source}, part {task.part}", task) for source, task in tasks]
    )
    urls_of: dict[str, tuple[str, ...]] = {}
    num_templates: Counter[str] = Counter()
    for (source, task), result in zip(tasks, results, strict=True):
        if result["num_templates"]:
            urls_of[source] = (*urls_of.get(source, ()), task.templates_url)
            num_templates[source] += result["num_templates"]
    return urls_of, num_templates


def _of_sources(templates_urls: dict[str, tuple[str, ...]], group: exact.Group) -> dict[str, tuple[str, ...]]:
    sources = {file.source for file in group.files}
    return {source: urls for source, urls in templates_urls.items() if source in sources}


def _described(num_templates: dict[str, int], signed: Sequence[Summary]) -> dict[str, tuple[int, list[dict[str, Any]]]]:
    described = {}
    for source, number in sorted(num_templates.items()):
        lines = {row["line"]: row for result in signed for row in result["examples"].get(source, ())}
        commonest = sorted(lines.values(), key=lambda row: (-row["count"], row["line"]))[: candidates.NUM_EXAMPLES]
        described[source] = (number, commonest)
    return described


def _settle(
    run: _Run,
    groups: Sequence[exact.Group],
    first_documents: tuple[int, ...],
    ranges: RankRanges,
    turn: _Turn,
    templates_urls: dict[str, tuple[str, ...]],
    cores_urls: Sequence[str],
    config: DedupConfig,
) -> tuple[tuple[str, ...], int]:
    """Measure, decide, and measure what is proposed, until nothing is: (urls of what goes, pairs measured)."""
    parts = range(ranges.num_parts)
    edges_urls: list[tuple[str, ...]] = [() for _ in parts]
    compared: list[tuple[tuple[str, int], ...]] = [() for _ in parts]
    num_pairs = 0
    for number in range(MAX_ROUNDS):
        num_pairs += sum(result["num_pairs"] for result in turn.results)
        for part, urls in enumerate(_verify(run, number, groups, turn, templates_urls, cores_urls, config)):
            edges_urls[part] += urls
        for part in parts:
            compared[part] += ((turn.pairs_urls[part], turn.results[part]["num_units"]),)
        status_urls = _statuses(run, number, ranges, edges_urls)
        choose = [
            settle.ChooseTask(
                ranges=ranges,
                part=part,
                edges_urls=edges_urls[part],
                status_urls=status_urls,
                first_documents=first_documents,
                chosen_url=run.url("settle", f"{number}-{part:06d}.chosen"),
                near_url=run.url("settle", f"{number}-{part:06d}.near"),
            )
            for part in parts
        ]
        run.stage("settle", settle.choose, [(f"choose {number} {task.part}", task) for task in choose])
        propose = [
            settle.ProposeTask(
                ranges=ranges,
                part=part,
                edges_urls=edges_urls[part],
                status_urls=status_urls,
                chosen_urls=tuple(task.chosen_url for task in choose),
                compared=compared[part],
                first_documents=first_documents,
                pairs_url=run.url("settle", f"{number}-{part:06d}.pairs"),
                needs_url=run.url("settle", f"{number}-{part:06d}.needs"),
            )
            for part in parts
        ]
        turn = _Turn(
            [task.pairs_url for task in propose],
            [task.needs_url for task in propose],
            run.stage("settle", settle.propose, [(f"propose {number} {task.part}", task) for task in propose]),
        )
        if not any(result["num_pairs"] for result in turn.results):
            return tuple(task.near_url for task in choose), num_pairs
    raise BuildError(
        f"deduplicate: {sum(result['num_pairs'] for result in turn.results):,} pairs are still open after"
        f" {MAX_ROUNDS} rounds: raise dedup.near.threshold, or look for what chains the documents of a source"
    )


def _verify(
    run: _Run,
    number: int,
    groups: Sequence[exact.Group],
    turn: _Turn,
    templates_urls: dict[str, tuple[str, ...]],
    cores_urls: Sequence[str],
    config: DedupConfig,
) -> list[tuple[str, ...]]:
    """Measure a turn's pairs: urls of the edges of each range of ranks."""
    first_units, num_units = [], 0
    for result in turn.results:
        first_units.append(num_units)
        num_units += result["num_units"]
    asking = [part for part, result in enumerate(turn.results) if result["num_units"]]
    needed = sorted({group for result in turn.results for group in result["needed_groups"]})
    ship = [
        similar.ShipTask(
            group=groups[group],
            near=config.near,
            needs_urls=tuple(turn.needs_urls[part] for part in asking),
            first_units=tuple(first_units[part] for part in asking),
            num_groups=len(groups),
            num_units=num_units,
            templates_urls=_of_sources(templates_urls, groups[group]),
            cores_url=cores_urls[group],
            has_base=any(group.is_base for group in groups),
            run_url=run.url("verify", f"{number}-{group:06d}.shipped"),
        )
        for group in needed
    ]
    run.stage("verify", similar.ship, [(f"ship {number} {task.group.number}", task) for task in ship])
    verify = [
        (
            part,
            similar.VerifyTask(
                near=config.near,
                pairs_url=turn.pairs_urls[part],
                unit=unit,
                num_units=turn.results[part]["num_units"],
                shipped_unit=first_units[part] + unit,
                shipped_urls=tuple(task.run_url for task in ship),
                edges_url=run.url("verify", f"{number}-{part:06d}-{unit:06d}.edges"),
            ),
        )
        for part in asking
        for unit in range(turn.results[part]["num_units"])
    ]
    run.stage("verify", similar.verify_pairs, [(f"verify {number} {part} {task.unit}", task) for part, task in verify])
    urls: list[tuple[str, ...]] = [() for _ in turn.results]
    for part, task in verify:
        urls[part] += (task.edges_url,)
    return urls


def _statuses(
    run: _Run, number: int, ranges: RankRanges, edges_urls: Sequence[tuple[str, ...]]
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
                status_url=run.url("settle", f"{number}-{turn}-{part:06d}.status"),
            )
            for part in open_parts
        ]
        results = run.stage("settle", settle.settle, [(f"settle {number} {turn} {task.part}", task) for task in tasks])
        for task in tasks:
            known[task.part] = task.status_url
        open_parts = [task.part for task, result in zip(tasks, results, strict=True) if result["num_undecided"]]
        if not open_parts:
            return tuple(known)
    # Each round settles at least the first range that is open, so this is a defect of ours, or of the storage.
    raise BuildError(f"deduplicate: ranges {open_parts[:5]} of ranks have undecided documents after every round")


def _outcome(
    run: _Run,
    groups: Sequence[exact.Group],
    first_documents: tuple[int, ...],
    united: Sequence[tuple[exact.UniteTask, Summary]],
    near: _Near,
    folder: str,
) -> tuple[tuple[tuple[str, str, int, int], ...], tuple[dict[str, Any], ...]]:
    """Write what goes, by document; (counts, largest clusters)."""
    follow = [
        outcome.FollowTask(
            group=group,
            same_urls=tuple(task.same_url for task, _ in united),
            near_urls=near.near_urls,
            first_documents=first_documents,
            gone_url=run.url("outcome", f"{group.number:06d}.gone"),
        )
        for group in groups
    ]
    run.stage("outcome", outcome.follow, [(f"follow {task.group.number}", task) for task in follow])
    name = [
        outcome.NameTask(
            group=group,
            gone_urls=tuple(task.gone_url for task in follow),
            first_documents=first_documents,
            named_url=run.url("outcome", f"{group.number:06d}.arrow"),
        )
        for group in groups
    ]
    named = run.stage("outcome", outcome.name, [(f"name {task.group.number}", task) for task in name])
    tell = [
        outcome.TellTask(
            group=group,
            named_urls=tuple(task.named_url for task in name),
            dropped_url=outcome.dropped_url(folder, group.number),
        )
        for group in groups
        if not group.is_base
    ]
    told = run.stage("deduplicate", outcome.tell, [(f"tell {task.group.number}", task) for task in tell])
    num: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for result in told:
        for source, kind, num_documents, num_bytes in result["counts"]:
            num[source, kind] += num_documents
            size[source, kind] += num_bytes
    clusters = sorted(
        (cluster for result in named for cluster in result["clusters"]),
        key=lambda row: (-row["num_exact"] - row["num_near"], row["source"], row["id"]),
    )
    counts = tuple((source, kind, n, size[source, kind]) for (source, kind), n in sorted(num.items()))
    return counts, tuple(clusters[: outcome.NUM_CLUSTERS])
