"""Our verdicts against datatrove's, filter by filter and reason by reason, and a cause for every difference."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pipeline.filters import FILTERS
from pipeline.filters.rules import judge
from pipeline.kernels.stop_words import STOP_WORDS
from pipeline.kernels.text import analyse

OURS = {
    "dup_para_frac": "too_many_duplicate_paragraphs",
    "dup_para_char_frac": "too_many_duplicate_paragraph_chars",
    "dup_line_frac": "too_many_duplicate_lines",
    "dup_line_char_frac": "too_many_duplicate_line_chars",
    **{f"top_{n}_gram": f"too_frequent_{n}gram" for n in (2, 3, 4)},
    **{f"duplicated_{n}_n_grams": f"too_many_duplicate_{n}grams" for n in range(5, 11)},
    "gopher_short_doc": "too_few_words",
    "gopher_long_doc": "too_many_words",
    "gopher_below_avg_threshold": "words_too_short",
    "gopher_above_avg_threshold": "words_too_long",
    "gopher_too_many_hashes": "too_many_hash_signs",
    "gopher_too_many_ellipsis": "too_many_ellipses",
    "gopher_too_many_bullets": "too_many_bullet_lines",
    "gopher_too_many_end_ellipsis": "too_many_ellipsis_lines",
    "gopher_below_alpha_threshold": "too_few_alphabetic_words",
    "gopher_enough_stop_words": "too_few_stop_words",
    "line_punct_ratio": "too_few_terminal_lines",
    "short_line_ratio": "too_many_short_lines",
    "char_dup_ratio": "too_many_duplicate_line_chars",
    "list_ratio": "too_many_newlines",
}
"""datatrove's reason -> ours; C4's are spelled alike."""

_OTHER_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_PHRASES = re.compile("javascript|lorem ipsum|terms of use|privacy policy|cookie", re.IGNORECASE)


def _is_about(reasons: str) -> Callable[[str | None, str | None], bool]:
    return lambda theirs, ours: re.search(reasons, f"{theirs} {ours}") is not None


def _stop_words_differ(text: str) -> bool:
    wanted = set(STOP_WORDS["en"])
    theirs, ours = set(text.split()) & wanted, set(re.findall(r"\w+", text.lower())) & wanted
    return len(theirs) < 2 <= len(ours)


def _joined_differ(text: str) -> bool:
    words = text.split()
    for n in range(5, 11):
        ngrams = [tuple(words[place : place + n]) for place in range(len(words) - n + 1)]
        if len(set(ngrams)) != len({"".join(ngram) for ngram in ngrams}):
            return True
    return False


CAUSES: tuple[tuple[str, Callable[[str, str | None, str | None], bool]], ...] = (
    ("a text without words: datatrove calls it empty, or divides by zero", lambda text, *_: not text.strip()),
    (
        'stop words: ours count "The" and "of," too, theirs only the word in small letters between spaces',
        lambda text, *both: _is_about("stop_words")(*both) and _stop_words_differ(text),
    ),
    (
        "line ends other than \\n: str.splitlines breaks there, and a build has unified them before",
        lambda text, *both: _is_about("lines|sentences|bracket")(*both) and _OTHER_LINE_ENDS.search(text) is not None,
    ),
    (
        "an empty string before the first or after the last line end counts as a line to datatrove",
        lambda text, *both: _is_about("_lines|_gram")(*both) and (text[:1] == "\n" or text[-1:] == "\n"),
    ),
    (
        "a phrase of C4 inside a longer word: ours are found as words",
        lambda text, *both: _is_about("sentences|bracket|lorem")(*both) and _PHRASES.search(text) is not None,
    ),
    (
        "n-grams: datatrove joins words without a space, so that `12 3` equals `1 23` (checked: it does here)",
        lambda text, *both: _is_about(r"duplicate_\d+gram")(*both) and _joined_differ(text),
    ),
)


def compare(text: pa.LargeStringArray, theirs: dict[str, Sequence[str | None]]) -> tuple[list[str], dict[str, Any]]:
    """(a Markdown table, the same as data): `theirs` has a reason or None a document, by filter."""
    statistics, _ = analyse(text)
    table = ["| filter | verdict | datatrove | ours | of these, both |", "|---|---|---|---|---|"]
    causes: Counter[tuple[str, str]] = Counter()
    data: dict[str, Any] = {}
    examples: dict[tuple[str, str], list[Any]] = {}
    total_same = total = 0
    for name, given in theirs.items():
        rules = FILTERS[name].RULES
        codes = judge(rules, statistics, FILTERS[name].Settings()).tolist()
        ours = [rules[code - 1].reason if code else None for code in codes]
        mapped = [OURS.get(reason, reason) if reason else None for reason in given]
        assert len(ours) == len(mapped), "both have judged the same documents"
        pairs = Counter(zip(mapped, ours, strict=True))
        for reason in [None, *(rule.reason for rule in rules)]:
            num_theirs = sum(count for (one, _), count in pairs.items() if one == reason)
            num_ours = sum(count for (_, one), count in pairs.items() if one == reason)
            same = pairs[reason, reason]
            if num_theirs or num_ours:
                table.append(f"| {name} | {reason or 'kept'} | {num_theirs:,} | {num_ours:,} | {same:,} |")
            total_same += same
        for reason in sorted({str(one) for one, _ in pairs} - {"None", *(rule.reason for rule in rules)}):
            num_theirs = sum(count for (one, _), count in pairs.items() if one == reason)
            table.append(f"| {name} | {reason} (theirs alone) | {num_theirs:,} | 0 | 0 |")
        total += len(ours)
        data[name] = {f"{one} / {other}": count for (one, other), count in sorted(pairs.items(), key=str)}
        for place, (one, other) in enumerate(zip(mapped, ours, strict=True)):
            if one != other:
                cause = next(
                    (told for told, holds in CAUSES if holds(text[place].as_py(), one, other)), "NOT EXPLAINED"
                )
                causes[name, cause] += 1
                examples.setdefault((name, cause), []).append((place, one, other))
    table += ["", f"{total_same:,} of {total:,} verdicts have the same reason. The others, each with its cause:", ""]
    table += ["| filter | documents | cause |", "|---|---|---|"]
    table += [f"| {name} | {count:,} | {cause} |" for (name, cause), count in sorted(causes.items())]
    data["causes"] = {f"{name}: {cause}": count for (name, cause), count in sorted(causes.items())}
    data["examples"] = {f"{name}: {cause}": rows[:5] for (name, cause), rows in sorted(examples.items())}
    return table, data
