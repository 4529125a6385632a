"""The shards of one split, as numbers for the order and as places for the fetcher."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manifests import Dataset, ShardEntry, UserError, fingerprint, load, storage


class SplitError(UserError):
    """A split that the manifest does not have, or that holds nothing."""


@dataclass(frozen=True, kw_only=True)
class LocalShard:
    """A shard's file on local disk. name: its path in the manifest, for messages. is_cached: it goes after its use."""

    name: str
    path: str
    num_bytes: int
    num_examples: int
    is_cached: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardTable:
    """The shards of a split, by their number in the manifest. Raises SplitError for a missing or empty split."""

    dataset: Dataset
    split: str

    def __post_init__(self) -> None:
        splits = self.dataset.manifest.splits
        if self.split not in splits:
            raise SplitError(
                f"there is no split {self.split!r} in {self.dataset.url}; it has {', '.join(sorted(splits))}"
            )
        if not splits[self.split].shards:
            raise SplitError(f"the split {self.split!r} of {self.dataset.url} has 0 shards; take one that has examples")

    @property
    def entries(self) -> tuple[ShardEntry, ...]:
        return self.dataset.manifest.splits[self.split].shards

    @cached_property
    def num_examples(self) -> np.ndarray:
        """int64, by shard."""
        return np.array([entry.num_examples for entry in self.entries], dtype=np.int64)

    @cached_property
    def bytes_to_fetch(self) -> np.ndarray:
        """int64, by shard: its size where it lies in object storage, 0 where it can be mapped in place."""
        return np.array(
            [entry.num_bytes if self.local_path(number) is None else 0 for number, entry in enumerate(self.entries)],
            dtype=np.int64,
        )

    @cached_property
    def digest(self) -> str:
        """The fingerprint of what the split holds, in order: equal for equal shards, wherever they lie."""
        return fingerprint([[entry.sha256, entry.num_examples] for entry in self.entries])

    def url(self, number: int) -> str:
        return self.dataset.resolve(self.entries[number].path)

    def local_path(self, number: int) -> str | None:
        """Where a shard can be mapped in place; None where it lies in object storage."""
        path = self.entries[number].path
        is_local = storage.local_path(path) is not None if storage.is_absolute(path) else self._root_is_local
        return self.dataset.resolve(path) if is_local else None

    @cached_property
    def _root_is_local(self) -> bool:
        # Asked once: 40,000 paths parsed one by one would be half a second of a start.
        return storage.local_path(self.dataset.root) is not None

    def local_shard(self, number: int, path: str) -> LocalShard:
        entry = self.entries[number]
        return LocalShard(
            name=entry.path,
            path=path,
            num_bytes=entry.num_bytes,
            num_examples=entry.num_examples,
            is_cached=self.local_path(number) is None,
        )


def first_change(table: ShardTable, saved_manifest: str) -> str | None:
    """Words that name the first shard in which the split differs from the one of the manifest with a saved digest.

    That manifest is looked for among the data set's versions, on disk. None where it is not there any more.
    """
    saved = _version_with_digest(table.dataset, saved_manifest)
    if saved is None or table.split not in saved.manifest.splits:
        return None
    old, new = saved.manifest.splits[table.split].shards, table.entries
    for number, (before, after) in enumerate(zip(old, new, strict=False)):
        if (before.sha256, before.num_examples) != (after.sha256, after.num_examples):
            return (
                f"first at shard {number}: {before.path} of {before.num_examples} examples, sha256 {before.sha256}, "
                f"became {after.path} of {after.num_examples}, sha256 {after.sha256}"
            )
    longer, which = (old, "here no more") if len(old) > len(new) else (new, "new here")
    number = min(len(old), len(new))
    return f"first at shard {number}: {longer[number].path} is {which}"


def _version_with_digest(dataset: Dataset, digest: str) -> Dataset | None:
    for info in storage.list_objects(storage.parent(dataset.url)):
        try:
            other = load(info.url)
        except (UserError, OSError):
            continue  # this only looks for better words: a version that cannot be read has none
        if other.manifest.digest == digest:
            return other
    return None
