"""Data sets made for tests: real shards and a real manifest of given rows, without a build."""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from manifests import (
    ExampleFormat,
    FunnelRow,
    InputsEntry,
    Manifest,
    ShardEntry,
    Split,
    TokenizerEntry,
    fingerprint,
    save,
    storage,
    write_shard,
)

EOS = 1


def write_split(
    root: str, shard_rows: Iterable[np.ndarray], *, example: ExampleFormat, folder: str, version: str = "v1"
) -> Split:
    """Writes a shard of each array of rows, (num_examples, seq_len), below `root`/`folder`."""
    entries = []
    for number, rows in enumerate(shard_rows):
        path = f"{folder}/{version}-{number:06d}.tar"
        with storage.atomic_writer(storage.join(root, path)) as stream:
            digest = write_shard(stream, [rows], version=version, shard=number, num_examples=len(rows), format=example)
        entries.append(
            ShardEntry(
                path=path,
                sha256=digest.sha256,
                num_bytes=digest.num_bytes,
                num_examples=len(rows),
                num_tokens=int((rows != example.padding_id).sum()),
                num_documents=int((rows == EOS).sum()),
            )
        )
    return Split.of(entries, seq_len=example.seq_len)


def no_tokenizer(vocab_size: int) -> TokenizerEntry:
    """The entry of a tokenizer that nobody wrote."""
    sha256 = hashlib.sha256(b"").hexdigest()
    return TokenizerEntry(path="tokenizers/none.json", sha256=sha256, vocab_size=vocab_size, eos_id=EOS, bos_id=None)


def manifest_of(
    splits: Mapping[str, Split],
    *,
    example: ExampleFormat,
    version: str = "v1",
    tokenizer: TokenizerEntry | None = None,
) -> Manifest:
    """A manifest of these splits that tells of no source and no input."""
    return Manifest(
        name="tiny",
        version=version,
        parent=None,
        tokenizer=tokenizer or no_tokenizer(100_000 if example.dtype == "uint32" else 60_000),
        example=example,
        splits=dict(splits),
        sources={},
        funnel=(
            FunnelRow(stage="read", reason=None, num_documents=0, num_bytes=0),
            FunnelRow(stage="kept", reason=None, num_documents=0, num_bytes=0),
        ),
        inputs=InputsEntry(num_files=0, num_bytes=0, digest=fingerprint([]), path=f"inputs/{version}.parquet"),
        config={},
        code={},
        built={},
    )


def write_manifest(
    root: str,
    splits: Mapping[str, Split],
    *,
    example: ExampleFormat,
    version: str = "v1",
    tokenizer: TokenizerEntry | None = None,
) -> str:
    """`manifest_of` these, written below `root`; its URL."""
    return save(manifest_of(splits, example=example, version=version, tokenizer=tokenizer), root)
