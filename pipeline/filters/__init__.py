"""Filters: verdicts over columns of statistics. A filter never changes a text and never sees one.

Statistics (kernels/text.py) --judge--> 0 keep | reason, for a whole batch at once

1. one file a filter: Settings, RULES, EXAMPLES (which are its tests); one line here
2. presets.py: what a configuration says -> filters with their settings
3. judge_all: the first filter in order that fails a document gives its reason

A filter may be asked of one language alone: `gopher_quality@ru` judges what is Russian, and a plain `gopher_quality`
beside it what is of no language that has an entry of its own. The reason is the filter's, without the language.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.filters import c4, fineweb, gopher_quality, gopher_repetition, language, length
from pipeline.filters.rules import Example, Rule, judge
from pipeline.kernels.text import Statistics


class Filter(Protocol):
    """What a file in this folder defines. Its docstring says what it drops, why, the source, and what it misses."""

    @property
    def Settings(self) -> type[Any]:
        """A frozen, keyword-only dataclass with defaults, checked when made."""

    @property
    def RULES(self) -> tuple[Rule, ...]:
        """What documents are dropped for, in the order asked."""

    @property
    def EXAMPLES(self) -> tuple[Example, ...]:
        """Texts and their verdicts: every reason at least once."""


FILTERS: dict[str, Filter] = {
    "c4": c4,
    "fineweb": fineweb,
    "gopher_quality": gopher_quality,
    "gopher_repetition": gopher_repetition,
    "language": language,
    "length": length,
}


def judge_all(filters: Sequence[tuple[str, Any]], statistics: Statistics) -> tuple[np.ndarray, tuple[str, ...]]:
    """(int16 (n,), reasons): 0 keeps, i drops for reasons[i - 1], written "filter.reason".

    `filters` are (name, settings) pairs as presets.resolve gives them; the first that fails a document names the
    reason.
    """
    asked = [name for name, _ in filters]
    verdict = np.zeros(len(statistics), dtype=np.int16)
    reasons: list[str] = []
    for entry, settings in filters:
        name = entry.partition("@")[0]
        rules = FILTERS[name].RULES
        failed = judge(rules, statistics, settings)
        undecided = (verdict == 0) & (failed > 0) & judged_by(entry, asked, statistics)
        verdict[undecided] = failed[undecided] + len(reasons)
        reasons.extend(f"{name}.{rule.reason}" for rule in rules)
    return verdict, tuple(reasons)


def judged_by(entry: str, asked: Sequence[str], statistics: Statistics) -> np.ndarray:
    """bool (n,): the documents that `entry` is about, where the entries `asked` stand beside it."""
    name, _, language_ = entry.partition("@")
    if language_:
        return statistics.in_language(language_)
    judged = np.ones(len(statistics), dtype=bool)
    for other in asked:
        if other.startswith(f"{name}@"):
            judged &= ~statistics.in_language(other.partition("@")[2])
    return judged
