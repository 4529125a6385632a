"""Small data sets for the tests of manifests: real shards, lineage, tokenizer and inputs, as a builder makes them."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from manifests import (
    INPUTS_SCHEMA,
    LINEAGE_SCHEMA,
    ExampleFormat,
    FunnelRow,
    InputsEntry,
    Manifest,
    Parent,
    ShardEntry,
    SourceEntry,
    Split,
    TokenizerEntry,
    inputs_digest,
    lineage_path,
    save,
    storage,
    write_inputs,
    write_lineage,
    write_shard,
)

EOS = 1
VOCAB_SIZE = 1000
TOKENIZER = b'{"made for": "tests"}'
FORMAT = ExampleFormat(seq_len=8, dtype="uint16", packing="concat")


@dataclass(frozen=True)
class Document:
    """`num_tokens` counts its EOS."""

    source: str
    id: str
    num_tokens: int


# 61 tokens: 7 rows of 8, and a tail of 5.
DOCUMENTS = (
    Document("docs", "guide/install.md", 20),
    Document("docs", "guide/настройка.md", 9),
    Document("tickets", "1", 3),
    Document("tickets", "2", 1),
    Document("tickets", "guide/install.md", 18),
    Document("docs", "api.md", 10),
)


def build(
    root: str,
    *,
    version: str = "v1",
    documents: tuple[Document, ...] = DOCUMENTS,
    examples_per_shard: int = 4,
    parent: Manifest | None = None,
    config: dict | None = None,
) -> str:
    """Builds a data set of one split by concat packing; returns its manifest's URL."""
    tokens = np.concatenate([_tokens(document) for document in documents])
    num_rows = len(tokens) // FORMAT.seq_len
    rows = tokens[: num_rows * FORMAT.seq_len].reshape(num_rows, FORMAT.seq_len)
    shards = []
    for number, first in enumerate(range(0, num_rows, examples_per_shard)):
        path = f"shards/train/{version}-{number:06d}.tar"
        block = rows[first : first + examples_per_shard]
        with storage.atomic_writer(storage.join(root, path)) as stream:
            digest = write_shard(stream, [block], version=version, shard=number, num_examples=len(block), format=FORMAT)
        write_lineage(storage.join(root, lineage_path(path)), _lineage(documents, first, len(block)))
        shards.append(
            ShardEntry(
                path=path,
                sha256=digest.sha256,
                num_bytes=digest.num_bytes,
                num_examples=len(block),
                num_tokens=block.size,
                num_documents=int((block == EOS).sum()),
            )
        )
    manifest = replace(
        manifest_of(Split.of(shards, seq_len=FORMAT.seq_len), documents, version),
        parent=None if parent is None else Parent(version=parent.version, digest=parent.digest),
        config={"seed": 0} if config is None else config,
        inputs=_write_inputs(root, version, documents),
    )
    storage.write_bytes(storage.join(root, manifest.tokenizer.path), TOKENIZER)
    return save(manifest, root)


def manifest_of(split: Split, documents: tuple[Document, ...] = DOCUMENTS, version: str = "v1") -> Manifest:
    """A manifest around one split; its files are whoever asks' to write."""
    sha256 = hashlib.sha256(TOKENIZER).hexdigest()
    num_documents = len(documents)
    sources = {
        name: SourceEntry(
            weight=1.0,
            documents_read=sum(document.source == name for document in documents) + (name == "docs"),
            documents_kept=sum(document.source == name for document in documents),
            tokens=sum(document.num_tokens for document in documents if document.source == name),
        )
        for name in sorted({document.source for document in documents})
    }
    return Manifest(
        name="support-corpus",
        version=version,
        parent=None,
        tokenizer=TokenizerEntry(
            path=f"tokenizers/{sha256}.json", sha256=sha256, vocab_size=VOCAB_SIZE, eos_id=EOS, bos_id=None
        ),
        example=FORMAT,
        splits={"train": split},
        sources=sources,
        funnel=(
            FunnelRow(stage="read", reason=None, num_documents=num_documents + 1, num_bytes=5000),
            FunnelRow(stage="filter", reason="gopher_quality.too_few_words", num_documents=1, num_bytes=10),
            FunnelRow(stage="kept", reason=None, num_documents=num_documents, num_bytes=4990),
        ),
        inputs=InputsEntry(num_files=0, num_bytes=0, digest="sha256:" + "0" * 64, path=f"inputs/{version}.parquet"),
        config={},
        code={"version": "0.1.0", "git_commit": None, "image": None},
        built={"started_at": "2026-11-29T12:00:00Z", "seconds": 1.5},
    )


def _tokens(document: Document) -> np.ndarray:
    first = int(hashlib.sha256(f"{document.source}/{document.id}".encode()).hexdigest()[:4], 16)
    ids = 2 + (first + np.arange(document.num_tokens)) % (VOCAB_SIZE - 2)
    ids[-1] = EOS
    return ids.astype("<u2")


def _lineage(documents: tuple[Document, ...], first_row: int, num_rows: int) -> pa.Table:
    begin, end = first_row * FORMAT.seq_len, (first_row + num_rows) * FORMAT.seq_len
    rows, place = [], 0
    for document in documents:
        start, stop = max(place, begin), min(place + document.num_tokens, end)
        if start < stop:
            example, token = divmod(start - begin, FORMAT.seq_len)
            rows.append(
                {
                    "source": document.source,
                    "document_id": document.id,
                    "repeat": 0,
                    "first_example": example,
                    "first_token": token,
                    "num_tokens": stop - start,
                    "document_offset": start - place,
                    "ends": stop == place + document.num_tokens,
                }
            )
        place += document.num_tokens
    return pa.Table.from_pylist(rows, schema=LINEAGE_SCHEMA)


def _write_inputs(root: str, version: str, documents: tuple[Document, ...]) -> InputsEntry:
    rows = [
        {
            "source": document.source,
            "name": document.id,
            "path": f"/corpus/{document.source}/{document.id}",
            "num_bytes": 10 * document.num_tokens,
            "identity": "sha256:" + hashlib.sha256(repr(document).encode()).hexdigest(),
            "num_records": 1,
        }
        for document in documents
    ]
    table = pa.Table.from_pylist(rows, schema=INPUTS_SCHEMA)
    path = f"inputs/{version}.parquet"
    write_inputs(storage.join(root, path), table)
    num_bytes = sum(table.column("num_bytes").to_pylist())
    return InputsEntry(num_files=len(rows), num_bytes=num_bytes, digest=inputs_digest(table), path=path)
