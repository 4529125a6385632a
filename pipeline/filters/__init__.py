"""Filters: verdicts over columns of statistics. A filter never changes a text and never sees one.

Statistics (kernels/text.py) --judge--> 0 keep | reason, for a whole batch at once

1. one file a filter: Settings, REASONS, judge, EXAMPLES (which are its tests); one line here
2. presets.py: what a configuration says -> filters with their settings
3. judge_all: the first filter in order that fails a document gives its reason
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.filters import gopher_quality, length, repeated_lines
from pipeline.filters.rules import Example
from pipeline.kernels.text import Statistics


class Filter(Protocol):
    """What a file in this folder defines. Its docstring says what it drops, why, the source, and what it misses."""

    @property
    def Settings(self) -> type[Any]:
        """A frozen, keyword-only dataclass with defaults, checked when made."""

    @property
    def REASONS(self) -> tuple[str, ...]:
        """What documents are dropped for, in the order the rules are asked."""

    @property
    def EXAMPLES(self) -> tuple[Example, ...]:
        """Texts and their verdicts: every reason at least once."""

    def judge(self, statistics: Statistics, settings: Any, /) -> np.ndarray:
        """int16 (n,): 0 keeps, i + 1 drops for REASONS[i], the first rule that fails."""


FILTERS: dict[str, Filter] = {
    "gopher_quality": gopher_quality,
    "length": length,
    "repeated_lines": repeated_lines,
}


def judge_all(filters: Sequence[tuple[str, Any]], statistics: Statistics) -> tuple[np.ndarray, tuple[str, ...]]:
    """(int16 (n,), reasons): 0 keeps, i drops for reasons[i - 1], written "filter.reason".

    `filters` are (name, settings) pairs as presets.resolve gives them; the first that fails a document names the
    reason.
    """
    verdict = np.zeros(len(statistics), dtype=np.int16)
    reasons: list[str] = []
    for name, settings in filters:
        failed = FILTERS[name].judge(statistics, settings)
        undecided = (verdict == 0) & (failed > 0)
        verdict[undecided] = failed[undecided] + len(reasons)
        reasons.extend(f"{name}.{reason}" for reason in FILTERS[name].REASONS)
    return verdict, tuple(reasons)
