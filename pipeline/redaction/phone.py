"""Telephone numbers, Russian and international.

Replaces  +country and 8 to 15 digits in all; Russian numbers with 8 or 7 before the code, in groups or, for mobile
          codes, in one piece; (495) 123-45-67; 555-123-4567 and (555) 123-4567; and, after a word such as тел. or
          phone, any 6 to 15 digits in groups.
Keeps     dates and times, sums of money and other quantities with their unit behind, coordinates, versions, order and
          invoice numbers, ISBN, hashes: digits of another shape, digits in one piece after №, #, or a word such as
          заказ or order.
Misses    short inner numbers, and groups without a code and without a word before them.
"""

import re

from pipeline.redaction.rule import DIGITS, Rule, Span, before, behind, cluster

_SEPARATOR = r"[ \u00a0\u2011\u2012\u2013-]"
_INTERNATIONAL = re.compile(
    rf"[1-9](?:{_SEPARATOR}?\(?\d{{1,5}}\)?)(?:{_SEPARATOR}?\(0\))?(?:{_SEPARATOR}{{0,2}}\d{{1,5}}){{1,6}}(?!\d)"
    # +7.916.123.45.67; four groups of up to three digits are an address.
    r"|(?!\d{1,3}(?:\.\d{1,3}){3}(?!\.?\d))[1-9]\d{0,2}(?:\.\d{2,4}){3,5}(?!\.?\d)"
)
_RUSSIAN = re.compile(
    rf"[78]{_SEPARATOR}?(?:\(\d{{3,5}}\)|\d{{3,4}}){_SEPARATOR}{{1,2}}\d{{2,3}}{_SEPARATOR}\d{{2}}{_SEPARATOR}?\d{{2}}(?!\d)"
    rf"|[78](?:{_SEPARATOR}?\(\d{{3}}\)|{_SEPARATOR}\d{{3}}){_SEPARATOR}?\d{{3}}{_SEPARATOR}\d{{4}}(?!\d)"
    rf"|[78]{_SEPARATOR}?\(\d{{3,5}}\){_SEPARATOR}?\d{{5,7}}(?!\d)"
)
_MOBILE = re.compile(r"[78]9\d{9}(?!\d)")
_CODE = re.compile(rf"\d{{3,5}}\){_SEPARATOR}?\d{{2,3}}{_SEPARATOR}\d{{2}}{_SEPARATOR}\d{{2}}(?!\d)")
_AMERICAN = re.compile(r"(?:1[ -])?[2-9]\d{2}-\d{3}-\d{4}(?![\d-])|[2-9]\d{2}\) ?\d{3}-\d{4}(?![\d-])")
_ANY = re.compile(rf"\d(?:[.() ]|{_SEPARATOR}){{0,2}}(?:\d(?:[.()]|{_SEPARATOR}){{0,2}}){{4,13}}\d(?!\d)")
_DATE = re.compile(r"(?:19|20)\d\d-[01]\d-[0-3]\d|(?<!\d)[0-3]?\d\.[01]?\d\.(?:19|20)\d\d")
_SPACED_DATE = re.compile(r"(?:0?[1-9]|[12]\d|3[01]) (?:0?[1-9]|1[0-2]) (?:19|20)\d\d|(?:19|20)\d\d [01]\d [0-3]\d")
_UNIT = re.compile(
    r"[\s\u00a0]?(?:руб|₽|р\.|коп|доллар|долл\.|евро|€|\$|£|тыс|млн|млрд|штук|шт\.|человек|чел\.|тонн|кг\b|км\b|байт|[кмг]б\b"
    r"|usd\b|eur\b|rub\b|rur\b|dollars|euros?\b|roubles|rubles|people|users|bytes|[kmgt]i?b\b|pcs\b|%)"
)
_COORDINATES = re.compile(r"\d{4,6}[-+]\d{5,7}(?!\d)")  # ISO 6709, +404121-0740240
_WORD = re.compile(
    r"(?:\bт\.|тел(?:\.|ефон\w{0,3})?|моб(?:\.|ильн\w{2,4})?|факс|звон\w{1,6}|позвон\w{1,6}|вотсап|whatsapp|viber|phone"
    r"|\btel|mobile|cell|fax|call(?: me)?(?: at| on)?)(?: номер\w?| number| no\.?)?[\s.:№=)]{0,4}\(?\+?$"
)
_NUMBERED = re.compile(
    r"(?:№|#|\bn\b|no\.|номер\w{0,2}|заказ\w{0,3}|заявк\w{1,3}|тикет\w{0,3}|сч[её]т\w{0,3}|договор\w{0,3}|артикул\w{0,2}"
    r"|инн|кпп|огрн|снилс|order|invoice|ticket|id|bug|issue|serial|sku)[\s:№#=.-]{0,4}$"
)


