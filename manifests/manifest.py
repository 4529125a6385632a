"""The manifest: one immutable version of a data set, typed and frozen; its digest; load and save.

The classes mirror the JSON field by field. What the JSON says twice (sums, sizes, the digest) is checked when an object
is made or read, so a manifest in memory never contradicts itself; whether the bytes agree is verify's question.
"""

import functools
import itertools
import json
from dataclasses import dataclass
from typing import Any

from manifests import storage
from manifests.canonical import fingerprint
from manifests.entries import (
    FunnelRow,
    InputsEntry,
    ManifestError,
    Parent,
    ShardEntry,
    SourceEntry,
    Split,
    TokenizerEntry,
)
from manifests.errors import UserError
from manifests.shard import ExampleFormat, check_version_name
from manifests.strict_json import check_keys, decode_fields

__all__ = [
    "FORMAT",
    "Dataset",
    "FunnelRow",
    "InputsEntry",
    "Manifest",
    "ManifestError",
    "Parent",
    "ShardEntry",
    "SourceEntry",
    "Split",
    "TokenizerEntry",
    "load",
    "manifest_url",
    "save",
    "to_bytes",
]

FORMAT = "shardmill/1"
# How and when a data set was made. Equal data have an equal digest, whoever built them.
OUTSIDE_DIGEST = ("code", "built")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One version of a data set."""

    name: str
    version: str
    parent: Parent | None
    tokenizer: TokenizerEntry
    example: ExampleFormat
    splits: dict[str, Split]
    sources: dict[str, SourceEntry]
    funnel: tuple[FunnelRow, ...]
    inputs: InputsEntry
    config: dict[str, Any]
    code: dict[str, Any]
    built: dict[str, Any]

    def __post_init__(self) -> None:
        check_version_name(self.version)
        vocab_size = self.tokenizer.vocab_size
        if self.example.dtype == "uint16" and ExampleFormat.dtype_for(vocab_size) != "uint16":
            raise ManifestError(
                f"example.dtype is uint16, but tokenizer.vocab_size is {vocab_size}: such ids need uint32"
            )
        paths = sorted(shard.path for split in self.splits.values() for shard in split.shards)
        for path, following in itertools.pairwise(paths):
            if path == following:
                raise ManifestError(f"splits list {path} twice: a shard belongs to one split, once")
        for name, split in self.splits.items():
            self._check_split(name, split)
        self._check_funnel()

    def _check_split(self, name: str, split: Split) -> None:
        example = self.example
        for index, shard in enumerate(split.shards):
            expected = example.shard_num_bytes(shard.num_examples)
            if shard.num_bytes != expected:
                raise ManifestError(
                    f"splits.{name}.shards[{index}].num_bytes is {shard.num_bytes}, but {shard.num_examples} examples "
                    f"of stride {example.stride} make {expected}: build again"
                )
        num_places = split.num_examples * example.seq_len
        if split.num_tokens + split.num_padding_tokens != num_places:
            raise ManifestError(
                f"splits.{name}: {split.num_tokens} tokens and {split.num_padding_tokens} of padding do not fill "
                f"{split.num_examples} examples of {example.seq_len} ({num_places}): build again"
            )
        if split.num_padding_tokens and example.packing == "concat":
            raise ManifestError(
                f"splits.{name}.num_padding_tokens is {split.num_padding_tokens}, "
                "but example.packing is concat, which pads nothing: build again"
            )

    def _check_funnel(self) -> None:
        rows = [(row.stage, row.reason) for row in self.funnel]
        if len(set(rows)) != len(rows):
            raise ManifestError("funnel has two rows of one stage and reason: add them up")
        for stage in ("read", "kept"):
            num_rows = sum(row.stage == stage for row in self.funnel)
            if num_rows != 1:
                raise ManifestError(f"funnel has {num_rows} rows of the stage {stage!r}: it needs exactly one")

    @functools.cached_property
    def digest(self) -> str:
        """The fingerprint of every field but `code`, `built` and the digest: what the data are, not how they came."""
        return fingerprint({key: value for key, value in self._fields().items() if key not in OUTSIDE_DIGEST})

    @property
    def num_dropped_tokens(self) -> int:
        """Tokens encoded but in no shard: with concat packing the last, unfilled row of each split."""
        encoded = sum(source.tokens for source in self.sources.values())
        return encoded - sum(split.num_tokens for split in self.splits.values())

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values, digest included."""
        return self._fields() | {"digest": self.digest}

    def _fields(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "parent": None if self.parent is None else dict(vars(self.parent)),
            "tokenizer": dict(vars(self.tokenizer)),
            "example": self.example.to_json(),
            "splits": {
                name: {**vars(split), "shards": [dict(vars(shard)) for shard in split.shards]}
                for name, split in self.splits.items()
            },
            "sources": {name: dict(vars(source)) for name, source in self.sources.items()},
            "funnel": [dict(vars(row)) for row in self.funnel],
            "inputs": dict(vars(self.inputs)),
            "config": self.config,
            "code": self.code,
            "built": self.built,
        }

    @classmethod
    def from_json(cls, value: Any) -> "Manifest":
        """Raises UserError for another format, unknown or missing keys, wrong types, wrong sums, a wrong digest."""
        if not isinstance(value, dict) or "format" not in value:
            raise ManifestError('this is not a manifest: it needs to be a JSON object with "format"')
        if value["format"] != FORMAT:
            raise ManifestError(
                f"format is {value['format']!r}, this program reads {FORMAT!r}: use the release that wrote it"
            )
        check_keys(value, {*cls.__dataclass_fields__, "format", "digest"}, "the manifest")
        fields = {key: item for key, item in value.items() if key not in ("format", "digest")}
        manifest = decode_fields(cls, fields, "")
        if value["digest"] != manifest.digest:
            raise ManifestError(
                f"digest is {value['digest']!r}, but the content's is {manifest.digest!r}: the file was changed "
                "after it was written; restore it or build again"
            )
        return manifest


