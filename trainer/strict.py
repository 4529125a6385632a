"""YAML and `--set key=value` made into frozen dataclasses; anything unexpected is an error that names its key.

The dataclasses are the schema: a key is a field, its type the field's annotation, its default the field's default.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from manifests.errors import UserError

T = TypeVar("T")


class ConfigError(UserError):
    """A configuration that cannot be used; the message names the key, what stands there and the remedy."""


def key(default: Any, text: str) -> Any:
    """A config field with its default and the line that `--help` prints about it."""
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata={"help": text})
    return dataclasses.field(default=default, metadata={"help": text})


class _Loader(yaml.SafeLoader):
    """YAML with two repairs: `1e-3` is a number (YAML 1.1 reads it as text), and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            name = self.construct_object(key_node, deep=True)
            if name in seen:
                raise ConfigError(f"line {key_node.start_mark.line + 1}: key {name!r} is given twice; keep one of them")
            seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; `where` names it in the error."""
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader: builds plain values only
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{where}: not valid YAML: {reason}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping a config file holds; an empty file is an empty mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}; check --config") from error
    value = parse_yaml(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected keys and values, found a {type(value).__name__}")
    return value


def apply_settings(mapping: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of `mapping` with each `a.b=value` put in place; values are read as YAML, later ones win."""
    result = _deep_copy(mapping)
    for setting in settings:
        dotted, equals, text = setting.partition("=")
        if not equals or not all(dotted.split(".")):
            raise ConfigError(f"--set {setting}: expected key=value, as in --set schedule.shape=linear")
        *parents, last = dotted.split(".")
        place = result
        for parent in parents:
            inner = place.get(parent)
            if not isinstance(inner, dict):
                inner = {}
                place[parent] = inner
            place = inner
        place[last] = parse_yaml(text, f"--set {setting}")
    return result


def _deep_copy(value: Any) -> Any:
    return {name: _deep_copy(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def build(schema: type[T], mapping: Any, where: str = "") -> T:
    """`mapping` as an instance of the dataclass `schema`. `where` is the dotted key it stands under.

    Raises ConfigError for an unknown key (naming the closest one), a wrong type, or a value the dataclass refuses.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where or 'the config'}: expected keys and values, found {mapping!r}")
    hints = typing.get_type_hints(schema)
    names = [field.name for field in dataclasses.fields(schema)]  # type: ignore[arg-type]  # T is always a dataclass
    for name in mapping:
        if name not in names:
            raise ConfigError(_unknown(_join(where, str(name)), str(name), where, names))
    values = {name: convert(value, hints[name], _join(where, name)) for name, value in mapping.items()}
    try:
        return schema(**values)
    except ConfigError as error:
        # A nested dataclass checks itself by its own field names; the user knows the dotted key.
        raise ConfigError(f"{where}.{error}" if where else str(error)) from None


def convert(value: Any, kind: Any, where: str) -> Any:
    """`value` as the annotated type `kind`, or a ConfigError naming the key, the value and what was expected."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is not type(None) and _fits(value, option):
            return _converted(value, option, where)
    raise ConfigError(f"{where}: expected {' or '.join(_describe(option) for option in options)}, found {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return value in typing.get_args(kind)
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(typing.get_args(kind))
    if origin is dict or dataclasses.is_dataclass(kind):
        return isinstance(value, dict)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _converted(value: Any, kind: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), value, where)
    if typing.get_origin(kind) is tuple:
        parts = zip(value, typing.get_args(kind), strict=True)
        return tuple(convert(part, inner, f"{where}[{i}]") for i, (part, inner) in enumerate(parts))
    return float(value) if kind is float else value


def _describe(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if origin is tuple:
        return f"a list of {len(typing.get_args(kind))} values"
    if origin is dict or dataclasses.is_dataclass(kind):
        return "keys and values"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}[kind]


def _unknown(dotted: str, name: str, where: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    remedy = f"did you mean {_join(where, close[0])}?" if close else f"the keys here are {', '.join(names)}"
    return f"{dotted}: unknown key; {remedy}"


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def as_plain(config: Any) -> Any:
    """A config dataclass as JSON-able values: dicts, lists, numbers, text; defaults filled in."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: as_plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, tuple):
        return [as_plain(part) for part in config]
    return config


def flatten(plain: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf of a nested mapping."""
    for name, value in plain.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, _join(where, name))
        else:
            yield _join(where, name), value


def describe_keys(schema: Any, where: str = "") -> Iterator[str]:
    """One line a key, `key = default   what it does`, for `--help`."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        dotted = _join(where, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            yield from describe_keys(hints[field.name], dotted)
            continue
        default = "null" if field.default is None else _yaml_scalar(field.default)
        yield f"  {dotted + ' = ' + default:<42} {field.metadata.get('help', '')}"


def _yaml_scalar(value: Any) -> str:
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, tuple) else str(value)
