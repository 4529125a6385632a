"""From what a configuration says to filters with their settings; and the presets, each by the kind of text it is for.

The published defaults are made for English web pages: on a corpus of documentation, tickets and mail they dropped
nearly every Russian document and most tickets (2,893 of 2,893 citizens' requests, 93 % of an IT help desk's). So each
preset loosens what its kind of text breaks for good reasons, stated beside the number, and keeps what finds garbage in
it. `@en` and `@ru` hold for documents detected as that language, the entry without for the rest: mixed texts, tables,
logs, other languages. docs/filters.md says what each preset dropped of 212 MB, read and judged.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from manifests.errors import UserError
from pipeline.filters import FILTERS
from pipeline.kernels.language_model import language_labels

_ENGLISH_OR_RUSSIAN = ["en", "ru"]


def _runs(*, top: float, duplicate: float) -> dict[str, Any]:
    """Settings of gopher_repetition about runs of words: one limit for all lengths, since a longer run is not worse.

    Twice is no repetition where a text has thirty words, so the commonest run counts from three times on.
    """
    tops = {f"max_top_{n}gram_char_fraction": top for n in (2, 3, 4)}
    duplicates = {f"max_duplicate_{n}gram_char_fraction": duplicate for n in range(5, 11)}
    return {**tops, **duplicates, "min_top_ngram_repeats": 3}


_PAGE: dict[str, Any] = {
    "min_words": 10,  # a page for one option or one menu entry is short and complete
    "min_mean_word_chars": 2.5,  # tables of error codes and key bindings
    "max_mean_word_chars": 15.0,  # Markdown counts a link with its address as one word
    "max_hash_signs_per_word": 0.3,  # Markdown headings, comments of a shell or of Python
    "max_ellipses_per_word": 0.2,  # menu entries: "File, Open..."
    "min_alphabetic_word_fraction": 0.4,  # signatures and tables have operators and numbers as words
    "min_stop_words": 1,
}
_TICKET: dict[str, Any] = {
    "min_words": None,  # "Не работает принтер" is a whole ticket
    "min_mean_word_chars": 1.5,
    "max_mean_word_chars": None,  # scripts without spaces have one word a clause; a pasted URL alone
    "max_hash_signs_per_word": 1.0,  # "see #12 #14": numbers of other tickets
    "max_ellipses_per_word": 1.0,  # "Спасибо..."
    "max_bullet_line_fraction": None,  # steps to reproduce
    "max_ellipsis_line_fraction": None,  # one line that trails off is all of its lines
    "min_alphabetic_word_fraction": 0.25,  # logs and stack traces
    "min_stop_words": None,  # keywords without grammar, and both languages in one sentence
}
_MAIL: dict[str, Any] = {
    "min_words": None,  # "Thanks, that solved it."
    "min_mean_word_chars": 2.0,
    "max_mean_word_chars": None,  # as for tickets
    "max_hash_signs_per_word": 1.0,
    "max_ellipses_per_word": 1.0,
    "max_bullet_line_fraction": None,
    "max_ellipsis_line_fraction": None,  # as for tickets: one line that trails off
    "min_alphabetic_word_fraction": 0.25,  # each ">" of a quotation is a word without a letter
    "min_stop_words": None,
}

PRESETS: dict[str, list[dict[str, dict[str, Any]]]] = {
    "none": [],
    # Rae et al. 2021 as published.
    "gopher": [{"gopher_repetition": {}}, {"gopher_quality": {}}],
    # Raffel et al. 2020, without its removal of lines.
    "c4": [{"c4": {}}],
    # Penedo et al. 2024, but for C4's line rules, which it used without the one on how a line ends.
    "fineweb": [
        {"language": {"languages": ["en"]}},
        {"gopher_repetition": {}},
        {"gopher_quality": {}},
        {"fineweb": {}},
    ],
    "documentation": [
        {"gopher_quality@en": {**_PAGE, "languages": ["en"]}},
        # Russian words are longer: their mean is 7.1 where English has 5.8.
        {"gopher_quality@ru": {**_PAGE, "languages": ["ru"], "max_mean_word_chars": 16.0}},
        {
            "gopher_quality": {
                **_PAGE,
                "max_mean_word_chars": None,  # scripts without spaces have one word a clause
                "min_alphabetic_word_fraction": 0.25,  # pages of nothing but tables and code
                "languages": _ENGLISH_OR_RUSSIAN,
            }
        },
        {
            "gopher_repetition": {
                # Reference pages repeat a line of syntax under each entry: a third of the lines in parts of Python's.
                "max_duplicate_paragraph_fraction": 0.4,
                "max_duplicate_paragraph_char_fraction": 0.3,
                "max_duplicate_line_fraction": 0.5,
                "max_duplicate_line_char_fraction": 0.35,
                # Advisories say the same of each flaw, pages of an API the same of each function: 0.3 dropped ten
                # pages of 21,443, all good ones.
                **_runs(top=0.25, duplicate=0.4),
            }
        },
    ],
    "tickets": [
        {"length": {}},
        # Over this the text is a pasted address or a dump: 11 at 998 of 1,000, in both languages.
        {"gopher_quality@en": {**_TICKET, "max_mean_word_chars": 25.0}},
        {"gopher_quality@ru": {**_TICKET, "max_mean_word_chars": 25.0}},
        {"gopher_quality": _TICKET},
        {
            "gopher_repetition": {
                "max_duplicate_paragraph_fraction": None,  # forms: half of their paragraphs are "n/a"
                "max_duplicate_paragraph_char_fraction": 0.5,
                "max_duplicate_line_fraction": 0.6,
                "max_duplicate_line_char_fraction": 0.5,
                **_runs(top=0.6, duplicate=0.5),  # the subject, then the same words in the text
            }
        },
    ],
    "correspondence": [
        {"length": {}},
        {"gopher_quality@en": {**_MAIL, "max_mean_word_chars": 25.0}},
        {"gopher_quality@ru": {**_MAIL, "max_mean_word_chars": 20.0}},
        {"gopher_quality": _MAIL},
        {
            "gopher_repetition": {
                "max_duplicate_paragraph_fraction": None,  # a mail quoted under its answer
                "max_duplicate_paragraph_char_fraction": 0.5,
                # Quoted empty lines (">") repeat by nature and hold no characters worth counting.
                "max_duplicate_line_fraction": None,
                "max_duplicate_line_char_fraction": 0.5,
                **_runs(top=0.4, duplicate=0.5),
            }
        },
    ],
}


def resolve(spec: str | Iterable[str | Mapping[str, Any]] | Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """(filter's name, its Settings) in the order they are asked.

    `spec` is a preset's name, or a list of filters, each a name (defaults) or {name: {setting: value}}, or one such
    mapping. `name@language` asks the filter of that language alone.

    Raises UserError for an unknown preset, filter or setting, naming the closest, and for a value a filter refuses.
    """
    if isinstance(spec, str):
        spec = PRESETS[_known(spec, PRESETS, "filters: no preset is called")]
    elif isinstance(spec, Mapping):
        spec = [spec]
    elif not isinstance(spec, list | tuple):
        raise UserError(f"filters: {spec!r} is neither a preset's name nor a list of filters: write [] for none")
    filters: dict[str, Any] = {}
    for entry in spec:
        for name, settings in _entry(entry).items():
            plain, at, language = str(name).partition("@")
            _known(plain, FILTERS, "filters: no filter is called")
            if at:
                _known(language, language_labels(), f"filters.{name}: no language is called")
            if name in filters:
                raise UserError(f"filters: {name} stands twice: put its settings together in one entry")
            filters[name] = _settings(name, settings)
    return tuple(filters.items())


def _entry(entry: Any) -> Mapping[Any, Any]:
    if isinstance(entry, str):
        return {entry: None}
    if isinstance(entry, Mapping):
        return entry
    raise UserError(f"filters: {entry!r} is not a filter: give a name or {{name: {{setting: value}}}}")


def _settings(name: str, values: Any) -> Any:
    kind = FILTERS[name.partition("@")[0]].Settings
    if values is not None and not isinstance(values, Mapping):
        raise UserError(
            f"filters.{name} is {values!r}: give its settings as {{setting: value}}, or nothing for defaults"
        )
    names = [field.name for field in dataclasses.fields(kind)]
    given = {
        _known(key, names, f"filters.{name}: no setting is called"): value for key, value in (values or {}).items()
    }
    try:
        # YAML has lists where frozen settings have tuples.
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
    except UserError as error:
        raise UserError(f"filters.{name}.{error}") from error


def _known(name: Any, names: Iterable[str], complaint: str) -> str:
    """`name` if it is among `names`."""
    names = sorted(names)
    if name in names:
        return str(name)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0)
    raise UserError(f"{complaint} {name!r}; the closest is {close[0]!r} (there are {', '.join(names)})")
