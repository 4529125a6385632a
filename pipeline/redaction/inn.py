"""Russian taxpayer numbers (ИНН).

Replaces  10 digits of an organisation, 12 of a person, after the word ИНН or INN, where the check digits fit.
Keeps     the same digits without the word: one 10-digit order number in eleven fits by chance.
Source    Order of the Federal Tax Service ММВ-7-6/435@, appendix: weights and modulo 11.
"""

import re

from pipeline.redaction.rule import DIGITS, Rule, Span, before

_NUMBER = re.compile(rb"\d{10}(?:\d{2})?(?!\d)")
_WORD = re.compile(r"(?:\bинн\b|(?<!\[)\binn\b|\btin\b)[^\d\n]{0,30}$")
_WEIGHTS = (3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)


def _find(content: bytes, place: int) -> Span | None:
    found = _NUMBER.match(content, place)
    if found is None or not _WORD.search(before(content, place, 80)) or not is_inn(found[0].decode("ascii")):
        return None
    return found.span()


def is_inn(digits: str) -> bool:
    """Whether the check digits fit."""
    numbers = [int(digit) for digit in digits]
    return (
        all(
            sum(weight * number for weight, number in zip(_WEIGHTS[11 - length :], numbers, strict=False)) % 11 % 10
            == numbers[length]
            for length in ((9,) if len(digits) == 10 else (10, 11))
        )
        and len(set(digits)) > 1
    )


RULE = Rule(
    name="inn",
    placeholder="[INN]",
    triggers=(DIGITS,),
    find=_find,
    examples=(
        ("ИНН 7707083893, КПП 773601001", "ИНН [INN], КПП 773601001"),
        ("ИНН: 500100732259", "ИНН: [INN]"),
        ("ИНН/КПП 7707083893/773601001", "ИНН/КПП [INN]/773601001"),
        ("ИНН 7707083894", "ИНН 7707083894"),
        ("заказ 7707083893", "заказ 7707083893"),
    ),
)
