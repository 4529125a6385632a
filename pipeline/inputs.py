"""From a source's paths to its input files, and from files to units of work.

    paths -> literal file or folder, else glob -> files - skipped -> sorted by name -> groups of about 64 MiB

A file's `name` is its path below the deepest folder that all of the source's paths share (a folder path stands for
itself, a file for its folder, a glob for the part before its first wildcard). So names stay the same when a corpus
moves as a whole, and do not depend on the order of paths or of listing; the order of files, and with it of everything
else, is that of their names.
"""

import itertools
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifests import storage
from manifests.objects import ObjectInfo
from manifests.yaml_config import ConfigError
from pipeline.config import SourceConfig
from pipeline.readers.names import no_data, no_text

# A unit of work of some seconds: Ray starts 1,600 tasks a second and a worker reads 150 MB/s or more (text.md).
TARGET_GROUP_BYTES = 64 << 20


# A file of this size is read in parts where its format allows it (readers/parts.py).
SPLIT_FILE_BYTES = 4 * TARGET_GROUP_BYTES


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to read. `identity` changes when the file does, without reading it (storage.ObjectInfo)."""

    source: str
    name: str
    url: str
    num_bytes: int
    identity: str


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A file that lies where input lies and is none, with the reason the report gives."""

    source: str
    url: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A source's files, sorted by name, and what was left out."""

    files: tuple[InputFile, ...]
    skipped: tuple[SkippedFile, ...]


def find_inputs(source: SourceConfig) -> Inputs:
    """The files that `source.paths` name, each once.

    A path that exists is taken as it stands, `[1]` and `*` in it included; only one that does not is a pattern: `*`,
    `?` and `[a-z]` within a name, `**` over any number of folders. A folder, named or matched, gives all files below
    it. Files of folders and patterns whose name, or a folder's on the way, marks them as no data are skipped (see
    `_no_data`); a file named in full is always read. An empty folder is no error. A path that leads to nothing is a
    ConfigError.
    """
    found: dict[str, ObjectInfo] = {}
    skipped: dict[str, str] = {}
    bases: list[tuple[str, ...]] = []
    for index, path in enumerate(source.paths):
        url = storage.absolute(path)
        base, objects, by_name = _matches(url, f"sources.{source.name}.paths.{index}", path)
        bases.append(_parts(base))
        for info in objects:
            reason = _no_data(info, "" if by_name else info.url[len(base) :], source.format)
            if reason is None:
                found[info.url] = info
            else:
                skipped[info.url] = reason
    depth = _num_shared(bases)
    files = [
        InputFile(
            source=source.name,
            name=_printable("/".join(_parts(info.url)[depth:])),
            url=info.url,
            num_bytes=info.num_bytes,
            identity=info.identity,
        )
        for info in found.values()
    ]
    files.sort(key=lambda file: file.name)
    return Inputs(
        files=tuple(files),
        skipped=tuple(
            SkippedFile(source=source.name, url=url, reason=reason)
            for url, reason in sorted(skipped.items())
            if url not in found
        ),
    )


def group_inputs(
    files: Sequence[InputFile], target_bytes: int = TARGET_GROUP_BYTES, alone: Container[InputFile] = ()
) -> tuple[tuple[InputFile, ...], ...]:
    """Units of work: consecutive files of one source, in order of (source, name), of `target_bytes` or one file more.

    Files that are `alone` are groups by themselves.
    A function of names and sizes alone, so that a build that starts again cuts the same groups.
    """
    groups: list[list[InputFile]] = []
    num_bytes = 0
    for file in sorted(files, key=lambda item: (item.source, item.name)):
        is_full = num_bytes >= target_bytes or file in alone or (groups and groups[-1][0] in alone)
        if not groups or groups[-1][0].source != file.source or is_full:
            groups.append([])
            num_bytes = 0
        groups[-1].append(file)
        num_bytes += file.num_bytes
    return tuple(map(tuple, groups))


