"""Strict YAML: what a config file says either means exactly one thing or is refused with its place and the remedy.

    text -> read_yaml -> plain dict -> set_value (for --set) -> build(dataclass) -> frozen, checked config

Values follow YAML 1.2's core schema, not PyYAML's 1.1: `no`, `on`, `12:30` and `2024-01-01` are text, `1e-3` is a
number. A key written twice is an error. Types are exact: true is no number, "5" is no number, NaN and infinities are
refused.
"""

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Hashable
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
        return f"{self.field}: {self.problem}" if self.field else self.problem

    def under(self, prefix: str) -> "ConfigError":
        """The same error seen from outside: `threshold` inside `dedup.near` is `dedup.near.threshold`."""
        return ConfigError(dotted(prefix, self.field), self.problem)


def dotted(prefix: str, field: str | int) -> str:
    return f"{prefix}.{field}" if prefix and field != "" else prefix or str(field)


def closest(name: str, known: typing.Iterable[str]) -> str:
    """`did you mean "seq_len"? ` where one is near, and always the whole list of what is known."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (f'did you mean "{near[0]}"? ' if near else "") + f"known: {', '.join(known)}"


# ------------------------------------------------------------------------------------------------- YAML text -> values


class _CoreLoader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core schema (and `_` between digits), refusing duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, Any] = {}
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is no text: quote it", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f'the key "{key}" is already set in line {seen[key].line + 1}: keep one',
                    key_node.start_mark,
                )
            seen[key] = key_node.start_mark
        return super().construct_mapping(node, deep=deep)


_CoreLoader.yaml_implicit_resolvers = {}  # none of PyYAML's own: those are YAML 1.1's
for _tag, _pattern, _first in [
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
    _CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)


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
        raise ConfigError(
            what, f"line {line}: the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        ) from None
    except RecursionError:
        raise ConfigError(what, "nested too deeply: a config has at most a few levels") from None


def read_yaml_file(path: str | Path) -> Any:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(str(path), "there is no such file: check the path") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            str(path), f"byte {error.start} is not UTF-8 ({error.reason}): save the file as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None
    return read_yaml(text, str(path))


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
            if not key.isdecimal() or int(key) >= len(holder):
                raise ConfigError(
                    here, f'holds {len(holder)} items and "{key}" is none of them: use 0 to {len(holder) - 1}'
                )
            slot: Any = int(key)
        elif isinstance(holder, dict):
            slot = key
        else:
            raise ConfigError(here, f'is {holder!r} and has no "{key}" inside: set {here} as a whole')
        if depth == len(keys) - 1:
            holder[slot] = read_yaml(text, f"--set {path}")
        elif isinstance(holder, dict) and holder.get(slot) is None:
            holder[slot] = {}  # a stage the file leaves at its defaults
        holder = holder[slot]


# -------------------------------------------------------------------------------------------------- values -> dataclass


def setting(doc: str, default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field with its one-line explanation, which `describe` prints."""
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
            raise ConfigError(dotted(path, key), f"there is no such key; {closest(str(key), fields)}")
    for name, field in fields.items():
        if name not in value and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(dotted(path, name), f"is missing: {field.metadata.get('doc', 'it has no default')}")
    arguments = {key: convert(hints[key], item, dotted(path, key)) for key, item in value.items()}
    try:
        return kind(**arguments)
    except ConfigError as error:
        raise error.under(path) from None


def convert(hint: Any, value: Any, path: str) -> Any:
    """`value` as the annotation `hint` says, or ConfigError. Lists become tuples; an int passes for a float."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return convert(next(item for item in arguments if item is not type(None)), value, path)
    if origin is typing.Literal:
        if value not in arguments or type(value) not in {type(item) for item in arguments}:
            raise ConfigError(path, f"is {_shown(value)}, allowed: {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(path, f"is {_shown(value)}, expected a list: write [{value}]")
        return tuple(convert(arguments[0], item, dotted(path, index)) for index, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        # `dedup:` with nothing under it reads as null: everything inside is then at its default.
        return build(hint, {} if value is None else value, path)  # type: ignore[arg-type]  # a class here
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigError(path, f"is {_shown(value)}, expected {_TYPE_NAMES[hint]}")
    if hint is float and not math.isfinite(value):
        raise ConfigError(path, f"is {value}, expected a finite number")
    return value


_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text (quote it if it looks like a number)",
    bool: "true or false",
}


_KINDS = {
    dict: "keys with values",
    list: "a list",
    str: "the text",
    bool: "the truth value",
    int: "the number",
    float: "the number",
}


def _shown(value: Any) -> str:
    """A value after the name of its kind, shortened: a wrong indent can put half the file here."""
    if value is None:
        return "empty (null)"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{_KINDS[type(value)]} {text if len(text) <= 80 else text[:77] + '...'}"


def describe(kind: type, indent: int = 0) -> str:
    """Every key of `kind`, a line each: name, default, meaning; nested stages indented below their key."""
    hints = typing.get_type_hints(kind)
    lines = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        inner = next(
            (item for item in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(item)),
            None,
        )
        default = "" if field.default is dataclasses.MISSING or inner else f" [{_plain(field.default)}]"
        lines.append(f"{' ' * indent}{field.name}{default}: {field.metadata.get('doc', '')}")
        if inner is not None:
            lines.append(describe(inner, indent + 4))  # type: ignore[arg-type]  # is_dataclass also accepts instances
    return "\n".join(lines)


def _plain(value: Any) -> str:
    """A default as it would be written in YAML."""
    if isinstance(value, float):
        return f"{value:g}"
    return (
        "null"
        if value is None
        else "[]"
        if value == ()
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
