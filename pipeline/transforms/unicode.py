"""Unicode NFC: one spelling for characters that look and mean the same.

Changes  a letter followed by its accents becomes the composed letter: `е` + U+0308 becomes `ё`.
Why      macOS and some PDFs write decomposed text; to a tokenizer, a filter and a hash it is another text.
Keeps    compatibility forms: x², №, ﬁ, ① stay (that would be NFKC, which changes meaning: x² is not x2).
Source   UAX 15. The tables are those of the running Python (unicodedata.unidata_version); the standard promises that
         NFC of assigned characters never changes, so versions differ in characters newer than the older one only.
"""

import sys
import unicodedata
from collections.abc import Iterator

from pipeline.transforms.transform import Transform


def _code_points() -> Iterator[int]:
    """Characters that NFC can change or that can change beside others: a text free of them is NFC already.

    Those are the ones with a combining class, the ones that NFC replaces, and every second half of a composition (UAX
    15, quick check "no" or "maybe"). 1.1 million look-ups, 0.3 s, once a process.
    """
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        if unicodedata.combining(character):
            yield point
        decomposition = unicodedata.decomposition(character)
        if decomposition and not decomposition.startswith("<"):
            yield from (int(half, 16) for half in decomposition.split()[1:])
            if unicodedata.normalize("NFC", character) != character:
                yield point
    # Hangul syllables compose by arithmetic (Unicode 3.12), so no decomposition lists their vowels and final
    # consonants.
    yield from range(0x1161, 0x1176)
    yield from range(0x11A8, 0x11C3)


def _apply(text: str) -> str:
    return unicodedata.normalize("NFC", text)


TRANSFORM = Transform(
    name="unicode",
    off="none",
    code_points=_code_points,
    apply=_apply,
    examples=(
        ("Е\u0308жик, й", "Ёжик, й"),
        ("cafe\u0301", "café"),
        ("x² №7 ﬁle ①", "x² №7 ﬁle ①"),
        ("\u1112\u1161\u11ab", "한"),
    ),
)
