"""What one JSON object says under a path: its text, its id, its date; and why it says nothing.

By Python's json, which takes the halves of surrogate pairs that msgspec refuses. The rules are those of jsonl.py.
"""

import json
import math
import re
from typing import Any

import msgspec

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MISSING = msgspec.UNSET

# Python refuses to convert longer digit strings, as a guard against quadratic time.
MAX_INT_DIGITS = 4300
# A record can hold thousands of fields; the first few tell the user what went wrong.
MAX_DETAIL_CHARS = 500


class Refused(Exception):
    """The record is a bad one: a key of REASONS, and what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def inside(value: Any, path: str, way: str) -> Any:
    """What `path` leads to inside `value`, which `way` led to; msgspec.UNSET where it leads nowhere.

    At every level a key that spells the whole remaining path goes first. Refused where no object is on the way.
    """
    if value is _MISSING or value is None:
        return _MISSING
    if not isinstance(value, dict):
        raise Refused("wrong_type", f'"{way}" is {_kind(value)}, a path goes through objects only')
    if path in value:
        return value[path]
    head, dot, rest = path.partition(".")
    return inside(value.get(head, _MISSING), rest, f"{way}.{head}" if way else head) if dot else _MISSING


def inside_or_none(value: Any, path: str) -> Any:
    """The same for what may be missing in any way."""
    try:
        return inside(value, path, "")
    except Refused:
        return None


def as_text(value: Any, line: bytes, path: str) -> str | None:
    """The text that `value` is, found under `path` in `line`; Refused says what else it is."""
    if value is None:
        return None
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if value is _MISSING:
        raise Refused("missing_field", f'there is no field "{path}"; {_what_there_is(parsed_object(line), path)}')
    raise Refused("wrong_type", f'"{path}" is {_kind(value)}, expected text')


def _what_there_is(values: dict[str, Any], path: str) -> str:
    """How far `path` leads, and what is there: an error shall show the right spelling."""
    here: Any = values
    way: list[str] = []
    for key in path.split("."):
        if not isinstance(here, dict) or key not in here:
            break
        here = here[key]
        way.append(key)
    if here is None:
        return f'"{".".join(way)}" is null'
    found = ", ".join(_LONE_SURROGATE.sub("\ufffd", key) for key in sorted(here)) or "none"
    place = f' in "{".".join(way)}"' if way else ""
    return f"fields found{place}: {found[:MAX_DETAIL_CHARS]}"


def as_id(value: Any) -> str | None:
    """A string as it is, another scalar as JSON spells it, None for the rest."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    return None


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "true or false", str: "text"}.get(type(value), "a number")


def parsed_object(line: bytes) -> dict[str, Any]:
    """The line by Python's json, which takes the halves of surrogate pairs that msgspec refuses."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise Refused("invalid_utf8", f"byte {error.start} of the line: {error.reason}") from None
    try:
        value = json.loads(text, parse_int=_parse_int, parse_constant=_no_constant)
    except RecursionError:
        raise
    except ValueError as error:
        raise Refused("invalid_json", str(error)) from None
    if not isinstance(value, dict):
        raise Refused("not_an_object", f"the line is {'null' if value is None else _kind(value)}")
    return value


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else math.inf


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
