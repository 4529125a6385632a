"""Repair mojibake: text that was decoded by a wrong character set on its way. Off unless asked for.

Changes  `РїСЂРёРІРµС‚` and `Ð¿Ñ€Ð¸Ð²ÐµÑ‚` become `привет`, `donâ€™t` becomes `don’t`, wherever ftfy is sure of it.
Why      an export read as windows-1251 or latin-1 instead of UTF-8 is noise to a tokenizer and a second copy to nobody.
Keeps    everything else ftfy would do: entities, quotes, ligatures and widths stay as they are (fix_encoding only).
Source   ftfy 6 (Robyn Speer), heuristics of its `badness` module.
Misses   text whose bytes were lost on the way (`????`), koi8-r read as windows-1251, and short words that may be
         either.
"""

import ftfy
import ftfy.badness
import ftfy.chardata

from pipeline.transforms.transform import Transform


def _code_points() -> set[int]:
    """What UTF-8's first bytes look like in every character set that ftfy tries, and C1 controls, which it reads as
    windows-1252.
    """
    first = bytes(range(0xC2, 0xF5))
    seen = "".join(first.decode(name, "ignore") for name in ftfy.chardata.CHARMAP_ENCODINGS)
    return {*range(0x80, 0xA0), *map(ord, seen)}


def _apply(text: str) -> str:
    return ftfy.fix_encoding(text) if ftfy.badness.is_bad(text) else text


TRANSFORM = Transform(
    name="mojibake",
    off="keep",
    code_points=_code_points,
    apply=_apply,
    examples=(
        ("РџСЂРёРІРµС‚, СЌС‚Рѕ РїСЂРѕРІРµСЂРєР°", "Привет, это проверка"),
        ("Ð\x9fÑ\x80Ð¸Ð²ÐµÑ\x82", "Привет"),
        ("donâ€™t", "don’t"),
        ("Русский текст и café, № 5 — всё на месте", "Русский текст и café, № 5 — всё на месте"),
    ),
)
