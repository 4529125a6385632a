"""International bank account numbers.

Replaces  a country's two letters, two check digits and the account, in one piece or in groups of four, of the length that
          the country has and with a fitting remainder.
Source    ISO 13616-1: the number, its first four characters moved to the end and letters as 10 to 35, is 1 modulo 97.
"""

import re

from pipeline.redaction.rule import ACCOUNT, Rule, Span

_SHAPE = re.compile(rb"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){10,30}")
_LENGTHS = dict(
    pair.split(":")
    for pair in [
        "AD:24",
        "AE:23",
        "AL:28",
        "AT:20",
        "AZ:28",
        "BA:20",
        "BE:16",
        "BG:22",
        "BH:22",
        "BR:29",
        "BY:28",
        "CH:21",
        "CR:22",
        "CY:28",
        "CZ:24",
        "DE:22",
        "DK:18",
        "DO:28",
        "EE:20",
        "EG:29",
        "ES:24",
        "FI:18",
        "FO:18",
        "FR:27",
        "GB:22",
        "GE:22",
        "GI:23",
        "GL:18",
        "GR:27",
        "GT:28",
        "HR:21",
        "HU:28",
        "IE:22",
        "IL:23",
        "IQ:23",
        "IS:26",
        "IT:27",
        "JO:30",
        "KW:30",
        "KZ:20",
        "LB:28",
        "LI:21",
        "LT:20",
        "LU:20",
        "LV:21",
        "MC:27",
        "MD:24",
        "ME:22",
        "MK:19",
        "MR:27",
        "MT:31",
        "MU:30",
        "NL:18",
        "NO:15",
        "PK:24",
        "PL:28",
        "PS:29",
        "PT:25",
        "QA:29",
        "RO:24",
        "RS:22",
        "RU:33",
        "SA:24",
        "SE:24",
        "SI:19",
        "SK:24",
        "SM:27",
        "TN:24",
        "TR:26",
        "UA:29",
        "VA:22",
        "VG:24",
        "XK:20",
    ]
)


def _find(content: bytes, place: int) -> Span | None:
    found = _SHAPE.match(content, place, place + 48)
    wanted = int(_LENGTHS.get(content[place : place + 2].decode("ascii"), 0))
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
