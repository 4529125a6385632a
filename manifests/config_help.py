"""What --help says about the keys of a config: from its dataclasses, so that it cannot differ from what is accepted."""

import dataclasses
import shutil
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

from manifests.yaml_config import dotted, is_list, union_members


def describe(kind: type, width: int) -> str:
    """Every key of `kind` as --set takes it: `dotted.key = default    meaning (a|b)`, in lines of up to `width`.

    A list's items are shown once, as `sources.N.name`.
    """
    rows = list(_rows(kind, ""))
    column = max(len(left) for left, _ in rows) + 4
    return "\n".join(
        textwrap.fill(
            right,
            width,
            initial_indent=f"  {left}".ljust(column),
            subsequent_indent=" " * column,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for left, right in rows
    )


def help_width() -> int:
    """Columns for `describe`: the terminal's, at most a code line's; 100 where the text goes to a file or a pipe."""
    return min(shutil.get_terminal_size(fallback=(100, 24)).columns, 120)


def _rows(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name = dotted(path, field.name)
        members = union_members(hints[field.name])
        if field.default is not dataclasses.MISSING:
            default = f" = {_as_yaml(field.default)}"
        else:
            default = " (required)" if field.default_factory is dataclasses.MISSING else ""
        literals = [member for member in members if typing.get_origin(member) is typing.Literal]
        choices = "".join(f" ({'|'.join(map(str, typing.get_args(member)))})" for member in literals)
        yield name + default, field.metadata.get("doc", "") + choices
        for member in members:
            if dataclasses.is_dataclass(member):
                yield from _rows(member, name)
            elif is_list(member) and dataclasses.is_dataclass(typing.get_args(member)[0]):
                yield from _rows(typing.get_args(member)[0], f"{name}.N")


def _as_yaml(value: Any) -> str:
    """A default as it would be written in YAML."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_as_yaml, value))}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
