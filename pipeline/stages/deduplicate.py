"""Which documents go because another one stands for them: the order of the stages that decide it.

    exact.py       spread -> unite            of equal texts the most preferred stays
    ranks.py       rank                       each document's place in the order of preference
    uncount.py     uncount                    the lines of documents that exact deduplication dropped
    templates.py   find -> join -> keep       lines that many documents of a source share, the base version's among them
    candidates.py  sign -> pair -> gather     documents that share a band, each with its bucket's most preferred
    similar.py     ship -> verify             the Jaccard similarity of every pair
    settle.py      settle -> choose -> propose   who goes for whom; what has to be compared yet goes back to `ship`
    outcome.py     follow -> name -> tell     what went, for what, by which likeness
    signatures.py  write_signatures           what the next version compares with

near.py and turns.py call the stages from `rank` to `propose`; search.py names their files and tasks. Every arrow goes
through storage (pipeline/shuffle.py): a unit of a stage reads its range of what all units of the stage before wrote. No
unit sees all documents, all signatures or all edges; how many units there are follows from counts, and decides no byte
of the result. A small corpus is one unit a stage.

Documents are numbered from 0 through all read units in their order, the base version's after them.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from manifests import storage
from manifests.canonical import fingerprint
from manifests.manifest import Dataset
from pipeline.config import DedupConfig, NearConfig
from pipeline.counted_lines import CountedLines
from pipeline.dedup import bands, minhash
from pipeline.documents import DocumentsFile
from pipeline.runtime import Runtime, Summary
from pipeline.stages import exact, outcome, signatures, templates
from pipeline.stages.dropped import Dropped
from pipeline.stages.near import Near, near_duplicates
from pipeline.stages.outcome import kept_rows
from pipeline.stages.search import Search, num_parts_for

__all__ = ["DocumentsFile", "Dropped", "deduplicate", "kept_rows", "what_is_missed"]

FORMAT = 7
SAME_PART_DOCUMENTS = 2_000_000
"""Documents of a range of content hashes: 200 MB."""


def deduplicate(
    runtime: Runtime,
    root: str,
    version: str,
    files: Sequence[DocumentsFile],
    lines: Sequence[CountedLines],
    config: DedupConfig,
    base: Dataset | None = None,
) -> Dropped:
    """Find all duplicates among what was read and kept, and of what the base version holds.

    Args:
        runtime: runs the units.
        root: the data set's.
        version: names `<root>/duplicates/<version>` and `<root>/signatures/<version>`, which are written.
        files: what reading kept, with groups (documents.in_groups).
        lines: counted while reading.
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
    known_url = signatures.base_templates(base) if base is not None else None
    base_digest = base.manifest.digest if base is not None else None
    settings = [version, dataclasses.asdict(config), inputs, list(map(dataclasses.asdict, lines)), base_digest]
    search = Search(
        runtime=runtime,
        build_url=storage.join(root, ".build"),
        key=fingerprint(["deduplicate", FORMAT, *settings]),
        groups=tuple(groups if num_documents else groups[:num_groups]),
        config=config,
    )
    united = _exact(search, num_documents + sum(file.num_documents for file in old))
    near = near_duplicates(search, united, lines, known_url) if config.near.enabled else Near()
    counts, clusters = _outcome(search, united, near, folder)
    search.stage(
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
            for group in search.groups
            if not group.is_base
        ],
    )
    kept_url = signatures.templates_url(root, version)
    keep = templates.KeepTask(templates_urls=near.templates_urls, known_url=known_url, kept_url=kept_url)
    search.stage("signatures", templates.keep_templates, [("templates", keep)])
    outcome.write_files(folder, files)
    for kind in ("duplicates", "signatures"):
        _remove_others(storage.join(root, kind, version), num_groups)
    return Dropped(
        key=search.key,
        url=folder,
        counts=counts,
        num_pairs=near.num_pairs,
        clusters=clusters,
        templates=near.templates,
    )


def what_is_missed(near: NearConfig) -> str | None:
    """A line for the person who waits, where the bands find too few of the pairs that `threshold` asks for."""
    found = float(bands.probability(near.threshold, bands=near.bands, rows=near.rows))
    if not near.enabled or found >= bands.SURE_PROBABILITY:
        return None
    num_bands, rows = bands.bands_for(near.threshold, max(near.bands * near.rows, minhash.DEFAULT_NUM_PERMUTATIONS))
    better = float(bands.probability(near.threshold, bands=num_bands, rows=rows))
    return (
        f"note: dedup.near: {near.bands} bands of {near.rows} rows find {100 * found:.0f} % of the pairs that are"
        f" {near.threshold:g} alike; bands={num_bands} and rows={rows} find {100 * better:.0f} %"
    )


def _remove_others(folder: str, num_groups: int) -> None:
    """An earlier, unfinished run of the version may have had more groups."""
    wanted = {outcome.dropped_url(folder, number) for number in range(num_groups)}
    wanted |= {storage.join(folder, outcome.FILES), storage.join(folder, templates.FILE)}
    try:
        found = storage.list_objects(folder)
    except FileNotFoundError:
        return
    for info in found:
        if info.url not in wanted:
            storage.delete(info.url)


def _exact(search: Search, num_all: int) -> list[tuple[exact.UniteTask, Summary]]:
    num_parts = num_parts_for(num_all, SAME_PART_DOCUMENTS)
    spread = [
        exact.SpreadTask(
            group=group,
            keep=search.config.keep,
            num_parts=num_parts,
            run_url=search.url("exact", f"spread-{group.number:06d}.arrow"),
        )
        for group in search.groups
    ]
    search.stage("exact", exact.spread, [(f"spread {task.group.number}", task) for task in spread])
    unite = [
        exact.UniteTask(
            run_urls=tuple(task.run_url for task in spread),
            part=part,
            remove=search.config.exact,
            first_documents=search.first_documents,
            same_url=search.url("exact", f"{part:06d}.same"),
            survivors_url=search.url("exact", f"{part:06d}.arrow"),
        )
        for part in range(num_parts if spread else 0)
    ]
    results = search.stage("exact", exact.unite, [(f"unite {task.part}", task) for task in unite])
    return list(zip(unite, results, strict=True))


def _outcome(
    search: Search, united: Sequence[tuple[exact.UniteTask, Summary]], near: Near, folder: str
) -> tuple[tuple[tuple[str, str, int, int], ...], tuple[dict[str, Any], ...]]:
    """Write what goes, by document; (counts, largest clusters)."""
    follow = [
        outcome.FollowTask(
            group=group,
            same_urls=tuple(task.same_url for task, _ in united),
            near_urls=near.near_urls,
            first_documents=search.first_documents,
            gone_url=search.url("outcome", f"{group.number:06d}.gone"),
        )
        for group in search.groups
    ]
    search.stage("outcome", outcome.follow, [(f"follow {task.group.number}", task) for task in follow])
    name = [
        outcome.NameTask(
            group=group,
            gone_urls=tuple(task.gone_url for task in follow),
            first_documents=search.first_documents,
            named_url=search.url("outcome", f"{group.number:06d}.arrow"),
        )
        for group in search.groups
    ]
    named = search.stage("outcome", outcome.name, [(f"name {task.group.number}", task) for task in name])
    tell = [
        outcome.TellTask(
            group=group,
            named_urls=tuple(task.named_url for task in name),
            dropped_url=outcome.dropped_url(folder, group.number),
        )
        for group in search.groups
        if not group.is_base
    ]
    told = search.stage("deduplicate", outcome.tell, [(f"tell {task.group.number}", task) for task in tell])
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
