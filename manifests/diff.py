"""What changed between two versions: pure, from two manifests (and their tables of inputs) to data."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from manifests.manifest import Manifest

Relation = Literal["same data", "new from old", "old from new", "unrelated"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value of the manifest, by its dotted path. `old` is None where it was added, `new` where it was removed."""

    field: str
    kind: Literal["changed", "added", "removed"]
    old: Any
    new: Any


@dataclass(frozen=True, kw_only=True)
class SetChange:
    """Files of one group, told apart by content: sorted names."""

    num_kept: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Everything that differs between two versions, and nothing that does not.

    `shards` goes by split; a shard that both hold, under whatever path, is kept. `inputs` goes by source, and is None
    where a table of inputs could not be had.
    """

    old: str
    new: str
    old_digest: str
    new_digest: str
    relation: Relation
    changes: tuple[Change, ...]
    shards: dict[str, SetChange]
    inputs: dict[str, SetChange] | None

    @property
    def is_empty(self) -> bool:
        return self.old_digest == self.new_digest

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compare(
    old: Manifest, new: Manifest, old_inputs: pa.Table | None = None, new_inputs: pa.Table | None = None
) -> Difference:
    """`new` seen from `old`. `code` and `built` are left out, as they are from the digest."""
    inputs = None
    if old_inputs is not None and new_inputs is not None:
        inputs = _input_changes(old_inputs, new_inputs)
    return Difference(
        old=old.version,
        new=new.version,
        old_digest=old.digest,
        new_digest=new.digest,
        relation=_relation(old, new),
        changes=tuple(_changes(_leaves(old), _leaves(new))),
        shards=_shard_changes(old, new),
        inputs=inputs,
    )


def _relation(old: Manifest, new: Manifest) -> Relation:
    if old.digest == new.digest:
        return "same data"
    if new.parent is not None and new.parent.digest == old.digest:
        return "new from old"
    if old.parent is not None and old.parent.digest == new.digest:
        return "old from new"
    return "unrelated"


def _changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    for field in [*old, *(field for field in new if field not in old)]:
        if field not in new:
            yield Change(field=field, kind="removed", old=old[field], new=None)
        elif field not in old:
            yield Change(field=field, kind="added", old=None, new=new[field])
        elif _differ(old[field], new[field]):
            yield Change(field=field, kind="changed", old=old[field], new=new[field])


def _differ(old: Any, new: Any) -> bool:
    # 1, 1.0 and true are equal in Python, and three different values in canonical JSON.
    return type(old) is not type(new) or old != new


def _leaves(manifest: Manifest) -> dict[str, Any]:
    """The values inside the digest by dotted path; shards are compared as files, the funnel by stage and reason."""
    value = manifest.to_json()
    for outside in ("format", "version", "parent", "digest", "code", "built"):
        del value[outside]
    del value["inputs"]["path"]  # names the version, as the first line of every diff does
    for split in value["splits"].values():
        del split["shards"]
    value["funnel"] = {
        ".".join(filter(None, (row["stage"], row["reason"]))): {key: row[key] for key in ("num_documents", "num_bytes")}
        for row in value["funnel"]
    }
    return dict(_flat(value, ""))


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        # Items with a name are compared by it, so that one inserted in front does not change all behind it.
        names = [item.get("name") for item in value]
        by_name = None not in names and len(set(map(str, names))) == len(names)
        value = {str(names[index]) if by_name else str(index): item for index, item in enumerate(value)}
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, value


def _shard_changes(old: Manifest, new: Manifest) -> dict[str, SetChange]:
    changes = {}
    for name in [*old.splits, *(name for name in new.splits if name not in old.splits)]:
        before, after = (
            {shard.sha256: shard.path for shard in manifest.splits[name].shards} if name in manifest.splits else {}
            for manifest in (old, new)
        )
        changes[name] = SetChange(
            num_kept=len(before.keys() & after.keys()),
            added=tuple(sorted(after[sha256] for sha256 in after.keys() - before.keys())),
            removed=tuple(sorted(before[sha256] for sha256 in before.keys() - after.keys())),
            changed=(),  # a shard is told by its content: another content is another shard
        )
    return changes


def _input_changes(old: pa.Table, new: pa.Table) -> dict[str, SetChange]:
    old_files, new_files = _files_by_source(old), _files_by_source(new)
    changes = {}
    for source in sorted(old_files.keys() | new_files.keys()):
        before, after = old_files.get(source, {}), new_files.get(source, {})
        both = before.keys() & after.keys()
        changed = sorted(name for name in both if before[name] != after[name])
        changes[source] = SetChange(
            num_kept=len(both) - len(changed),
            added=tuple(sorted(after.keys() - before.keys())),
            removed=tuple(sorted(before.keys() - after.keys())),
            changed=tuple(changed),
        )
    return changes


def _files_by_source(table: pa.Table) -> dict[str, dict[str, str]]:
    files: dict[str, dict[str, str]] = {}
    columns = (table.column(name).to_pylist() for name in ("source", "name", "identity"))
    for source, name, identity in zip(*columns, strict=True):
        files.setdefault(source, {})[name] = identity
    return files
