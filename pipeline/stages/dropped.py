"""The outcome of deduplication, and what a person should hear of it."""

from dataclasses import dataclass, field
from typing import Any

LOST_FRACTION = 0.5
"""A source that lost more of its documents as duplicates is named on the terminal and at the top of the report."""
HUGE_FRACTION = 0.01
MIN_HUGE = 1_000
"""A cluster of so many documents, and of this share of all of them, is named on the terminal."""


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
