"""Drop documents of too few or too many characters or words.

Drops   documents outside the given numbers of characters or white-space separated words; by default only those with no
        word at all.
Why     an empty text teaches nothing, and one of a gigabyte is a dump that nobody meant as a text.
Source  ours; comparable tools have such limits as part of other filters.
Misses  everything about what the words are.
"""

from dataclasses import dataclass

from pipeline.filters.rules import Example, Rule, check_counts, check_order


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit."""

    min_chars: int | None = None
    max_chars: int | None = None
    min_words: int | None = 1
    max_words: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "min_chars", "max_chars", "min_words", "max_words")
        check_order(self, "min_chars", "max_chars")
        check_order(self, "min_words", "max_words")


RULES = (
    Rule(reason="too_few_chars", setting="min_chars", values=lambda statistics, _: statistics.num_chars),
    Rule(reason="too_many_chars", setting="max_chars", values=lambda statistics, _: statistics.num_chars),
    Rule(reason="too_few_words", setting="min_words", values=lambda statistics, _: statistics.num_words),
    Rule(reason="too_many_words", setting="max_words", values=lambda statistics, _: statistics.num_words),
)

EXAMPLES = (
    Example("", "too_few_words"),
    Example(" \n\t ", "too_few_words"),
    Example("Спасибо", None),
    Example("ОК", "too_few_chars", Settings(min_chars=3)),
    Example("Да!", None, Settings(min_chars=3)),
    Example("one two three", "too_many_words", Settings(max_words=2)),
    Example("one two", None, Settings(max_words=2)),
    Example("слово", "too_many_chars", Settings(max_chars=4)),
)
