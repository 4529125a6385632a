"""What every filter is written with: rules, each a number of a document against a limit, and fractions that never
divide by zero.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifests.errors import UserError
from pipeline.kernels.text import Statistics


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One limit: documents whose value is under a `min_...` setting, or over another one, are dropped for `reason`.

    A value at the limit is kept, and a limit of None drops nothing.
    """

    reason: str
    setting: str
    values: Callable[[Statistics, Any], np.ndarray]
    """(n,) numbers, of statistics and settings."""
    limit_of: Callable[[Any], float | None] | None = None
    """For a setting that is no number: the limit it stands for."""

    @property
    def is_least(self) -> bool:
        """Whether the limit is the least value kept, not the largest."""
        return self.setting.startswith("min_")

    def limit(self, settings: Any) -> float | None:
        """The limit under these settings."""
        limit: float | None = self.limit_of(settings) if self.limit_of else getattr(settings, self.setting)
        return limit

    def fails(self, statistics: Statistics, settings: Any) -> np.ndarray:
        """bool (n,): the documents it drops."""
        limit = self.limit(settings)
        if limit is None:
            return np.zeros(len(statistics), dtype=bool)
        values = self.values(statistics, settings)
        return values < limit if self.is_least else values > limit


def judge(rules: Sequence[Rule], statistics: Statistics, settings: Any) -> np.ndarray:
    """int16 (n,): 0 keeps, i + 1 drops for rules[i], the first that fails."""
    return first_failing(*(rule.fails(statistics, settings) for rule in rules))


@dataclass(frozen=True)
class Example:
    """A text and the reason it is dropped for, None where it is kept, under `settings` or the filter's defaults."""

    text: str
    reason: str | None
    settings: Any = None


def first_failing(*failing: np.ndarray) -> np.ndarray:
    """int16 (n,): 0 where no mask (bool (n,)) is true, else one more than the index of the first that is."""
    masks = np.stack(failing)
    return np.where(masks.any(axis=0), masks.argmax(axis=0) + 1, 0).astype(np.int16)


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """float64 (n,): part / whole, and 0 where there is no whole, so that a document of nothing fails no upper limit."""
    return np.divide(part, whole, out=np.zeros(len(part), dtype=np.float64), where=whole > 0)


def check_counts(settings: Any, *names: str) -> None:
    """Raise UserError unless each named setting is a whole number from 0 up, or None for no limit."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise UserError(f"{name} is {value!r}: give a whole number from 0 up, or null for no limit")


def check_numbers(settings: Any, *names: str, most: float = np.inf) -> None:
    """Raise UserError unless each named setting is a number within 0..most, or None for no limit."""
    for name in names:
        value = getattr(settings, name)
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        if value is not None and not good:
            extent = "from 0 up" if most == np.inf else f"from 0 to {most:g}"
            raise UserError(f"{name} is {value!r}: give a number {extent}, or null for no limit")


def check_order(settings: Any, low: str, high: str) -> None:
    """Raise UserError if the lower limit is over the upper one, so that nothing could pass."""
    least, most = getattr(settings, low), getattr(settings, high)
    if least is not None and most is not None and least > most:
        raise UserError(
            f"{low} is {least} and {high} is {most}: no document could pass, so lower the one or raise the other"
        )


def check_choices(settings: Any, name: str, choices: Iterable[str]) -> None:
    """Raise UserError unless the named setting is a tuple of at least one of `choices`, and of nothing else."""
    value, choices = getattr(settings, name), sorted(choices)
    if not isinstance(value, tuple) or not value or not all(one in choices for one in value):
        raise UserError(f"{name} is {value!r}: give a list of at least one of {', '.join(choices)}")
