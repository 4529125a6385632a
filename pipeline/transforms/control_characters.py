"""Remove control characters: NUL, escape sequences and their like.

Changes  C0 controls, DEL and C1 controls are removed; a terminal's escape sequence (ESC [ ... letter: colours, cursor
         moves) is removed whole, since `[31m` without its ESC is no text either.
Why      they come from terminals, logs and broken exports; NUL ends a string in much of what reads text.
Keeps    tab and line feed, which are text; CR, vertical tab and form feed, which end lines (see newlines); U+0085,
         which is a line separator and text like U+2028 and U+2029.
"""

import re

from pipeline.transforms.transform import Transform

_LINE_ENDS = {0x0A, 0x0B, 0x0C, 0x0D, 0x85}


def _code_points() -> set[int]:
    return {*range(0x20), 0x7F, *range(0x80, 0xA0)} - _LINE_ENDS - {0x09}


# ECMA-48, 5.4: a control sequence is ESC [, parameter bytes, intermediate bytes, one final byte.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_ONE_BYTE = bytes(point for point in sorted(_code_points()) if point < 0x80)
_C1 = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")


def _apply(text: str) -> str:
    if "\x1b" in text:
        text = _SEQUENCE.sub("", text)
    # In UTF-8, since there deleting goes at a gigabyte a second; a pattern over str takes fifteen times as long.
    content = text.encode("utf-8", "surrogatepass").translate(None, _ONE_BYTE)
    return _C1.sub(b"", content).decode("utf-8", "surrogatepass")


TRANSFORM = Transform(
    name="control_characters",
    off="keep",
    code_points=_code_points,
    apply=_apply,
    examples=(
        ("before\0after", "beforeafter"),
        ("\x1b[31mERROR\x1b[0m disk\x07 full\x7f", "ERROR disk full"),
        ("a\tb\nc", "a\tb\nc"),
        ("C1 \x80\x9f end", "C1  end"),
        ("one\x85two\u2028three", "one\x85two\u2028three"),
    ),
)