def _matches(url: str, field: str, path: str) -> tuple[str, list[ObjectInfo], bool]:
    """Where the path's names begin, its objects, and whether it names one file in full."""
    try:
        objects = storage.list_objects(url)
    except PermissionError:
        raise ConfigError(field, f"{path} may not be listed by this user: check its permissions") from None
    except (FileNotFoundError, NotADirectoryError):
        base, pattern = _split_pattern(url)
        if pattern is None:
            raise ConfigError(field, f"there is no file or folder {path}: check the path") from None
    else:
        if len(objects) == 1 and objects[0].url == url:
            return storage.parent(url), objects, True
        return url, objects, False
    try:
        objects = list(_candidates(base, url))
    except FileNotFoundError:
        raise ConfigError(field, f"nothing matches {path}: there is no folder {base}") from None
    matches = [info for info in objects if pattern.fullmatch(info.url[len(base) :].lstrip("/"))]
    if not matches:
        raise ConfigError(field, f"nothing matches {path}: the folder {base} is there, no file in it fits")
    return base, matches, False


def _candidates(base: str, url: str) -> Iterator[ObjectInfo]:
    """A superset of what the pattern `url` matches below the folder `base`.

    On S3 that is everything below it. On disk, where `/data/*.jsonl` must not walk through all of /data, folders are
    entered only as far as the pattern's parts lead, and whole from its first `**` on.
    """
    if storage.local_path(base) is None:
        yield from storage.list_objects(base)
        return
    tops = [base]
    for part in url[len(base.rstrip("/")) + 1 :].split("/"):
        if part == "**":
            break
        fits = re.compile(_name_expression(part), re.DOTALL)
        tops = [storage.join(top, name) for top in tops for name in _names_in(top) if fits.fullmatch(name)]
    for top in tops:
        if Path(top).is_file() or Path(top).is_dir():
            yield from storage.list_objects(top)
        elif Path(top).is_symlink():
            yield ObjectInfo(top, 0, "a link to nothing")


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or "/")  # noqa: PTH208 - names alone are wanted, as they are
    except NotADirectoryError:
        return []


def _parts(url: str) -> tuple[str, ...]:
    """The parts of an absolute path or URL; buckets and the disk differ in the first ones."""
    return tuple(url.rstrip("/").split("/"))


def _num_shared(paths: Sequence[tuple[str, ...]]) -> int:
    """How many leading parts all paths share."""
    return sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


def _printable(name: str) -> str:
    """A file name that is not UTF-8 gets its odd bytes written as \\xNN: names go into manifests, which are UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _no_data(info: ObjectInfo, below: str, format: str) -> str | None:
    """Why the file is no data, or None. `below` is its path below the path given, empty where it was named in full."""
    reason = no_text(below) if format == "auto" else no_data(below)
    if reason is not None:
        return reason
    path = storage.local_path(info.url)
    if info.num_bytes == 0 and path is not None and not path.exists():
        return "a link to nothing"
    return None


_WILDCARD = re.compile(r"[*?\[]")


def _split_pattern(url: str) -> tuple[str, re.Pattern[str] | None]:
    """The folder before the first part with a wildcard, and the rest as an expression (None without a wildcard)."""
    parts = url.split("/")
    first = next((index for index, part in enumerate(parts) if _WILDCARD.search(part)), None)
    if first is None:
        return url, None
    # A folder that fits is read as if it were named: hence the open end.
    return "/".join(parts[:first]) or "/", re.compile("".join(_expressions(parts[first:])) + "(/.*)?", re.DOTALL)


def _expressions(parts: Iterable[str]) -> Iterator[str]:
    parts = list(parts)
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            yield ".+" if last else "(.*/)?"
        else:
            yield _name_expression(part) + ("" if last else "/")


def _name_expression(pattern: str) -> str:
    """One path part: `*` any characters, `?` one, `[a-z]` one of a set, `[!a-z]` one outside; `[` alone is itself."""
    out, position = [], 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            out.append("[^/]*")
        elif character == "?":
            out.append("[^/]")
        elif (
            character == "["
            and (end := pattern.find("]", position + 1 + (pattern[position : position + 1] == "!"))) > 0
        ):
            members = pattern[position:end]
            negated = members.startswith("!")
            out.append("[" + ("^/" if negated else "") + re.escape(members[negated:]).replace(r"\-", "-") + "]")
            position = end + 1
        else:
            out.append(re.escape(character))
    return "".join(out)
