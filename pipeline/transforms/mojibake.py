"""Repair mojibake: text that was decoded by a wrong character set on its way. Off unless asked for.

Changes  `РїСЂРёРІРµС‚` and `Ð¿Ñ€Ð¸Ð²ÐµÑ‚` become `привет`, `donâ€™t` becomes `don’t`, wherever ftfy is sure of it.
         UTF-8 read as koi8-r (`п©я─п╦п╡п╣я┌`) is repaired too, which ftfy does not know, and so is koi8-r that first
         was read as latin-1 (`ц▄ц┴ц⌠ц■`): both stand in Russian web pages and archives of before 2010.
Why      an export read as windows-1251 or latin-1 instead of UTF-8 is noise to a tokenizer and a second copy to nobody.
Keeps    everything else ftfy would do: entities, quotes, ligatures and widths stay as they are (fix_encoding only).
         Tables drawn with box characters: a letter stands before nearly each of those in mojibake, in a table before
         few.
Source   ftfy 6 (Robyn Speer), heuristics of its `badness` module.
Misses   text whose bytes were lost on the way (`????`), koi8-r read as windows-1251, and short words that may be
         either.
"""

import re
from itertools import groupby

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
    return {*range(0x80, 0xA0), *map(ord, seen), *range(_FIRST_BOX, _LAST_BOX + 1)}


# What koi8-r makes of UTF-8: a first byte is a letter, most later bytes are box drawings, which few texts hold.
_FIRST_BOX, _LAST_BOX = 0x2500, 0x25A0
_BOX = re.compile("[\u2500-\u25a0]")
# Some tables of koi8-r have a bullet for 0x95, where the standard has a bullet operator.
_BULLETS = str.maketrans("•", "∙")
_LATER = "[•" + re.escape(bytes(range(0x80, 0xC0)).decode("koi8-r")) + "]"
_OF_TWO, _OF_THREE = (bytes(range(first, end)).decode("koi8-r") for first, end in ((0xC2, 0xE0), (0xE0, 0xF0)))
_CHARACTERS = re.compile(f"(?:[{_OF_TWO}]{_LATER}|[{_OF_THREE}]{_LATER}{_LATER})+")
# Below that it may be a letter beside a frame.
_MIN_BOXES = 4


def _from_koi8(text: str) -> str:
    boxes = len(_BOX.findall(text))
    if boxes < _MIN_BOXES:
        return text
    inside = sum(len(_BOX.findall(run)) for run in _CHARACTERS.findall(text))
    return _CHARACTERS.sub(_read_again, text) if 2 * inside > boxes else text


def _read_again(found: re.Match[str]) -> str:
    try:
        decoded = found[0].translate(_BULLETS).encode("koi8-r").decode("utf-8")
    except UnicodeDecodeError:
        return found[0]
    # What is left in the upper half of latin-1 was koi8-r before.
    parts = ["".join(part) for _, part in groupby(decoded, lambda character: "\x80" <= character <= "\xff")]
    return "".join(part.encode("latin-1").decode("koi8-r") if "\x80" <= part[0] <= "\xff" else part for part in parts)


def _apply(text: str) -> str:
    text = _from_koi8(text)
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
        ("п©я─п╦п╡п╣я┌", "привет"),
        ("ц░ц┘ц▓ц┘ц░ц▐ц▄ц▌ц┘ц▌ц┴ц┘ ц▀ц•ц·ц┴", "переполнение кучи"),
        ("┌─────────┐\n│ копён я │\n└─────────┘", "┌─────────┐\n│ копён я │\n└─────────┘"),
        ("Русский текст и café, № 5 — всё на месте", "Русский текст и café, № 5 — всё на месте"),
    ),
)
