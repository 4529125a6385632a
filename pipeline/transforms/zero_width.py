"""Remove invisible characters that only break words apart for a program.

Changes  zero width space, word joiner, byte-order mark (zero width no-break space) and soft hyphen are removed. The
         joiners ZWNJ and ZWJ are removed unless they follow a character that they can act on.
Why      `па<ZWSP>роль` looks like `пароль` and is other tokens, other shingles and another word.
Keeps    joiners after letters and marks of the scripts that use them (Arabic, the Indic family, Khmer, Mongolian, ...)
         and after emoji: without ZWJ a family of four falls apart into four people. Direction marks stay: they order
         text.
Source   The Unicode Standard 15, sections 9.2, 12.1 and 23.2; UTS 51 (emoji ZWJ sequences).
"""

import re

from pipeline.transforms.transform import Transform

_ALWAYS = "\u00ad\u200b\u2060\ufeff"
_JOINERS = "\u200c\u200d"
# What a joiner may follow: Hebrew to Tibetan, Myanmar, Khmer and Mongolian, Tai Tham to Vedic, Indic extensions, Arabic
# forms, the historic and Indic scripts of plane 1; symbols and emoji with their modifiers, variation selector and tags.
_BASES = (
    "\u0590-\u0fff\u1000-\u109f\u1780-\u18af\u1a20-\u1cff\ua800-\uabff\ufb1d-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff"
    "\u2190-\u2bff\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f"
)
# A run of joiners goes or stays as one: the look-behind also refuses to start inside a run that stays.
_STRAY_JOINERS = re.compile(f"(?<![{_BASES}{_JOINERS}])[{_JOINERS}]+")


def _apply(text: str) -> str:
    for character in _ALWAYS:  # str.replace looks for one character at gigabytes a second, a pattern for four at 60 MB
        text = text.replace(character, "")
    if any(joiner in text for joiner in _JOINERS):
        text = _STRAY_JOINERS.sub("", text)
    return text


TRANSFORM = Transform(
    name="zero_width",
    off="keep",
    code_points=lambda: map(ord, _ALWAYS + _JOINERS),
    apply=_apply,
    examples=(
        ("па\u200bроль\ufeff", "пароль"),
        ("доку\u00adмент", "документ"),
        ("👨\u200d👩\u200d👧 и 🏳️\u200d🌈", "👨\u200d👩\u200d👧 и 🏳️\u200d🌈"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क्\u200dष", "क्\u200dष"),
        ("co\u200doperate\u200c", "cooperate"),
    ),
)
