"""A panel a rule: how its number is distributed over the documents it judges, and the texts on both sides of its limit.

Pure: statistics and texts in, values out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.filters import FILTERS, judge_all, judged_by
from pipeline.filters.rules import Rule
from pipeline.kernels.text import Statistics

NUM_BINS = 60
NUM_EXAMPLES = 3
EXCERPT_CHARS = 300
# Beyond these quantiles a distribution is drawn as if at its edge: one text of a megabyte would flatten all others.
_EDGE_QUANTILES = (0.002, 0.998)
# Counts that reach over more than this are drawn on a logarithmic scale.
_LOG_RANGE = 50


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A document next to a limit."""

    name: str
    value: float
    excerpt: str
    num_chars: int
    dropped_for: str | None
    """What the whole list of filters says of it: another rule may have dropped it first."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One rule of one filter's entry."""

    entry: str
    reason: str
    setting: str
    limit: float | None
    is_least: bool
    num_judged: int
    num_failed: int
    """Documents this rule alone would drop."""
    num_first: int
    """Documents it is the stated reason for: the first rule that failed."""
    quantiles: tuple[float, ...]
    """Least, 1 %, median, 99 %, largest."""
    is_log: bool
    edges: np.ndarray
    counts: np.ndarray
    num_dropped_in_bin: np.ndarray
    dropped: tuple[Neighbour, ...]
    """The nearest to the limit first."""
    kept: tuple[Neighbour, ...]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """All panels of a source, and the sum of its filters."""

    num_documents: int
    num_kept: int
    reasons: tuple[tuple[str, int], ...]
    """(reason, documents), the commonest first."""
    languages: tuple[tuple[str, int], ...]
    panels: tuple[Panel, ...]


def inspect(
    filters: Sequence[tuple[str, Any]], statistics: Statistics, text: pa.LargeStringArray, names: pa.LargeStringArray
) -> Inspection:
    """Judge the texts, and make a panel of every rule: first those that drop something, then those with a
    limit, then the rest, each in the order they are asked.
    """
    verdict, reasons = judge_all(filters, statistics)
    reason_of = ["" if number == 0 else reasons[number - 1] for number in verdict.tolist()]
    asked = [entry for entry, _ in filters]
    panels = []
    first_code = 1
    for entry, settings in filters:
        rules = FILTERS[entry.partition("@")[0]].RULES
        judged = np.flatnonzero(judged_by(entry, asked, statistics))
        for number, rule in enumerate(rules):
            num_first = int(np.count_nonzero(verdict == first_code + number))
            panels.append(_panel(entry, rule, settings, statistics, judged, num_first, text, names, reason_of))
        first_code += len(rules)
    counted = sorted(
        {(reason, reason_of.count(reason)) for reason in set(reason_of) - {""}}, key=lambda row: (-row[1], row)
    )
    return Inspection(
        num_documents=len(statistics),
        num_kept=int(np.count_nonzero(verdict == 0)),
        reasons=tuple(counted),
        languages=_languages(statistics),
        panels=tuple(sorted(panels, key=lambda panel: (panel.limit is None, panel.num_failed == 0))),
    )


def _languages(statistics: Statistics) -> tuple[tuple[str, int], ...]:
    counts = [(code, int(np.count_nonzero(statistics.in_language(code)))) for code in ("en", "ru")]
    return (*counts, ("other", len(statistics) - sum(count for _, count in counts)))


def _panel(
    entry: str,
    rule: Rule,
    settings: Any,
    statistics: Statistics,
    judged: np.ndarray,
    num_first: int,
    text: pa.LargeStringArray,
    names: pa.LargeStringArray,
    reason_of: Sequence[str],
) -> Panel:
    values = np.asarray(rule.values(statistics, settings), dtype=np.float64)[judged]
    failed = rule.fails(statistics, settings)[judged]
    limit = rule.limit(settings)
    edges, is_log = bin_edges(values, limit)
    clipped = np.clip(values, edges[0], edges[-1])

    def neighbours(among: np.ndarray) -> tuple[Neighbour, ...]:
        if limit is None:
            return ()
        nearest = among[np.argsort(np.abs(values[among] - limit), kind="stable")]
        found: dict[str, Neighbour] = {}
        for place in nearest:
            document = int(judged[place])
            whole = text[document].as_py()
            excerpt = " ".join(whole[: 2 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]
            # Equal beginnings show nothing new.
            found.setdefault(
                excerpt,
                Neighbour(
                    name=names[document].as_py(),
                    value=float(values[place]),
                    excerpt=excerpt,
                    num_chars=len(whole),
                    dropped_for=reason_of[document] or None,
                ),
            )
            if len(found) == NUM_EXAMPLES:
                break
        return tuple(found.values())

    kept_by_all = np.array([not reason_of[document] for document in judged], dtype=bool)
    kept_side = np.flatnonzero(~failed & kept_by_all)
    return Panel(
        entry=entry,
        reason=rule.reason,
        setting=rule.setting,
        limit=limit,
        is_least=rule.is_least,
        num_judged=len(judged),
        num_failed=int(np.count_nonzero(failed)),
        num_first=num_first,
        quantiles=tuple(map(float, np.quantile(values, [0, 0.01, 0.5, 0.99, 1]))) if len(values) else (0.0,) * 5,
        is_log=is_log,
        edges=edges,
        counts=np.histogram(clipped, edges)[0],
        num_dropped_in_bin=np.histogram(clipped[failed], edges)[0],
        dropped=neighbours(np.flatnonzero(failed)),
        kept=neighbours(kept_side if len(kept_side) else np.flatnonzero(~failed)),
    )


def bin_edges(values: np.ndarray, limit: float | None) -> tuple[np.ndarray, bool]:
    """(NUM_BINS + 1 rising edges that hold the limit, whether they are on a logarithmic scale)."""
    low, high = np.quantile(values, _EDGE_QUANTILES) if len(values) else (0.0, 1.0)
    if limit is not None and (not len(values) or limit <= 4 * max(high, 1)):  # a limit far away would hide the rest
        low, high = min(low, limit * 0.9), max(high, limit * 1.1)
    if high <= low:
        low, high = min(low, 0.0), max(high, low + 1.0)
    if low >= 0 and high > _LOG_RANGE and high > _LOG_RANGE * max(low, 1):
        return np.concatenate([[0.0], np.geomspace(1, high, NUM_BINS)]), True
    return np.linspace(low, high, NUM_BINS + 1), False


def place_of(panel: Panel) -> float | None:
    """Where the limit stands, 0 at the left edge and 1 at the right; None without one, or where it is off the scale."""
    if panel.limit is None or not panel.edges[0] <= panel.limit <= panel.edges[-1]:
        return None
    return float(np.interp(panel.limit, panel.edges, np.linspace(0, 1, len(panel.edges))))
