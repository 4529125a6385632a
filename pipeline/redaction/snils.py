"""Russian social insurance numbers (СНИЛС).

Replaces  112-233-445 95 and the same with hyphens of any kind, where the check number fits; after the word СНИЛС or
          snils also 112-233-44595 and 11 digits in one piece.
Keeps     11 digits without groups and without the word.
Source    Pension Fund instruction: the sum of nine digits times 9 ... 1, modulo 101, 100 counting as 0.
"""

import re

from pipeline.redaction.rule import DIGITS, Rule, Span, before

_SEPARATOR = rb"(?:[- ]|\xc2\xa0|\xe2\x80[\x91-\x93])"
_GROUPS = re.compile(rb"\d{3}(?:%b\d{3}){2}%b\d{2}(?![\d-])" % (_SEPARATOR, _SEPARATOR))
_PIECE = re.compile(rb"(?:\d{11}|\d{3}%b\d{3}%b\d{5})(?![\d-])" % (_SEPARATOR, _SEPARATOR))
_WORD = re.compile(r"(?:снилс|(?<!\[)\bsnils)[^\d\n]{0,30}$")


def _find(content: bytes, place: int) -> Span | None:
    found = _GROUPS.match(content, place) if content[place - 1 : place] not in (b"-", b".") else None
    if found is None:
        found = _PIECE.match(content, place)
        if found is None or not _WORD.search(before(content, place, 80)):
            return None
    digits = [byte - 0x30 for byte in found[0] if 0x30 <= byte <= 0x39]
    total = sum((9 - index) * digit for index, digit in enumerate(digits[:9]))
    fits = total % 101 % 100 == 10 * digits[9] + digits[10]
    return found.span() if fits and len(set(digits)) > 1 else None


RULE = Rule(
    name="snils",
    placeholder="[SNILS]",
    triggers=(DIGITS,),
    find=_find,
    examples=(
        ("СНИЛС 112-233-445 95", "СНИЛС [SNILS]"),
        ("снилс: 11223344595", "снилс: [SNILS]"),
        ("snils: 11223344595, СНИЛС 112-233-44595", "snils: [SNILS], СНИЛС [SNILS]"),
        ("112‑233‑445‑95, код 112-233-44595", "[SNILS], код 112-233-44595"),
        ("112-233-445 96", "112-233-445 96"),
        ("номер 11223344595", "номер 11223344595"),
    ),
)
