"""International bank account numbers.

Replaces  a country's two letters, two check digits and the account, in one piece or in groups of four, of the length
          that the country has and with a fitting remainder.
Source    ISO 13616-1: the number, its first four characters moved to the end and letters as 10 to 35, is 1 modulo 97.
"""

import re

from pipeline.redaction.rule import ACCOUNT, Rule, Span

_SHAPE = re.compile(rb"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){10,30}")
# By length: the countries.
_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "PT",
    26: "IS TR",
    27: "FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT",
    33: "RU",
}
_LENGTHS = {country: length for length, countries in _COUNTRIES.items() for country in countries.split()}


def _find(content: bytes, place: int) -> Span | None:
    found = _SHAPE.match(content, place, place + 48)
    wanted = _LENGTHS.get(content[place : place + 2].decode("ascii"), 0)
    if found is None or not wanted:
        return None
    number, end = "", place
    for byte in found[0]:
        end += 1
        if byte != 0x20:
            number += chr(byte)
        if len(number) == wanted:
            break
    if len(number) < wanted or content[end : end + 1].isalnum():
        return None
    moved = number[4:] + number[:4]
    return (place, end) if int("".join(str(int(character, 36)) for character in moved)) % 97 == 1 else None


RULE = Rule(
    name="iban",
    placeholder="[IBAN]",
    triggers=(ACCOUNT,),
    find=_find,
    examples=(
        ("IBAN: DE89 3704 0044 0532 0130 00.", "IBAN: [IBAN]."),
        ("GB82WEST12345698765432", "[IBAN]"),
        ("GB82WEST12345698765433", "GB82WEST12345698765433"),
        ("MD5 AB12CD34EF56", "MD5 AB12CD34EF56"),
    ),
)
