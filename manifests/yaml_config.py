"""Strict YAML configs: what a file says either means exactly one thing or is refused with its place and the remedy.

    file -> read_yaml_file -> plain dict -> set_value (for --set) -> build(dataclass) -> frozen, checked config
    config -> as_plain -> the same plain values with the defaults filled in -> flatten -> dotted keys

The dataclasses are the schema: a key is a field made by `setting`, its type the annotation, its default the default.
Values follow YAML 1.2's core schema, not PyYAML's 1.1: `no`, `on`, `12:30` and `2024-01-01` are text, `1e-3` is a
number. A key written twice is an error. Types are exact: true is no number, "5" is no number, NaN and infinities are
refused.
"""

import copy
import dataclasses
import difflib
import math
import re
import sys
import types
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from manifests.errors import UserError

T = TypeVar("T")


class ConfigError(UserError):
    """One wrong field: its dotted name, what is wrong with it, and the remedy, in one line."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem

    def __str__(self) -> str:
        text = f"{self.field}: {self.problem}" if self.field else self.problem
        return text.replace("\n", "\\n")  # a quoted key may hold one

    def under(self, prefix: str) -> "ConfigError":
        """The same error seen from outside: `threshold` inside `dedup.near` is `dedup.near.threshold`."""
        return ConfigError(dotted(prefix, self.field), self.problem)


def dotted(prefix: str, field: str | int) -> str:
    return f"{prefix}.{field}" if prefix and field != "" else prefix or str(field)


# ------------------------------------------------------------------------------------------------- YAML text -> values


class _CoreLoader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core schema (and `_` between digits): plain values only, every key once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, Any] = {}
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _fault(f"the key {key!r} is no text: quote it", key_node)
            if key in seen:
                raise _fault(f'the key "{key}" is already set in line {seen[key].line + 1}: keep one', key_node)
            seen[key] = key_node.start_mark
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError):
            # `!!int x`, `!!bool x`, `!!int ""`, and a whole number of more digits than Python converts.
            raise _fault(f"{_shortened(node.value)} is no {node.tag.rpartition(':')[2]}", node) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise _fault(f"{_shortened(node.value)} is not a finite number", node)
        return value


def _fault(problem: str, node: Any) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


# SafeLoader's own tables are YAML 1.1's: its patterns, and constructors of dates, sets and bytes.
_TAG = "tag:yaml.org,2002:"
_CoreLoader.yaml_constructors = {
    tag: make
    for tag, make in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in ("null", "bool", "int", "float", "str", "seq", "map")
}
_CoreLoader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in [
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
]:
    # 010 would be 8 in YAML 1.1 and 10 in 1.2: the int pattern takes neither, and the float pattern reads it as 10.0,
    # which no integer field accepts.
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _first)


def read_yaml(text: str, what: str) -> Any:
    """The value `text` holds; ConfigError names `what` (a file), line and column where it is not YAML."""
    try:
        return yaml.load(text, Loader=_CoreLoader)  # _CoreLoader is a SafeLoader: plain values only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(what, f"{place}{error.problem or error.context or 'not YAML'}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{ord(text[error.position]):04X}"
        raise ConfigError(what, f"line {line}: the character {character} is not allowed in YAML") from None
    except RecursionError:
        raise ConfigError(what, "nested too deeply: a config has at most a few levels") from None


def read_yaml_file(path: str | Path) -> dict[str, Any]:
    """The keys and values a config file holds; {} for an empty one."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(str(path), "there is no such file: check the path") from None
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8 ({error.reason}): save the file as UTF-8"
        raise ConfigError(str(path), problem) from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None
    value = read_yaml(text, str(path))
    if not isinstance(value, dict | None):
        raise ConfigError(str(path), f"is {_shown(value)}, expected keys with values")
    return value or {}


def set_value(values: dict[str, Any], assignment: str) -> None:
    """Applies one `--set a.b=c` in place. The right side is YAML; a number names an item: `sources.0.weight=2`."""
    path, equals, text = assignment.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError("--set", f'"{assignment}" is not of the form key=value: write, for example, seed=7')
    holder: Any = values
    for depth, key in enumerate(keys):
        here = ".".join(keys[:depth])
        if isinstance(holder, list):
            if key not in map(str, range(len(holder))):
                remedy = f"use 0 to {len(holder) - 1}" if holder else f"set {here} as a whole"
                raise ConfigError(here, f'holds {len(holder)} items and "{key}" is none of them: {remedy}')
            slot: Any = int(key)
        elif isinstance(holder, dict):
            slot = key
        else:
            raise ConfigError(here, f'is {holder!r} and has no "{key}" inside: set {here} as a whole')
        if depth == len(keys) - 1:
            holder[slot] = read_yaml(text, f"--set {path}")
        else:
            inner = holder.get(slot) if isinstance(holder, dict) else holder[slot]
            # None: a group that the file leaves at its defaults. Copied: an anchor may stand in another place too.
            holder[slot] = {} if inner is None else copy.copy(inner)
            holder = holder[slot]