@dataclass(frozen=True)
class Dataset:
    """A manifest and the place its relative paths start from."""

    manifest: Manifest
    root: str
    url: str

    def resolve(self, path: str) -> str:
        """The URL of a path in the manifest: an absolute one stays, a relative one lies below the root."""
        return path if storage.is_absolute(path) else storage.join(self.root, path)


def manifest_url(root: str, version: str) -> str:
    """Where a data set keeps this version."""
    return storage.join(root, "manifests", f"{check_version_name(version)}.json")


def load(url: str) -> Dataset:
    """The data set whose manifest is at `url`, <root>/manifests/<version>.json, local or on S3.

    Raises FileNotFoundError where there is none, ManifestError where it is no sound manifest.
    """
    url = storage.absolute(url)
    return Dataset(manifest=_parse(storage.read_bytes(url), url), root=storage.parent(storage.parent(url)), url=url)


def save(manifest: Manifest, root: str) -> str:
    """Writes the manifest below `root`, whole or not at all; returns its URL.

    A version is immutable: an existing manifest of this version with another digest raises ManifestError; one with the
    same digest is left as it is, so that `built` keeps telling of the build that made the data.
    """
    url = manifest_url(storage.absolute(root), manifest.version)
    if storage.exists(url):
        existing = load(url).manifest
        if existing.digest != manifest.digest:
            raise ManifestError(
                f"{url} already holds version {manifest.version} with digest {existing.digest}, not {manifest.digest}: "
                "a version never changes; give this build another version"
            )
        return url
    storage.write_bytes(url, to_bytes(manifest))
    return url


def to_bytes(manifest: Manifest) -> bytes:
    """The file's bytes: sorted keys, two-space indent, UTF-8, one newline at the end."""
    text = json.dumps(manifest.to_json(), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _parse(data: bytes, url: str) -> Manifest:
    try:
        value = json.loads(data, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
        return Manifest.from_json(value)
    except UserError as error:
        raise ManifestError(f"{url}: {error}") from error
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ManifestError(f"{url} is not JSON: {error}; give a manifest, <root>/manifests/<version>.json") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ManifestError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ManifestError(f"it holds {name}, which is no JSON number")
