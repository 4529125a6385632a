"""Drop documents whose lines are those of a list, not of prose.

Drops   documents where few lines end like a sentence, most lines are short, lines that repeat an earlier one hold more
        than 1 % of the characters, or there are more than three line ends to ten words.
Why     on the web these are menus, tables of contents, forum frames and search results.
Source  Penedo et al. 2024 (FineWeb), section 3.6; as datatrove's FineWebQualityFilter judges.
Misses  lists written out in long lines. It is made for web pages with a line a paragraph: text broken at 72 columns
        (manual pages, mail) fails by the share of line ends, so no preset here uses it as published.

Lines without a word are left out. A line is short up to 30 characters. It ends like a sentence if its last character,
white space included, is a terminal mark of any script.
"""

from dataclasses import dataclass

from pipeline.filters.rules import Example, Rule, check_numbers, share


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit."""

    min_terminal_line_fraction: float | None = 0.12
    max_short_line_fraction: float | None = 0.67
    max_duplicate_line_char_fraction: float | None = 0.01
    max_newlines_per_word: float | None = 0.3

    def __post_init__(self) -> None:
        check_numbers(self, "min_terminal_line_fraction", "max_short_line_fraction", most=1)
        check_numbers(self, "max_duplicate_line_char_fraction", most=1)
        check_numbers(self, "max_newlines_per_word")


RULES = (
    Rule(
        reason="too_few_terminal_lines",
        setting="min_terminal_line_fraction",
        values=lambda statistics, _: share(statistics.num_terminal_lines, statistics.num_filled_lines),
    ),
    Rule(
        reason="too_many_short_lines",
        setting="max_short_line_fraction",
        values=lambda statistics, _: share(statistics.num_short_lines, statistics.num_filled_lines),
    ),
    Rule(
        reason="too_many_duplicate_line_chars",
        setting="max_duplicate_line_char_fraction",
        values=lambda statistics, _: share(
            statistics.num_duplicate_filled_line_chars, statistics.num_chars - statistics.num_newlines
        ),
    ),
    Rule(
        reason="too_many_newlines",
        setting="max_newlines_per_word",
        values=lambda statistics, _: share(statistics.num_newlines, statistics.num_words),
    ),
)

_LINE = "A line of some length that ends like a sentence.\n"

EXAMPLES = (
    Example(_LINE, None),
    Example("Строка нормальной длины, законченная как предложение.\n", None),
    Example("これは十分に長い文章で、三十文字より長く、最後に句点がありますから残ります。", None),
    Example("Home is where the menu of the page begins\nNews of today and yesterday", "too_few_terminal_lines"),
    Example("Home.\nNews.\nContact.\nA longer line of the menu, at last.", "too_many_short_lines"),
    Example(_LINE + _LINE, "too_many_duplicate_line_chars"),
    Example("Authentication-configuration-file.\nInternationalisation-is-supported.\n", "too_many_newlines"),
)
