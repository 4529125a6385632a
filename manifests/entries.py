"""The manifest's parts, field by field as in the JSON: typed, frozen, and sound by themselves."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from manifests import storage
from manifests.errors import UserError
from manifests.shard import check_version_name

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ManifestError(UserError):
    """A manifest that contradicts itself, or a file that is none."""


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The version this one was built from."""

    version: str
    digest: str

    def __post_init__(self) -> None:
        check_version_name(self.version)
        _check_digest(self.digest)


@dataclass(frozen=True, kw_only=True)
class TokenizerEntry:
    """The tokenizer's file, kept with the data. `vocab_size` counts added tokens: every id is below it."""

    path: str
    sha256: str
    vocab_size: int
    eos_id: int
    bos_id: int | None

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_sha256(self.sha256)
        for name in ("eos_id", "bos_id"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.vocab_size:
                raise ManifestError(f"{name} is {token}, outside the vocabulary of {self.vocab_size} ids: name another")


@dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """One shard. `num_tokens` leaves padding out; `num_documents` are those that end in it."""

    path: str
    sha256: str
    num_bytes: int
    num_examples: int
    num_tokens: int
    num_documents: int

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_sha256(self.sha256)
        _check_counts(self, "num_tokens", "num_documents")
        if self.num_examples < 1:
            raise ManifestError(f"num_examples is {self.num_examples}: a shard holds at least one example")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Shards in order and their sums. `Split.of` does the adding."""

    num_shards: int
    num_examples: int
    num_tokens: int
    num_documents: int
    num_bytes: int
    num_padding_tokens: int
    shards: tuple[ShardEntry, ...]

    def __post_init__(self) -> None:
        _check_counts(self, "num_padding_tokens")
        for name, total in _sums(self.shards).items():
            if getattr(self, name) != total:
                raise ManifestError(f"{name} is {getattr(self, name)}, but its shards sum to {total}: build again")

    @classmethod
    def of(cls, shards: Iterable[ShardEntry], *, seq_len: int) -> "Split":
        """The split of these shards: padding is whatever is no token in rows of `seq_len`."""
        shards = tuple(shards)
        sums = _sums(shards)
        padding = sums["num_examples"] * seq_len - sums["num_tokens"]
        return cls(num_padding_tokens=padding, shards=shards, **sums)


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """A source's share. `tokens` counts what was encoded, EOS included, before a split's tail is dropped."""

    weight: float
    documents_read: int
    documents_kept: int
    tokens: int

    def __post_init__(self) -> None:
        _check_counts(self, "weight", "documents_read", "documents_kept", "tokens")


@dataclass(frozen=True, kw_only=True)
class FunnelRow:
    """How many documents ended at a stage for a reason; the row `read` is all of them."""

    stage: str
    reason: str | None
    num_documents: int
    num_bytes: int

    def __post_init__(self) -> None:
        _check_counts(self, "num_documents", "num_bytes")


@dataclass(frozen=True, kw_only=True)
class InputsEntry:
    """What was read: `digest` covers every input file's source, name, size and content (see inputs.py)."""

    num_files: int
    num_bytes: int
    digest: str
    path: str

    def __post_init__(self) -> None:
        _check_counts(self, "num_files", "num_bytes")
        _check_digest(self.digest)
        _check_path(self.path)


def _sums(shards: tuple[ShardEntry, ...]) -> dict[str, int]:
    names = ("num_examples", "num_tokens", "num_documents", "num_bytes")
    return {"num_shards": len(shards)} | {name: sum(getattr(shard, name) for shard in shards) for name in names}


def _check_counts(entry: Any, *names: str) -> None:
    for name in names:
        if getattr(entry, name) < 0:
            raise ManifestError(f"{name} is {getattr(entry, name)}: it cannot be below zero")


def _check_sha256(value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise ManifestError(f"sha256 is {value!r}: it must be 64 lower-case hex digits")


def _check_digest(value: str) -> None:
    if not _DIGEST.fullmatch(value):
        raise ManifestError(f"digest is {value!r}: it must be 'sha256:' and 64 lower-case hex digits")


def _check_path(path: str) -> None:
    if not path or (not storage.is_absolute(path) and ".." in path.split("/")):
        raise ManifestError(f"path is {path!r}: it must lie below the data set's root, or be absolute")
