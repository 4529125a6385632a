"""Numbers of Russian passports.

Replaces  series and number (4508 123456, 45 08 № 123456) after a form of the word паспорт or серия. There is no check
          digit, so the word has to be there.
Misses    numbers without the word, foreign passports, other documents.
"""

import re

from pipeline.redaction.rule import PASSPORT, Rule, Span

_NUMBER = re.compile(
    r"(?:паспорт\w{0,4}|сери[яиюей]{1,2})[^\d\n]{0,60}?(?<!\d)"
    r"(\d\d ?\d\d[ ,]*(?:№|n|no\.?|номер\w{0,2})?[ :]*\d{6})(?!\d)",
    re.IGNORECASE,
)


def _find(content: bytes, place: int) -> Span | None:
    window = content[place : place + 240].decode("utf-8", "ignore")
    found = _NUMBER.match(window)
    if found is None:
        return None
    start = place + len(window[: found.start(1)].encode())
    return start, start + len(found[1].encode())


RULE = Rule(
    name="passport",
    placeholder="[PASSPORT]",
    triggers=(PASSPORT,),
    find=_find,
    examples=(
        ("паспорт 4508 123456 выдан", "паспорт [PASSPORT] выдан"),
        ("Паспорт серии 45 08 № 123456", "Паспорт серии [PASSPORT]"),
        ("серия 4508 номер 123456", "серия [PASSPORT]"),
        ("ПАСПОРТ 4508 123456, СЕРИЯ 4508 НОМЕР 123456", "ПАСПОРТ [PASSPORT], СЕРИЯ [PASSPORT]"),
        ("паспорт изделия 2024", "паспорт изделия 2024"),
        ("заказ 4508 123456", "заказ 4508 123456"),
    ),
)