def _find(content: bytes, place: int) -> Span | None:
    group = cluster(content, place)
    context = before(content, place)
    opened = context.endswith("(")
    context = context.removesuffix("(")
    has_plus = context.endswith("+") and not context[-2:-1].isalnum()
    found = None
    if has_plus:
        found = _INTERNATIONAL.match(group)
        if found and not 10 - (not found[0].isdigit()) * 2 <= _num_digits(found[0]) <= 15:
            found = None
    elif _WORD.search(context):
        found = _ANY.match(group)
    elif context[-1:] in (".", "-", "/", "_", "+", "="):
        return None  # inside something longer: a path, a version, an identifier
    if not found and not has_plus:
        found = _RUSSIAN.match(group) or _AMERICAN.match(group)
        if not found and opened:
            found = _CODE.match(group)
        if not found and not _NUMBERED.search(context):
            found = _MOBILE.match(group)
        if found and _NUMBERED.search(context) and found[0].isdigit():
            return None
    if not found or (has_plus and _COORDINATES.fullmatch(found[0])):
        return None
    if (date := _DATE.search(group)) and date.start() < found.end():
        return None
    end = place + len(found[0].encode())
    if _SPACED_DATE.fullmatch(found[0]) or _UNIT.match(behind(content, end)):
        return None
    return place - opened - has_plus, end


def _num_digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


RULE = Rule(
    name="phone",
    placeholder="[PHONE]",
    triggers=(DIGITS,),
    find=_find,
    examples=(
        ("тел. +7 000 000-01-23, доб. 5", "тел. [PHONE], доб. 5"),
        ("Звоните 8 (495) 123-45-67 или 8-916-123-45-67.", "Звоните [PHONE] или [PHONE]."),
        ("мой 89161234567", "мой [PHONE]"),
        ("(495) 123-45-67", "[PHONE]"),
        ("Phone: 123-45-67", "Phone: [PHONE]"),
        ("call 555-123-4567 or (555) 123-4567", "call [PHONE] or [PHONE]"),
        ("+44 20 7946 0958 и +14155550100", "[PHONE] и [PHONE]"),
        ("заказ 89161234567 от 2024-03-05 10:15", "заказ 89161234567 от 2024-03-05 10:15"),
        ("версия 8.800.555.35, 2024-03-05 10:15:00", "версия 8.800.555.35, 2024-03-05 10:15:00"),
        ("-rw-r--r-- 1 root 7427273 2010-07-05 19:00", "-rw-r--r-- 1 root 7427273 2010-07-05 19:00"),
        ("Е. Т. 12.09.2018 г.р., +404121-0740240", "Е. Т. 12.09.2018 г.р., +404121-0740240"),
        ("позвоните 15 03 2024, факс 100 200 300 рублей", "позвоните 15 03 2024, факс 100 200 300 рублей"),
        ("прибыль +100 000 000 рублей", "прибыль +100 000 000 рублей"),
        ("+49 (0)30 1234567, +7.916.123.45.67", "[PHONE], [PHONE]"),
        ("(916) 123 45 67", "[PHONE]"),
        ("ISBN 978-5-699-12014-7", "ISBN 978-5-699-12014-7"),
        ("1711965600 1711965600123 id=20240305101500", "1711965600 1711965600123 id=20240305101500"),
    ),
)
