"""Drop documents whose lines mostly repeat.

Drops   documents where more than 30 % of the lines repeat an earlier one, or such lines hold more than 20 % of the
        characters.
Why     menus, table frames and boilerplate teach a model to loop.
Source  Rae et al. 2021 (Gopher), table A1: duplicate line fraction, duplicate line character fraction.
Misses  repetition inside a line, and of paragraphs whose lines are each repeated too little.

The first of equal lines is no repeat. Lines are compared byte for byte; empty ones are not counted.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.filters.rules import Example, above, check_numbers, first_failing, share
from pipeline.kernels.text import Statistics


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit."""

    max_duplicate_line_fraction: float | None = 0.3
    max_duplicate_line_char_fraction: float | None = 0.2

    def __post_init__(self) -> None:
        check_numbers(self, "max_duplicate_line_fraction", "max_duplicate_line_char_fraction", most=1)


REASONS = ("too_many_duplicate_lines", "too_many_duplicate_line_chars")


def judge(statistics: Statistics, settings: Settings) -> np.ndarray:
    """int16 (n,): 0 keeps, i + 1 drops for REASONS[i]."""
    line_fraction = share(statistics.num_duplicate_lines, statistics.num_nonempty_lines)
    char_fraction = share(statistics.num_duplicate_line_chars, statistics.num_chars)
    return first_failing(
        above(line_fraction, settings.max_duplicate_line_fraction),
        above(char_fraction, settings.max_duplicate_line_char_fraction),
    )


EXAMPLES = (
    Example("Главная\nНовости\nГлавная\nНовости", "too_many_duplicate_lines"),
    Example("Home\nNews\nContact\nHome", None, Settings(max_duplicate_line_char_fraction=0.25)),
    Example("a\nb\nc\na sentence that comes twice\na sentence that comes twice", "too_many_duplicate_line_chars"),
    Example("\n\n\none line among empty ones\n\n\n", None),
    Example("Yes. Yes. Yes. Yes. Yes.", None),
)
