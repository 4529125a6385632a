"""What benchmarks/build.py measured, as Markdown: values in, text out.

Every rate is what one more MB costs: a build of little text is measured beside the real one, in the same process, and
its time and text are taken off. What any build costs, and what a process costs before its first, stand below the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MEGA = 1e6
SMALLEST_S = 0.002
"""A stage that differs by less from one of a small build has no rate: the clock counts in milliseconds."""

OUR_STAGES = {
    "engine": "prove the engine",
    "read": "read, clean, filter, hash",
    "exact": "exact duplicates",
    "rank": "order of preference",
    "templates": "template lines",
    "sign": "band records",
    "pair": "pairs that meet",
    "gather": "each pair once",
    "verify": "measure near duplicates",
    "settle": "settle who goes for whom",
    "outcome": "explain what goes",
    "deduplicate": "write what goes",
    "signatures": "signatures for the next version",
    "encode": "tokenize",
    "write": "write shards and lineage",
    "driver": "plan, manifest, report",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process: CPU seconds by stage, and what it found."""

    startup_s: float
    fixed_s: Mapping[str, float]
    """Of a build of little text, by stage."""
    stages_s: Mapping[str, float]
    """Of the build that is measured, by stage."""
    peak_bytes: int
    facts: Mapping[str, Any]

    @classmethod
    def from_json(cls, result: dict[str, Any]) -> "Run":
        """From what inline_build.py and peers/*.py write."""
        facts = {key: value for key, value in result.items() if key not in ("startup", "fixed", "stages", "peak_bytes")}
        return cls(
            startup_s=result["startup"],
            fixed_s=result["fixed"],
            stages_s=result["stages"],
            peak_bytes=result["peak_bytes"],
            facts=facts,
        )

    def added_s(self, stages: Sequence[str]) -> float:
        """CPU seconds of some stages beyond those of a build of little text."""
        return sum(self.stages_s[stage] - self.fixed_s.get(stage, 0.0) for stage in stages)


@dataclass(frozen=True, kw_only=True)
class Side:
    """All runs of one program on one set of texts."""

    name: str
    runs: tuple[Run, ...]
    num_bytes: int
    """Text beyond that of the small build."""
    labels: Mapping[str, str]
    """What a reader calls the stages; those not named keep their names."""

    @property
    def stages(self) -> list[str]:
        """In the order they first ran."""
        return list(self.runs[0].stages_s)

    def seconds(self, stages: Sequence[str]) -> float:
        """Median of the runs, for some stages together."""
        return median(run.added_s(stages) for run in self.runs)

    def rate(self, stages: Sequence[str]) -> float:
        """MB of text per core-second."""
        return self.num_bytes / MEGA / self.seconds(stages)


@dataclass(frozen=True, kw_only=True)
class Wall:
    """One `python pipeline/build.py`, by the clock on the wall."""

    workers: int
    first_task_s: float
    total_s: float


def side_table(side: Side) -> str:
    """One program: a row a stage."""
    total = side.seconds(side.stages)
    rows = [[side.name, "core-s", "share", "MB per core-s"], ["---", "---:", "---:", "---:"]]
    for stage in side.stages:
        seconds = side.seconds([stage])
        rate = f"{side.rate([stage]):,.1f}" if seconds >= SMALLEST_S else "-"
        rows.append([side.labels.get(stage, stage), f"{seconds:.3f}", f"{seconds / total:.0%}", rate])
    rows.append(["**all**", f"{total:.3f}", "100%", f"**{side.rate(side.stages):,.2f}**"])
    return _aligned(rows) + "\n\n" + _costs(side) + "\n"


def _costs(side: Side) -> str:
    fixed = median(sum(run.fixed_s.values()) for run in side.runs)
    as_run = side.num_bytes / MEGA / median(sum(run.stages_s.values()) for run in side.runs)
    startup, peak = median(run.startup_s for run in side.runs), max(run.peak_bytes for run in side.runs)
    totals = ", ".join(f"{side.num_bytes / MEGA / run.added_s(side.stages):,.2f}" for run in side.runs)
    return "\n".join(
        [
            f"- all, run by run: {totals}",
            f"- costs however little text there is: {fixed:.2f} core-s; with them {as_run:,.2f} MB per core-s",
            f"- a process before its first build (imports, kernels or models, tokenizer): {startup:.2f} core-s",
            f"- peak memory: {peak / MEGA:,.0f} MB",
        ]
    )


def facts_in_words(ours: Side) -> str:
    """What our side made of the texts."""
    facts = ours.runs[0].facts
    verified = median(run.facts["verify"] for run in ours.runs)
    return (
        f"- {facts['num_documents']:,} documents read, {facts['num_kept']:,} kept, {facts['num_tokens']:,} tokens,"
        f" {facts['shard_bytes'] / MEGA:,.1f} MB of shards\n"
        f"- every run's shards were verified, which is not in the table: {verified:.3f} core-s,"
        f" {facts['shard_bytes'] / MEGA / verified:,.0f} MB of shard per core-s\n"
        f"- digest {facts['digest']}, equal in all runs\n"
    )


def comparison(ours: Side, peer: Side) -> str:
    """How many times as fast, whole and without the peer's filters."""
    whole = ours.rate(ours.stages)
    later = peer.rate([stage for stage in peer.stages if stage != "filters"])
    facts = peer.runs[0].facts
    return (
        f"- {facts['num_documents']:,} documents read, {facts['num_past_filters']:,} past its filters,"
        f" {facts['num_past_minhash']:,} past MinHash; MinHash reads all, tokenization what MinHash left\n"
        f"- **our build / the whole chain: {whole / peer.rate(peer.stages):,.0f} times**\n"
        f"- our build, filters included / the chain without its filters: {whole / later:,.0f} times; this is a floor,"
        " as its filters have rules that ours do not\n"
    )


def wall_table(walls: Sequence[Wall], num_bytes: int) -> str:
    """`python pipeline/build.py` through Ray, medians by number of workers, and what the second core adds."""
    rows = [["workers", "first task after, s", "all, s", "MB per s", "MB per s after the first task"], ["---:"] * 5]
    rates, whole_rates = [], []
    for workers in sorted({wall.workers for wall in walls}):
        of_these = [wall for wall in walls if wall.workers == workers]
        first, total = median(wall.first_task_s for wall in of_these), median(wall.total_s for wall in of_these)
        whole_rates.append(num_bytes / MEGA / total)
        rates.append(num_bytes / MEGA / median(wall.total_s - wall.first_task_s for wall in of_these))
        rows.append([str(workers), f"{first:.1f}", f"{total:.1f}", f"{whole_rates[-1]:.1f}", f"{rates[-1]:.1f}"])
    gain = (
        f"\n\n- the second core adds {rates[-1] / rates[0] - 1:.2f} of the first one's rate after the first task,"
        f" {whole_rates[-1] / whole_rates[0] - 1:.2f} with the start\n"
    )
    return _aligned(rows) + gain


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well on a terminal too; the second row says how columns align."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = [cell.endswith(":") for cell in rows[1]]
    lines = []
    for number, row in enumerate(rows):
        cells = []
        for cell, width, to_right in zip(row, widths, right, strict=True):
            if number == 1:
                cells.append("-" * (width - to_right) + ":" * to_right)
            else:
                cells.append(cell.rjust(width) if to_right else cell.ljust(width))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
