"""JSON values into frozen dataclasses, strictly: unknown keys, missing keys and wrong types are errors with a place."""

import dataclasses
import functools
import types
import typing
from collections.abc import Collection, Hashable
from typing import Any, TypeVar

from manifests.errors import UserError

T = TypeVar("T")


class StrictError(UserError):
    """A JSON value that is not what its dataclass says; the message names the field by its dotted path."""


def decode_fields(cls: type[T], value: dict[str, Any], where: str) -> T:
    """The dataclass `cls` from a JSON object with exactly its fields.

    Fields are str, int, bool, float, dict, dataclasses, tuple[X, ...], dict[str, X] or X | None. An int is accepted
    where a float is asked for, a bool nowhere but for bool. A nested dataclass with its own `from_json` makes itself;
    errors that its making raises get their place put in front.
    """
    kinds = _kinds(typing.cast(Hashable, cls))
    check_keys(value, kinds, where)
    prefix = f"{where}." if where else ""
    return cls(**{name: _decode(kind, value[name], prefix + name) for name, kind in kinds.items()})


def check_keys(value: Any, expected: Collection[str], where: str) -> None:
    """Raises StrictError unless `value` is an object with exactly these keys, naming the missing and the unknown."""
    where = where or "the object"
    if type(value) is not dict:
        raise StrictError(f"{where} is {_shown(value)}: it must be an object with the keys {sorted(expected)}")
    missing, unknown = sorted(set(expected) - value.keys()), sorted(value.keys() - set(expected))
    if missing:
        raise StrictError(f"{where} lacks the keys {missing}: it has exactly {sorted(expected)}")
    if unknown:
        raise StrictError(f"{where} has the unknown keys {unknown}: it has exactly {sorted(expected)}")


def _decode(kind: Any, value: Any, where: str) -> Any:
    if kind in _NAMES:
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise StrictError(f"{where} is {_shown(value)}: it must be {_NAMES[kind]}")
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_nested(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _decode(arguments[0], value, where)
    if origin is tuple:
        if type(value) is not list:
            raise StrictError(f"{where} is {_shown(value)}: it must be a list")
        return tuple(_decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    assert origin is dict, f"no rule to decode {kind}"
    if type(value) is not dict:
        raise StrictError(f"{where} is {_shown(value)}: it must be an object")
    if arguments[1] is Any:
        return value
    return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in value.items()}


def _decode_nested(cls: Any, value: Any, where: str) -> Any:
    try:
        return cls.from_json(value) if hasattr(cls, "from_json") else decode_fields(cls, value, where)
    except StrictError:
        raise
    except UserError as error:
        raise StrictError(f"{where}: {error}") from error


# A manifest has 40,000 shard entries of one class: its hints are resolved once.
@functools.cache
def _kinds(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_NAMES: dict[Any, str] = {int: "a whole number", str: "a string", bool: "true or false", float: "a number"}
