"""How much unreadable input a build accepts, by records and by bytes.

Records that cannot be read count singly, but a file that is lost whole is one record of which nobody knows how many
were in it: nine cut Parquet files are nine records, and the whole source. So files lost whole are weighed by their
bytes too, and a source is over its budget when either share is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.ledger import STAGES, Ledger

FREE_RECORDS = 10
"""Bad records that never stop a build unless the budget is 0: a fraction of a small source would be less than one
record. Bytes of lost files are never free.
"""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What one source lost in reading. `reasons`: bad records by reason; `lost_*`: files that gave no document."""

    num_records: int
    reasons: Mapping[str, int]
    num_bytes: int
    num_lost_files: int
    lost_bytes: int


def over_budget(losses: Losses, budget_fraction: float) -> str | None:
    """What of a source is beyond its budget, in words; None where it keeps to it."""
    num_bad = sum(losses.reasons.values())
    allowed = max(int(budget_fraction * losses.num_records), FREE_RECORDS if budget_fraction else 0)
    commonest = sorted(losses.reasons.items(), key=lambda item: (-item[1], item[0]))[:3]
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in commonest)
    if num_bad > allowed:
        return f"has {num_bad:,} unreadable of {losses.num_records:,} records, {allowed:,} are allowed ({reasons})"
    if losses.lost_bytes > budget_fraction * losses.num_bytes:
        files = f"{losses.num_lost_files:,} file{'s' * (losses.num_lost_files != 1)}"
        share = 100 * losses.lost_bytes / losses.num_bytes
        return f"lost {files} whole, {share:.3g} % of its bytes, {100 * budget_fraction:g} % are allowed ({reasons})"
    return None


def nothing_kept(ledger: Ledger) -> list[str]:
    """A line for each source of which no document is left, and where its records ended."""
    lines = []
    for source, num_read in sorted(ledger.read_documents.items()):
        if ledger.documents(source, "kept"):
            continue
        ends = ", ".join(f"{stage} {n:,}" for stage in STAGES if (n := ledger.documents(source, stage)))
        lines.append(f"note: nothing is left of source {source}, {num_read:,} records read" + (ends and f" ({ends})"))
    return lines
