"""From what a configuration says to filters with their settings; and the presets, each by the kind of text it is for.

The published defaults are made for English web pages: on a corpus of documentation, tickets and mail they dropped
nearly every Russian document and most tickets (2,893 of 2,893 citizens' requests, 93 % of an IT help desk's). So each
preset loosens what its kind of text breaks for good reasons, stated beside the number, and keeps what finds garbage in
it.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from manifests.errors import UserError
from pipeline.filters import FILTERS

_ENGLISH_OR_RUSSIAN = ["en", "ru"]

PRESETS: dict[str, list[dict[str, dict[str, Any]]]] = {
    "none": [],
    # Rae et al. 2021 as published.
    "gopher": [{"gopher_quality": {}}, {"repeated_lines": {}}],
    "documentation": [
        {
            "gopher_quality": {
                "min_words": 10,  # a page for one option or one menu entry is short and complete
                "min_mean_word_chars": 2.5,  # tables of error codes and key bindings
                "max_mean_word_chars": 15.0,  # Russian words, long paths and identifiers: 1 % of one source is over 15
                "max_hash_signs_per_word": 0.3,  # Markdown headings, comments of a shell or of Python
                "max_ellipses_per_word": 0.2,  # menu entries: "File, Open..."
                "min_alphabetic_word_fraction": 0.4,  # code, signatures and tables have operators and numbers as words
                "min_stop_words": 1,
                "languages": _ENGLISH_OR_RUSSIAN,
            }
        },
        # Reference pages repeat a line of syntax under each entry: a third of the lines in parts of Python's own.
        {"repeated_lines": {"max_duplicate_line_fraction": 0.5, "max_duplicate_line_char_fraction": 0.35}},
    ],
    "tickets": [
        {"length": {}},
        {
            "gopher_quality": {
                "min_words": None,  # "Не работает принтер" is a whole ticket
                "min_mean_word_chars": 1.5,
                "max_mean_word_chars": 25.0,  # a pasted URL or log line in a short text
                "max_hash_signs_per_word": 1.0,  # "see #12 #14": numbers of other tickets
                "max_ellipses_per_word": 1.0,  # "Спасибо..."
                "max_bullet_line_fraction": None,  # steps to reproduce
                "max_ellipsis_line_fraction": None,  # one line that trails off is all of its lines
                "min_alphabetic_word_fraction": 0.25,  # logs and stack traces
                "min_stop_words": None,  # keywords without grammar, and both languages in one sentence
            }
        },
        {"repeated_lines": {"max_duplicate_line_fraction": 0.6, "max_duplicate_line_char_fraction": 0.5}},
    ],
    "correspondence": [
        {"length": {}},
        {
            "gopher_quality": {
                "min_words": None,  # "Thanks, that solved it."
                "min_mean_word_chars": 2.0,
                "max_mean_word_chars": 25.0,
                "max_hash_signs_per_word": 1.0,
                "max_ellipses_per_word": 1.0,
                "max_bullet_line_fraction": None,
                "max_ellipsis_line_fraction": None,  # as for tickets: one line that trails off
                "min_alphabetic_word_fraction": 0.25,  # each ">" of a quotation is a word without a letter
                "min_stop_words": None,
            }
        },
        # Quoted empty lines (">") repeat by nature and hold no characters worth counting, so only characters count.
        {"repeated_lines": {"max_duplicate_line_fraction": None, "max_duplicate_line_char_fraction": 0.4}},
    ],
}


def resolve(spec: str | Iterable[str | Mapping[str, Any]] | Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """(filter's name, its Settings) in the order they are asked.

    `spec` is a preset's name, or a list of filters, each a name (defaults) or {name: {setting: value}}, or one such
    mapping.

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
            if _known(name, FILTERS, "filters: no filter is called") in filters:
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
    kind = FILTERS[name].Settings
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
