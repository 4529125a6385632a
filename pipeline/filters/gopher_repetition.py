"""Drop documents that say the same over and over.

Drops   documents where paragraphs or lines that repeat an earlier one are too many or hold too many of the characters;
        where the commonest run of two, three or four words holds too many; or where runs of five to ten words that
        occurred before do.
Why     menus, table frames, boilerplate and loops of a machine teach a model to loop.
Source  Rae et al. 2021 (Gopher), table A1; what the paper leaves open is as in datatrove's filter.
Misses  a template whose fields differ in every line; text repeated in other documents, which deduplication finds.

The first of equal things is no repeat. Lines and paragraphs are compared byte for byte; empty lines are not counted.
As published, a short text fails by its first pair of words alone, which "occurs most often, once":
`min_top_ngram_repeats` says from how many times on the commonest run counts.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.filters.rules import Example, Rule, check_counts, check_numbers, share
from pipeline.kernels.text import Statistics

_DUPLICATE_NGRAMS = (5, 6, 7, 8, 9, 10)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit. Fractions of characters are of all the document's."""

    max_duplicate_paragraph_fraction: float | None = 0.3
    max_duplicate_paragraph_char_fraction: float | None = 0.2
    max_duplicate_line_fraction: float | None = 0.3
    max_duplicate_line_char_fraction: float | None = 0.2
    max_top_2gram_char_fraction: float | None = 0.2
    max_top_3gram_char_fraction: float | None = 0.18
    max_top_4gram_char_fraction: float | None = 0.16
    max_duplicate_5gram_char_fraction: float | None = 0.15
    max_duplicate_6gram_char_fraction: float | None = 0.14
    max_duplicate_7gram_char_fraction: float | None = 0.13
    max_duplicate_8gram_char_fraction: float | None = 0.12
    max_duplicate_9gram_char_fraction: float | None = 0.11
    max_duplicate_10gram_char_fraction: float | None = 0.10
    min_top_ngram_repeats: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, "max_duplicate_paragraph_fraction", "max_duplicate_paragraph_char_fraction", most=1)
        check_numbers(self, "max_duplicate_line_fraction", "max_duplicate_line_char_fraction", most=1)
        check_numbers(self, *(f"max_top_{n}gram_char_fraction" for n in (2, 3, 4)), most=1)
        check_numbers(self, *(f"max_duplicate_{n}gram_char_fraction" for n in _DUPLICATE_NGRAMS), most=1)
        check_counts(self, "min_top_ngram_repeats")


def _top(n: int) -> Rule:
    def values(statistics: Statistics, settings: Settings) -> np.ndarray:
        columns = statistics.columns()
        counts = columns[f"num_top_{n}gram_repeats"] >= (settings.min_top_ngram_repeats or 0)
        return counts * share(columns[f"num_top_{n}gram_chars"], statistics.num_chars)

    return Rule(reason=f"too_frequent_{n}gram", setting=f"max_top_{n}gram_char_fraction", values=values)


def _duplicate(n: int) -> Rule:
    def values(statistics: Statistics, _: Settings) -> np.ndarray:
        return share(statistics.columns()[f"num_duplicate_{n}gram_chars"], statistics.num_chars)

    return Rule(reason=f"too_many_duplicate_{n}grams", setting=f"max_duplicate_{n}gram_char_fraction", values=values)


RULES = (
    Rule(
        reason="too_many_duplicate_paragraphs",
        setting="max_duplicate_paragraph_fraction",
        values=lambda statistics, _: share(statistics.num_duplicate_paragraphs, statistics.num_paragraphs),
    ),
    Rule(
        reason="too_many_duplicate_paragraph_chars",
        setting="max_duplicate_paragraph_char_fraction",
        values=lambda statistics, _: share(statistics.num_duplicate_paragraph_chars, statistics.num_chars),
    ),
    Rule(
        reason="too_many_duplicate_lines",
        setting="max_duplicate_line_fraction",
        values=lambda statistics, _: share(statistics.num_duplicate_lines, statistics.num_nonempty_lines),
    ),
    Rule(
        reason="too_many_duplicate_line_chars",
        setting="max_duplicate_line_char_fraction",
        values=lambda statistics, _: share(statistics.num_duplicate_line_chars, statistics.num_chars),
    ),
    *(_top(n) for n in (2, 3, 4)),
    *(_duplicate(n) for n in _DUPLICATE_NGRAMS),
)


_ONLY_LINES = {f"max_top_{n}gram_char_fraction": None for n in (2, 3, 4)} | {
    f"max_duplicate_{n}gram_char_fraction": None for n in _DUPLICATE_NGRAMS
}
_LOOP = " ".join(f"{i} the very same ten words come here again and again {i + 50}" for i in range(4))


def _only(n: int) -> Settings:
    """The one rule about runs of n words, with the published limit."""
    kept = Settings()
    names = [name for name in _ONLY_LINES if f"_{n}gram" not in name]
    return Settings(**dict.fromkeys(names), min_top_ngram_repeats=kept.min_top_ngram_repeats)


EXAMPLES = (
    Example("Home\n\nNews\n\nHome\n\nNews", "too_many_duplicate_paragraphs"),
    Example(
        "a\n\nb\n\nc\n\na paragraph that comes twice\n\na paragraph that comes twice",
        "too_many_duplicate_paragraph_chars",
    ),
    Example("Главная\nНовости\nГлавная\nНовости", "too_many_duplicate_lines"),
    Example("Home\nNews\nContact\nHome", None, Settings(max_duplicate_line_char_fraction=0.25, **_ONLY_LINES)),
    Example("a\nb\nc\na sentence that comes twice\na sentence that comes twice", "too_many_duplicate_line_chars"),
    Example("\n\n\none line among empty ones\n\n\n", None, Settings(**_ONLY_LINES)),
    Example("not again, not again, not again, said one of them to all the others", "too_frequent_2gram", _only(2)),
    Example("Не работает принтер", "too_frequent_2gram"),
    Example("Не работает принтер", None, Settings(min_top_ngram_repeats=2)),
    Example("yes of course yes of course, that is what they said that day", "too_frequent_3gram", _only(3)),
    Example("and so on and so on and so on, as they said", "too_frequent_4gram", _only(4)),
    *(Example(_LOOP, f"too_many_duplicate_{n}grams", _only(n)) for n in _DUPLICATE_NGRAMS),
)
