"""Numbers of Russian passports.

Replaces  series and number (4508 123456, 45 08 № 123456) after a form of the word паспорт or серия, or passport. There
          is no check digit, so the word has to be there.
Misses    numbers without the word, foreign passports, other documents.
"""

import re

from pipeline.redaction.rule import DIGITS, PASSPORT, Rule, Span, before

_VALUE = r"(\d\d ?\d\d[ ,]*(?:№|n|no\.?|номер\w{0,2}|number)?[ :]*\d{6})(?!\d)"
_NUMBER = re.compile(
    rf"(?:паспорт\w{{0,4}}|сери[яиюей]{{1,2}})[^\d\n]{{0,60}}?(?<!\d){_VALUE}",
    re.IGNORECASE,
)
_ALONE = re.compile(_VALUE, re.IGNORECASE)
_LATIN = re.compile(r"(?<!\[)\bpass?port[^\d\n]{0,30}$")


def _find(content: bytes, place: int) -> Span | None:
    window = content[place : place + 240].decode("utf-8", "ignore")
    if window[:1].isdigit():  # the Latin word is looked for before digits: no place of its own
        found = _ALONE.match(window) if _LATIN.search(before(content, place)) else None
    else:
        found = _NUMBER.match(window)
    if found is None:
        return None
    start = place + len(window[: found.start(1)].encode())
    return start, start + len(found[1].encode())


RULE = Rule(
    name="passport",
    placeholder="[PASSPORT]",
    triggers=(PASSPORT, DIGITS),
    find=_find,
    examples=(
        ("паспорт 4508 123456 выдан", "паспорт [PASSPORT] выдан"),
        ("Паспорт серии 45 08 № 123456", "Паспорт серии [PASSPORT]"),
        ("серия 4508 номер 123456", "серия [PASSPORT]"),
        ("ПАСПОРТ 4508 123456, СЕРИЯ 4508 НОМЕР 123456", "ПАСПОРТ [PASSPORT], СЕРИЯ [PASSPORT]"),
        ("Passport 4508 123456, passport No. 45 08 123456", "Passport [PASSPORT], passport No. [PASSPORT]"),
        ("паспорт изделия 2024", "паспорт изделия 2024"),
        ("заказ 4508 123456", "заказ 4508 123456"),
    ),
)
