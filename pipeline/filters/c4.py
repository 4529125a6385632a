"""Drop documents that hold too few sentences, a placeholder text, or program code.

Drops   documents with fewer than five sentences in lines of prose, with "lorem ipsum" in such a line, or with a curly
        bracket in one.
Why     a web page without sentences is a menu; curly brackets are the sign of a program among pages.
Source  Raffel et al. 2020 (T5), section 2.2, and its code; as datatrove's C4QualityFilter judges.
Misses  fluent boilerplate. With the defaults it drops every short ticket, and every page on a language with brackets.

A line of prose has three words, none over 1,000 characters, and ends in . ? ! " or ', not in "..."; lines that name
JavaScript, cookies, a privacy policy or terms of use are none. The published code also removes all other lines from the
text: a filter here never changes a text. Sentences are counted by one rule for all languages (kernels/prose.py); for
the phrases, ASCII letters are compared in any case, and only where one of their words stands by itself somewhere.
"""

from dataclasses import dataclass

from pipeline.filters.rules import Example, Rule, check_counts


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit."""

    max_lorem_ipsum_lines: int | None = 0
    max_curly_bracket_lines: int | None = 0
    min_sentences: int | None = 5

    def __post_init__(self) -> None:
        check_counts(self, "max_lorem_ipsum_lines", "max_curly_bracket_lines", "min_sentences")


RULES = (
    Rule(
        reason="lorem_ipsum",
        setting="max_lorem_ipsum_lines",
        values=lambda statistics, _: statistics.num_lorem_ipsum_lines,
    ),
    Rule(
        reason="curly_bracket",
        setting="max_curly_bracket_lines",
        values=lambda statistics, _: statistics.num_curly_bracket_lines,
    ),
    Rule(
        reason="too_few_sentences",
        setting="min_sentences",
        values=lambda statistics, _: statistics.num_prose_sentences,
    ),
)

_FIVE = "It is late. Is it? It is! We go home now. Good night to all."

EXAMPLES = (
    Example(_FIVE, None),
    Example("Уже поздно. Правда? Да! Мы идём домой. Всем доброй ночи.", None),
    Example(f"{_FIVE}\nLorem ipsum dolor sit amet.", "lorem_ipsum"),
    Example(f"{_FIVE}\nThe body is {{x}} by default.", "curly_bracket"),
    Example(f"{_FIVE}\nif (x) {{", None),
    Example("Home\nNews\nContact", "too_few_sentences"),
    Example("It is late. We go home now. Good night.", "too_few_sentences"),
    Example("It is late. We go home now. Good night.", None, Settings(min_sentences=3)),
    Example(f"{_FIVE[:-1]}, and turn on JavaScript.", "too_few_sentences"),
)
