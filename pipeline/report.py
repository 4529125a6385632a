"""What a person reads about a build: one HTML page, and a few words on the terminal. Pure: a manifest and facts in,
text out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import jinja2

from manifests.manifest import Manifest
from pipeline.budget import nothing_kept
from pipeline.ledger import Ledger
from pipeline.plan import SplitPlan

MAX_LISTED = 20
"""Rows of a table that would otherwise grow with the input; the page says how many there are in all."""
LOST_SHARE = 0.5
"""A source that lost more of its documents than this is named at the top of the page."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the page tells beyond the manifest."""

    ledger: Ledger
    plans: Mapping[str, SplitPlan]
    quarantined: Sequence[Mapping[str, Any]]
    """The first MAX_LISTED records that could not be read: source, file, place, reason, detail."""
    num_quarantined: int
    empty_files: Sequence[str]
    """Names of input files without a record."""
    skipped_files: Sequence[str]
    """The first names of files that hold no data by their name."""
    num_skipped: int
    """All such files, in folders and inside archives."""
    num_attachments: int
    """Of mails, left out."""
    num_pairs: int
    """Near-duplicate candidates whose similarity was measured."""
    cleaned_documents: int
    """Documents whose text a transform changed."""
    redacted: Mapping[str, int]
    """Replacements by redaction rule."""
    undated: str | None = None
    """What there is to say of documents without a date, where the newest duplicate stays."""
    clusters: Sequence[Mapping[str, Any]] = ()
    """The largest clusters of duplicates: source and id of the keeper, num_exact and num_near that went for it."""
    templates: Mapping[str, tuple[int, Sequence[Mapping[str, Any]]]] = field(default_factory=dict)
    """By source: how many template lines it has, and the commonest (line, count)."""


def in_words(manifest: Manifest, report_url: str) -> str:
    """What a build made, in a few lines."""
    [read] = [row for row in manifest.funnel if row.stage == "read"]
    [kept] = [row for row in manifest.funnel if row.stage == "kept"]
    splits = ", ".join(
        f"{split.num_shards:,} {name} shard{'s' * (split.num_shards != 1)} of {split.num_examples:,} examples"
        for name, split in manifest.splits.items()
    )
    tokens = sum(split.num_tokens for split in manifest.splits.values())
    return (
        f"{manifest.name} {manifest.version}: {read.num_documents:,} documents read, {kept.num_documents:,} kept"
        f" ({kept.num_bytes / 1e6:,.1f} of {read.num_bytes / 1e6:,.1f} MB)\n"
        f"{tokens:,} tokens in {splits}\n"
        f"{manifest.digest}\n"
        f"report: {report_url}"
    )


def _lost(ledger: Ledger, source: str) -> float:
    """Of the documents that this very build read; the manifest's counts hold the base version's too."""
    num_read = ledger.read_documents.get(source, 0)
    return 1 - ledger.documents(source, "kept") / num_read if num_read else 0.0


def render(manifest: Manifest, facts: Facts) -> bytes:
    """The page, UTF-8, whole in itself: no script, no font, no picture from anywhere."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["count"] = lambda number: f"{number:,}"
    environment.filters["megabytes"] = lambda number: f"{number / 1e6:,.2f} MB"
    environment.filters["percent"] = lambda fraction: f"{100 * fraction:.1f} %"
    template = environment.from_string(files("pipeline").joinpath("report.html").read_text(encoding="utf-8"))
    ledger = facts.ledger
    sources: list[dict[str, Any]] = [
        {
            "name": name,
            "entry": entry,
            "lost": _lost(ledger, name),
            "stages": {
                stage: ledger.documents(name, stage)
                for stage in ("quarantine", "filter", "exact_duplicate", "near_duplicate")
            },
        }
        for name, entry in sorted(manifest.sources.items())
    ]
    text = template.render(
        manifest=manifest,
        facts=facts,
        read=manifest.funnel[0],
        sources=sources,
        nothing_kept=nothing_kept(ledger),
        lost_sources=[source for source in sources if LOST_SHARE < source["lost"] < 1],
        max_listed=MAX_LISTED,
        tokens=sum(split.num_tokens for split in manifest.splits.values()),
        padding=sum(split.num_padding_tokens for split in manifest.splits.values()),
        tail=sum(plan.num_dropped_tokens for plan in facts.plans.values()),
    )
    return text.encode()
