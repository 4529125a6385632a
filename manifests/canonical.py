"""Canonical JSON, fingerprints and seeds: the same in every process, on every machine.

Everything durable is named by a fingerprint of its content, so two programs must write equal values as equal bytes.
Whatever could come out differently (set order, NaN, keys that JSON would quietly turn into strings) is refused.
"""

import hashlib
import json
from typing import Any

from manifests.errors import UserError


class CanonicalError(UserError):
    """A value that has no canonical JSON; the message names its place, e.g. `config.dedup.near`."""


def canonical_json(value: Any) -> bytes:
    """`value` as UTF-8 JSON: keys sorted by code point, no white space, non-ASCII unescaped.

    Numbers are written as Python's json writes them, so 1 and 1.0 differ. Tuples count as lists. Raises CanonicalError
    for NaN and infinities, keys that are not strings, lone surrogates, and any type JSON does not have.

    >>> canonical_json({"б": [1, 2.5], "a": None})
    b'{"a":null,"\\xd0\\xb1":[1,2.5]}'
    """
    _check(value, "value")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = text[error.start : error.start + 1]
        raise CanonicalError(
            f"a string holds the lone surrogate {bad!r}, which UTF-8 cannot hold: replace it"
        ) from None


def fingerprint(value: Any) -> str:
    """`sha256:` and 64 hex digits over the canonical JSON of `value`."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


def derived_seed(*parts: str | int) -> int:
    """An unsigned 64-bit seed from named parts: the first 8 bytes, little-endian, of sha256(canonical_json(parts)).

    Parts are hashed, never added up: with sums, seed 42 in epoch 1 would equal seed 43 in epoch 0.
    """
    return int.from_bytes(hashlib.sha256(canonical_json(list(parts))).digest()[:8], "little")


# Exact types: subclasses (IntEnum, numpy.float64, str enums) print differently from one Python or library to the next.
_PLAIN = frozenset({str, int, bool, type(None)})


def _check(value: Any, where: str) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise CanonicalError(f"{where} has the key {key!r} of type {type(key).__name__}: make it a string")
            if type(item) not in _PLAIN:
                _check(item, f"{where}.{key}")
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            if type(item) not in _PLAIN:
                _check(item, f"{where}[{index}]")
    elif kind is float:
        if value - value != 0.0:  # only NaN and the infinities differ from themselves or leave NaN here
            raise CanonicalError(f"{where} is {value!r}: JSON has no such number, give a finite one")
    else:
        raise CanonicalError(
            f"{where} is of type {kind.__module__}.{kind.__qualname__}, which has no canonical JSON: "
            "use dict, list, str, int, float, bool or None"
        )
