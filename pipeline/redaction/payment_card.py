"""Payment cards.

Replaces  numbers of a known issuer's beginning and length whose Luhn digit fits, in one piece or in the groups that are
          printed on cards, with spaces or hyphens.
Keeps     any other long number: one in ten fits Luhn by chance, far fewer also have an issuer's beginning (2.4 % of all
          16-digit numbers pass both); digits in one piece after a word such as заказ, order or артикул, or a hash's
          name, or with a letter behind.
Source    ISO/IEC 7812-1; issuers' ranges as published by Visa, Mastercard, Mir, American Express, Discover, UnionPay
          and JCB.
"""

import re

from pipeline.redaction.rule import DIGITS, Rule, Span, before, cluster, luhn

_SHAPES = re.compile(
    r"\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?(?!\d|-\d)|\d{4}([ -])\d{6}\2\d{5}(?!\d|-\d)|\d{13,19}(?!\d|-\d)"
)
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|2720\d{12}|220[0-4]\d{12,15}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14,17}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}"
)
# An equals sign is mostly a parameter of a URL; not after these.
_NAMED = re.compile(r"(?:\bpan|\bcc|card(?:[ _-]?(?:no|num|number))?|карт\w{0,2})[\"']?\s?=$")
# Digits in one piece after these are a number of something else.
_NUMBERED = re.compile(
    r"(?:заказ\w{0,3}|заявк\w{1,3}|тикет\w{0,3}|обращени\w{1,3}|накладн\w{1,3}|договор\w{0,3}|артикул\w{0,2}|трек\w{0,3}"
    r"|штрихкод\w{0,2}|\border|invoice|ticket|tracking|barcode|\bbug|issue|serial|\bsku|\bart\.|transaction|транзакци\w{1,3}"
    r"|\bsha-?\d{1,3}|\bmd5|hash|digest|commit|checksum)"
    r"[ _-]?(?:№|#|\bn\b|id|no\.?|номер\w{0,2}|number)?[\"']?[\s:№#=.-]{0,4}$"
)
# Policies of Russian health insurance have sixteen digits too.
_POLICY = re.compile(r"полис|страхован|\bомс\b")


def _find(content: bytes, place: int) -> Span | None:
    found = _SHAPES.match(cluster(content, place))
    context = before(content, place)
    if found is None or context[-1:] in ("+", ".", "-", "/") or (context[-1:] == "=" and not _NAMED.search(context)):
        return None
    if _POLICY.search(context) or (found[0].isdigit() and _NUMBERED.search(context)):
        return None
    if content[place + len(found[0]) :][:1].isalpha():
        return None  # the beginning of a hash
    digits = re.sub(r"\D", "", found[0])
    if not _ISSUERS.fullmatch(digits) or len(set(digits)) < 2 or not luhn(digits):
        return None
    return place, place + len(found[0])


RULE = Rule(
    name="payment_card",
    placeholder="[PAYMENT_CARD]",
    triggers=(DIGITS,),
    find=_find,
    examples=(
        ("карта 4111 1111 1111 1111 до 12/27", "карта [PAYMENT_CARD] до 12/27"),
        ("2200-0000-0000-0053, 5555555555554444", "[PAYMENT_CARD], [PAYMENT_CARD]"),
        ("amex 3782 822463 10005", "amex [PAYMENT_CARD]"),
        ("PAN=4111111111111111 ?id=4111111111111111", "PAN=[PAYMENT_CARD] ?id=4111111111111111"),
        ("полис ОМС 4650400843000016", "полис ОМС 4650400843000016"),
        ("заказ 4111111111111112", "заказ 4111111111111112"),
        ("Заказ № 4111111111111111, order 4111111111111111", "Заказ № 4111111111111111, order 4111111111111111"),
        ("sha256:4111111111111111 4111111111111111ab", "sha256:4111111111111111 4111111111111111ab"),
        ("1711965600123456 9780306406157", "1711965600123456 9780306406157"),
    ),
)
