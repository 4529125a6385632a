"""What every filter is written with: comparisons that a missing limit passes, fractions that never divide by zero."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifests.errors import UserError


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


def below(values: np.ndarray, limit: float | None) -> np.ndarray:
    """Where `values` are under `limit`: nowhere, if there is none."""
    return np.zeros(len(values), dtype=bool) if limit is None else values < limit


def above(values: np.ndarray, limit: float | None) -> np.ndarray:
    """Where `values` are over `limit`: nowhere, if there is none."""
    return np.zeros(len(values), dtype=bool) if limit is None else values > limit


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