# -------------------------------------------------------------------------------------------------- values -> dataclass


def setting(doc: str, default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field with its one-line explanation, which --help prints (config_help.py)."""
    if callable(default):
        return dataclasses.field(default_factory=default, metadata={"doc": doc})
    return dataclasses.field(default=default, metadata={"doc": doc})


def build(kind: type[T], value: Any, path: str = "") -> T:
    """`value` (a dict) as the frozen dataclass `kind`. Unknown and missing keys and wrong types raise ConfigError."""
    if not isinstance(value, dict):
        raise ConfigError(path or "the config", f"is {_shown(value)}, expected keys with values")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # a dataclass always
    for key in value:
        if key not in fields:
            raise ConfigError(dotted(path, key), f"there is no such key; {_closest(str(key), fields)}")
    # What is written wrong before what is not written: a misspelt key is often why another one is missing.
    arguments = {key: _convert(hints[key], item, dotted(path, key)) for key, item in value.items()}
    for name, field in fields.items():
        if name not in value and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(dotted(path, name), f"is missing: {field.metadata.get('doc', 'it has no default')}")
    try:
        return kind(**arguments)
    except ConfigError as error:
        raise error.under(path) from None


def _closest(name: str, known: Iterable[str]) -> str:
    """`did you mean "seq_len"? ` where one is near, and always the whole list of what is known."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (f'did you mean "{near[0]}"? ' if near else "") + f"known: {', '.join(known)}"


def _convert(hint: Any, value: Any, path: str) -> Any:
    """`value` as the annotation `hint` says, or ConfigError. Lists become tuples; an int passes for a float."""
    kinds = union_members(hint)
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if _is_of(kind, value):
            return _converted(kind, value, path)
    is_one_item = isinstance(value, str | int | float) and any(map(is_list, kinds))
    remedy = f": write [{_shortened(str(value))}]" if is_one_item else ""
    raise ConfigError(path, f"is {_shown(value)}, expected {' or '.join(map(_in_words, kinds))}{remedy}")


def union_members(hint: Any) -> tuple[Any, ...]:
    """(int, NoneType) of `int | None`; (int,) of `int`."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def is_list(kind: Any) -> bool:
    """tuple[X, ...]; tuple[X, Y] is a list of that length and no other."""
    return typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is Ellipsis


def _is_of(kind: Any, value: Any) -> bool:
    """Whether `value` is of this kind by itself; what stands inside is looked at when it is converted."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin is typing.Literal:
        return any(type(value) is type(item) and value == item for item in arguments)
    if origin is tuple:
        return isinstance(value, list | tuple) and (is_list(kind) or len(value) == len(arguments))
    if origin is dict:
        return isinstance(value, dict)
    if dataclasses.is_dataclass(kind):
        return isinstance(value, dict | None)  # `dedup:` with nothing under it is null: all inside is at its default
    return type(value) is kind or (kind is float and type(value) is int)


def _converted(kind: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        inner = arguments[:1] * len(value) if is_list(kind) else arguments
        pairs = enumerate(zip(inner, value, strict=True))
        return tuple(_convert(hint, item, dotted(path, index)) for index, (hint, item) in pairs)
    if origin is dict:
        return {key: _convert(arguments[1], item, dotted(path, key)) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), {} if value is None else value, path)
    if kind is float:
        if not abs(value) <= sys.float_info.max:  # NaN compares false
            raise ConfigError(path, f"is {_shown(value)}, expected a finite number")
        return float(value)
    return value


def _in_words(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return "a list" if is_list(kind) else f"a list of {len(arguments)} values"
    if origin is dict or dataclasses.is_dataclass(kind):
        return "keys with values"
    return _EXPECTED[kind]


_EXPECTED = {
    int: "a whole number",
    float: "a number",
    str: "text (quote it if it looks like a number)",
    bool: "true or false",
    type(None): "null",
}

_FOUND = {
    dict: "keys with values",
    list: "a list",
    str: "the text",
    bool: "the truth value",
    int: "the number",
    float: "the number",
}


def _shown(value: Any) -> str:
    """A value after the name of its kind."""
    if value is None:
        return "empty (null)"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{_FOUND.get(type(value), 'the value')} {_shortened(text)}"


def _shortened(text: str) -> str:
    """A wrong indent can put half the file into one value."""
    return text if len(text) <= 80 else text[:77] + "..."


# ------------------------------------------------------------------------------------------------- dataclass -> values


def as_plain(config: Any) -> Any:
    """A config as JSON-able values, defaults filled in: dataclasses become dicts, tuples lists."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: as_plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, tuple):
        return [as_plain(part) for part in config]
    return config


def flatten(plain: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf of nested mappings; an empty mapping is a leaf."""
    for name, value in plain.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, dotted(path, name))
        else:
            yield dotted(path, name), value
