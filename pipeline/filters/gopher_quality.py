"""Drop documents that do not look like running text.

Drops   documents whose number of words, mean word length, symbols a word, bullet or ellipsis lines, words without a
        letter, or lack of stop words are outside the limits.
Why     lists of links, tables of numbers, cut-off teasers and machine output teach a model their form and no content.
Source  Rae et al. 2021 (Gopher), appendix A.1.1 and table A1; the defaults are theirs.
Misses  fluent nonsense and boilerplate. With the defaults it drops every short ticket and every text that is not
        English: see presets.py.

A word is what white space separates; one of nothing but punctuation does not count towards the number of words and
their mean length, but does towards every share of words, as in datatrove's filter. The hash sign and the ellipsis have
a limit each, as in the paper. Stop words are counted once each, in any case and with punctuation beside them;
`languages` is a choice, not a sum: two words of one of them are enough.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.filters.rules import Example, Rule, check_choices, check_counts, check_numbers, check_order, share
from pipeline.kernels.stop_words import LANGUAGES
from pipeline.kernels.text import Statistics


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit."""

    min_words: int | None = 50
    max_words: int | None = 100_000
    min_mean_word_chars: float | None = 3.0
    max_mean_word_chars: float | None = 10.0
    max_hash_signs_per_word: float | None = 0.1
    max_ellipses_per_word: float | None = 0.1
    max_bullet_line_fraction: float | None = 0.9
    max_ellipsis_line_fraction: float | None = 0.3
    min_alphabetic_word_fraction: float | None = 0.8
    min_stop_words: int | None = 2
    languages: tuple[str, ...] = ("en",)

    def __post_init__(self) -> None:
        check_counts(self, "min_words", "max_words", "min_stop_words")
        check_numbers(self, "min_mean_word_chars", "max_mean_word_chars")
        check_numbers(self, "max_hash_signs_per_word", "max_ellipses_per_word")
        check_numbers(self, "max_bullet_line_fraction", "max_ellipsis_line_fraction", most=1)
        check_numbers(self, "min_alphabetic_word_fraction", most=1)
        check_order(self, "min_words", "max_words")
        check_order(self, "min_mean_word_chars", "max_mean_word_chars")
        check_choices(self, "languages", LANGUAGES)


def _real_words(statistics: Statistics, _: Settings) -> np.ndarray:
    return statistics.num_words - statistics.num_symbol_words


def _mean_word_chars(statistics: Statistics, settings: Settings) -> np.ndarray:
    chars = statistics.num_word_chars - statistics.num_symbol_word_chars
    return share(chars, _real_words(statistics, settings))


def _stop_words(statistics: Statistics, settings: Settings) -> np.ndarray:
    counts: np.ndarray = np.max([statistics.num_stop_words(language) for language in settings.languages], axis=0)
    return counts


RULES = (
    Rule(reason="too_few_words", setting="min_words", values=_real_words),
    Rule(reason="too_many_words", setting="max_words", values=_real_words),
    Rule(reason="words_too_short", setting="min_mean_word_chars", values=_mean_word_chars),
    Rule(reason="words_too_long", setting="max_mean_word_chars", values=_mean_word_chars),
    Rule(
        reason="too_many_hash_signs",
        setting="max_hash_signs_per_word",
        values=lambda statistics, _: share(statistics.num_hash_signs, statistics.num_words),
    ),
    Rule(
        reason="too_many_ellipses",
        setting="max_ellipses_per_word",
        values=lambda statistics, _: share(statistics.num_ellipses, statistics.num_words),
    ),
    Rule(
        reason="too_many_bullet_lines",
        setting="max_bullet_line_fraction",
        values=lambda statistics, _: share(statistics.num_bullet_lines, statistics.num_lines),
    ),
    Rule(
        reason="too_many_ellipsis_lines",
        setting="max_ellipsis_line_fraction",
        values=lambda statistics, _: share(statistics.num_ellipsis_lines, statistics.num_lines),
    ),
    Rule(
        reason="too_few_alphabetic_words",
        setting="min_alphabetic_word_fraction",
        values=lambda statistics, _: share(statistics.num_alphabetic_words, statistics.num_words),
    ),
    Rule(reason="too_few_stop_words", setting="min_stop_words", values=_stop_words),
)


_TEN = Settings(min_words=10)
_RUSSIAN = Settings(min_words=10, languages=("en", "ru"))

EXAMPLES = (
    Example("The printer on the second floor does not print.", "too_few_words"),
    Example("The printer on the second floor does not print, and that is all we have to say. " * 4, None),
    Example("один два три " * 4, "too_many_words", Settings(min_words=10, max_words=11)),
    Example("a b c d e f g h i j k l to be", "words_too_short", _TEN),
    Example("the configuration of authentication-certificates " * 4, "words_too_long", _TEN),
    Example("#chapter the beginning of #section and that #paragraph with the ending", "too_many_hash_signs", _TEN),
    Example("the words of it... and that is... nearly all of it... to be read", "too_many_ellipses", _TEN),
    Example(
        "- the first of many words\n- something to be read later\n  • and that completes everything",
        "too_many_bullet_lines",
        _TEN,
    ),
    Example(
        "more of the articles ... \nthe end of all that is to be read, word by word\n",
        "too_many_ellipsis_lines",
        _TEN,
    ),
    Example("the 2021 of 2022 to 2023 1002 2001 1000 20010 2003 400 6000", "too_few_alphabetic_words", _TEN),
    Example("The printer on the second floor does not print since the move on Monday.", "too_few_stop_words", _TEN),
    Example("The printer of the second floor does not print since the move on Monday.", None, _TEN),
    Example("Принтер на втором этаже не печатает с тех пор, как мы переехали.", "too_few_stop_words", _TEN),
    Example("Принтер на втором этаже не печатает с тех пор, как мы переехали.", None, _RUSSIAN),
)
