"""One line end: LF.

Changes  CR LF, CR, vertical tab and form feed become LF.
Why      two files that differ in line ends only are one text, for duplicates and for a model.
Keeps    U+0085, U+2028 and U+2029: they are rare, deliberate and text.
"""

from pipeline.transforms.transform import Transform


def _apply(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\v", "\n").replace("\f", "\n")


TRANSFORM = Transform(
    name="newlines",
    off="keep",
    code_points=lambda: (0x0B, 0x0C, 0x0D),
    apply=_apply,
    examples=(
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("page\fpage", "page\npage"),
        ("\r\r\n\n", "\n\n\n"),
        ("a\u2028b\x85c", "a\u2028b\x85c"),
    ),
)
