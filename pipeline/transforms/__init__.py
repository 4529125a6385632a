"""Cleaning: every change of the text happens here; readers and filters never change it.

    texts -> scan: which could change at all -> TRANSFORMS in order, on those only -> texts, and which ones changed

Clean text passes by reference. Cleaning is idempotent: the transforms run until the text stands still (removing a
joiner can bring a letter and its accent together), and what stands still once stands still for ever. A new transform is
one file here, one line in TRANSFORMS and one field in the config's CleanConfig.
"""

import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.config import CleanConfig
from pipeline.kernels.arrow import replaced
from pipeline.transforms import (
    control_characters,
    disclaimers,
    forwarded_headers,
    mojibake,
    newlines,
    quoted_replies,
    signatures,
    unicode,
    zero_width,
)
from pipeline.transforms.scan import flags_of
from pipeline.transforms.transform import Transform

__all__ = ["TRANSFORMS", "Cleaned", "Transform", "clean", "clean_text"]

# In order: mojibake is made of control characters, so it is repaired before they go; what is removed first can no
# longer stand between a CR and its LF or a letter and its accent; parts of a mail are told apart in clean lines.
TRANSFORMS: tuple[Transform, ...] = (
    mojibake.TRANSFORM,
    control_characters.TRANSFORM,
    newlines.TRANSFORM,
    zero_width.TRANSFORM,
    unicode.TRANSFORM,
    quoted_replies.TRANSFORM,
    forwarded_headers.TRANSFORM,
    signatures.TRANSFORM,
    disclaimers.TRANSFORM,
)
# Each round costs the text's length, and a text can be made that needs as many rounds as it has lines.
MAX_ROUNDS = 100
_MOJIBAKE = 1 << TRANSFORMS.index(mojibake.TRANSFORM)


@functools.cache
def _needed(flags: int, wanted: int) -> tuple[Transform, ...]:
    """By a text's flags: the transforms it needs. The others stay without work whatever these do, since none brings in
    a code point that another one looks at; save mojibake, whose repair can bring in any.
    """
    chosen = wanted if flags & _MOJIBAKE else flags
    return tuple(transform for index, transform in enumerate(TRANSFORMS) if chosen >> index & 1)


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """`text`: the cleaned texts in the order given, nulls kept. `changed`: bool (n,), whether cleaning changed it."""

    text: pa.LargeStringArray
    changed: np.ndarray


def clean(text: pa.LargeStringArray, settings: CleanConfig) -> Cleaned:
    """Every text cleaned as `settings` say."""
    wanted = sum(1 << index for index, one in enumerate(TRANSFORMS) if getattr(settings, one.name) != one.off)
    flags = flags_of(text, _table()) & np.uint16(wanted)
    changed = np.zeros(len(text), bool)
    replacements: list[str] = []
    suspects = np.flatnonzero(flags)
    for index, before in zip(suspects, text.take(pa.array(suspects)).to_pylist(), strict=True):
        after = clean_text(before, _needed(int(flags[index]), wanted))
        if after != before:
            changed[index] = True
            replacements.append(after)
    if replacements:
        text = replaced(text, changed, pa.array(replacements, pa.large_string()))
    return Cleaned(text=text, changed=changed)


def clean_text(text: str, transforms: tuple[Transform, ...] = TRANSFORMS) -> str:
    """One text through `transforms`, again and again until nothing changes: two or three rounds, MAX_ROUNDS at most."""
    for _ in range(MAX_ROUNDS):
        cleaned = text
        for transform in transforms:
            cleaned = transform.apply(cleaned)
        if cleaned == text:
            return cleaned
        text = cleaned
    return text


@functools.cache
def _table() -> np.ndarray:
    """uint16 (0x110000,): bit i is set where TRANSFORMS[i] looks at the code point."""
    table = np.zeros(0x110000, np.uint16)
    for index, transform in enumerate(TRANSFORMS):
        table[np.fromiter(transform.code_points(), np.int64)] |= np.uint16(1 << index)
    return table
