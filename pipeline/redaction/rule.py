"""What a redaction rule is."""

import re
from collections.abc import Callable
from dataclasses import dataclass

# Why a place in a text is looked at: what scan.py found there.
AT, DIGITS, DOTTED, COLONS, ACCOUNT, SECRET, BLOCK, PASSPORT = range(8)
Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One kind of thing that is replaced by its placeholder.

    `name` is its key in the config's `redact`; `triggers` are the kinds of places it looks at. `find(content, place)`
    gets a document's UTF-8 bytes and the offset of such a place, and gives the byte span to replace, or None. It looks
    at a bounded stretch around the place, so that time grows with the text only. `examples` are (text, redacted text)
    and serve as its tests.
    """

    name: str
    placeholder: str
    triggers: tuple[int, ...]
    find: Callable[[bytes, int], Span | None]
    examples: tuple[tuple[str, str], ...]


def cluster(content: bytes, place: int) -> str:
    """The digits and separators from `place` on, at most CLUSTER_BYTES, as text."""
    found = _CLUSTER.match(content, place, place + CLUSTER_BYTES)
    return found[0].decode("utf-8", "replace") if found else ""


def before(content: bytes, place: int, num_bytes: int = 60) -> str:
    """The text right before `place`, in lower case; what is cut of a character becomes U+FFFD."""
    return content[max(0, place - num_bytes) : place].decode("utf-8", "replace").lower()


def behind(content: bytes, end: int, num_bytes: int = 24) -> str:
    """The text right after a find, in lower case."""
    return content[end : end + num_bytes].decode("utf-8", "replace").lower()


def luhn(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit of the others (ISO/IEC 7812-1)."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 * (value > 9)
    return total % 10 == 0


CLUSTER_BYTES = 64
_CLUSTER = re.compile(rb"(?:[0-9]|[ ().-]|\xc2\xa0|\xe2\x80[\x91-\x93])+")
