"""Each kind of damage to a data set is found, and named by file and field; a sound one has no findings."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from manifests import (
    LINEAGE_SCHEMA,
    Dataset,
    ExampleFormat,
    FunnelRow,
    Parent,
    ShardEntry,
    SourceEntry,
    Split,
    lineage_path,
    load,
    read_lineage,
    write_lineage,
    write_shard,
)
from manifests.verify import verify_records, verify_shards
from tests.manifests.manifest_samples import DOCUMENTS, FORMAT, build

FIRST = "shards/train/v1-000000.tar"


def findings(dataset: Dataset) -> list[str]:
    shards = [str(finding) for result in verify_shards(dataset) for finding in result.findings]
    return [str(finding) for finding in verify_records(dataset)] + shards


def test_a_sound_data_set_has_no_findings(any_root):
    parent = load(build(any_root))
    assert findings(parent) == []
    child = load(build(any_root, version="v2", parent=parent.manifest, documents=DOCUMENTS[:3]))
    assert findings(child) == []


def test_every_shard_is_reported(tmp_path):
    results = list(verify_shards(load(build(str(tmp_path)))))
    assert [(result.split, result.shard.path) for result in results] == [
        ("train", FIRST),
        ("train", "shards/train/v1-000001.tar"),
    ]


def damaged(root: Path, edit: Callable[[bytearray], object]) -> list[str]:
    """The findings after `edit` on the first shard's bytes, with the manifest's sha256 made to fit: so the hash alone
    does not give it away."""
    dataset = load(build(str(root)))
    path = root / FIRST
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)
    split = dataset.manifest.splits["train"]
    first = replace(split.shards[0], sha256=hashlib.sha256(content).hexdigest())
    shards = Split.of([first, *split.shards[1:]], seq_len=FORMAT.seq_len)
    return findings(replace(dataset, manifest=replace(dataset.manifest, splits={"train": shards})))


def put(content: bytearray, place: int, data: bytes) -> None:
    content[place : place + len(data)] = data


STRIDE = 1024


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: put(c, STRIDE, b"w"), "tar header of example 1, byte 0: stated 118, found 119"),
        (lambda c: put(c, STRIDE + 136, b"1"), "tar header of example 1, byte 136: stated 48, found 49"),
        (lambda c: put(c, 2 * STRIDE + 512, b"x"), "npy header of example 2, byte 512: stated 147, found 120"),
        (
            lambda c: put(c, 640, (1000).to_bytes(2, "little")),
            "token 0 of example 0: stated an id below 1000, found 1000",
        ),
        (lambda c: put(c, 642, b"\xff\xff"), "token 1 of example 0: stated an id below 1000, found 65535"),
        (lambda c: put(c, 656, b"x"), "bytes after the tokens of example 0: stated zeros, found others"),
        (lambda c: put(c, 4 * STRIDE, b"x"), "end of archive: stated two zero blocks, found other bytes"),
        (lambda c: c.extend(bytes(512)), "num_bytes: stated 5120, found 5632"),
        (lambda c: c.__delitem__(slice(-1024, None)), "num_bytes: stated 5120, found 4096"),
        (lambda c: c.__delitem__(slice(3000, None)), "num_bytes: stated 5120, found 3000"),
        (lambda c: c.clear(), "num_bytes: stated 5120, found 0"),
        (lambda c: put(c, 640, (1).to_bytes(2, "little")), "num_documents (EOS tokens): stated 3, found 4"),
    ],
)
def test_damage_inside_a_shard_is_named(tmp_path, edit, said):
    assert f"{FIRST}: {said}" in damaged(tmp_path, edit)


def test_one_flipped_bit_is_found_by_the_hash(tmp_path):
    dataset = load(build(str(tmp_path)))
    path = tmp_path / FIRST
    content = bytearray(path.read_bytes())
    content[640] ^= 1
    path.write_bytes(content)
    (finding,) = findings(dataset)
    assert finding.startswith(f"{FIRST}: sha256: stated {dataset.manifest.splits['train'].shards[0].sha256}, found ")


def test_a_shard_under_another_ones_name_is_found(tmp_path):
    dataset = load(build(str(tmp_path), examples_per_shard=3))
    (tmp_path / FIRST).write_bytes((tmp_path / "shards/train/v1-000001.tar").read_bytes())
    assert any(line.startswith(f"{FIRST}: tar header of example 0") for line in findings(dataset))


@pytest.mark.parametrize("name", [FIRST, lineage_path(FIRST), "inputs/v1.parquet", "tokenizer"])
def test_a_missing_file_is_a_finding(tmp_path, name):
    dataset = load(build(str(tmp_path)))
    name = dataset.manifest.tokenizer.path if name == "tokenizer" else name
    (tmp_path / name).unlink()
    (finding,) = findings(dataset)
    assert finding.startswith(f"{name}: file: stated ")
    assert finding.endswith("found no such file")


@pytest.mark.parametrize("name", [lineage_path(FIRST), "inputs/v1.parquet"])
def test_a_damaged_table_is_a_finding(tmp_path, name):
    dataset = load(build(str(tmp_path)))
    (tmp_path / name).write_bytes(b"PAR1 and nothing more PAR1")
    (finding,) = findings(dataset)
    assert finding.startswith(f"{name}: file: stated ")


def test_another_tokenizer_than_the_one_used_is_found(tmp_path):
    dataset = load(build(str(tmp_path)))
    (tmp_path / dataset.manifest.tokenizer.path).write_bytes(b"{}")
    (finding,) = findings(dataset)
    assert finding.startswith(f"{dataset.manifest.tokenizer.path}: sha256: stated {dataset.manifest.tokenizer.sha256}")


def lineage_changed(root: Path, change: Callable[[list[dict]], object]) -> list[str]:
    dataset = load(build(str(root)))
    url = dataset.resolve(lineage_path(FIRST))
    rows = read_lineage(url).to_pylist()
    change(rows)
    write_lineage(url, pa.Table.from_pylist(rows, schema=LINEAGE_SCHEMA))
    return findings(dataset)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.pop(), "sum of num_tokens: stated 32, found 29"),
        (lambda rows: rows[0].update(ends=False), "rows that end a document: stated 3, found 2"),
        (lambda rows: rows[1].update(first_token=3), "runs that overlap: stated 0, found 1"),
        (lambda rows: rows[-1].update(first_example=9), "runs outside the shard: stated 0, found 1"),
        (
            lambda rows: rows[0].update(num_tokens=19),
            "place of EOS number 0: stated example 2, token 3, found example 2, token 2",
        ),
    ],
)
def test_lineage_that_disagrees_with_the_tokens_is_named(tmp_path, change, said):
    assert f"{lineage_path(FIRST)}: {said}" in lineage_changed(tmp_path, change)


def test_a_funnel_and_sources_that_do_not_balance_are_found_with_both_values(tmp_path):
    dataset = load(build(str(tmp_path)))
    manifest = dataset.manifest
    funnel = (replace(manifest.funnel[0], num_documents=9), *manifest.funnel[1:])
    docs = SourceEntry(weight=1.0, documents_read=4, documents_kept=2, tokens=50)
    broken = replace(manifest, funnel=funnel, sources=manifest.sources | {"docs": docs})
    assert findings(replace(dataset, manifest=broken)) == [
        f"{dataset.url}: funnel: documents read, and the sum of where they ended: stated 9, found 7",
        f"{dataset.url}: sources: documents_read, summed: stated 9, found 7",
        f"{dataset.url}: sources: documents_kept, summed: stated 6, found 5",
        f"{dataset.url}: sources: tokens, summed: stated 0 to 7 more than in all splits, found 16 more",
    ]


def test_a_parent_whose_digest_changed_is_found_and_one_that_is_gone_is_not_missed(tmp_path):
    parent = load(build(str(tmp_path)))
    child = load(build(str(tmp_path), version="v2", parent=parent.manifest))
    other = replace(child.manifest, parent=Parent(version="v1", digest="sha256:" + "0" * 64))
    (finding,) = findings(replace(child, manifest=other))
    assert finding == f"{parent.url}: digest: stated sha256:{'0' * 64}, found {parent.manifest.digest}"
    Path(parent.url).unlink()
    assert findings(child) == []


def test_a_shard_whose_name_does_not_say_which_one_it_is_cannot_be_checked(tmp_path):
    dataset = load(build(str(tmp_path)))
    entry = replace(dataset.manifest.splits["train"].shards[0], path="shards/train/first.tar")
    broken = replace(dataset.manifest, splits={"train": Split.of([entry], seq_len=8)})
    (result,) = verify_shards(replace(dataset, manifest=broken))
    assert [str(finding) for finding in result.findings] == [
        "shards/train/first.tar: file name: stated <version>-<6 digits>.tar, found first.tar"
    ]


def padded(root: Path, rows: np.ndarray, num_padding: int) -> list[str]:
    """The findings on a best-fit shard of these rows."""
    dataset = load(build(str(root)))
    format = ExampleFormat(seq_len=8, dtype="uint16", packing="best_fit")
    path = "shards/train/v2-000000.tar"
    with (root / path).open("wb") as stream:
        digest = write_shard(stream, [rows], version="v2", shard=0, num_examples=len(rows), format=format)
    places = np.flatnonzero(rows.reshape(-1) == 1)
    lineage = [
        {
            "source": "docs",
            "document_id": str(place),
            "repeat": 0,
            "first_example": place // 8,
            "first_token": 0,
            "num_tokens": place % 8 + 1,
            "document_offset": 0,
            "ends": True,
        }
        for place in places.tolist()
    ]
    write_lineage(str(root / lineage_path(path)), pa.Table.from_pylist(lineage, schema=LINEAGE_SCHEMA))
    num_tokens = rows.size - num_padding
    entry = ShardEntry(
        path=path,
        sha256=digest.sha256,
        num_bytes=digest.num_bytes,
        num_examples=len(rows),
        num_tokens=num_tokens,
        num_documents=len(places),
    )
    num_documents = len(places)
    manifest = replace(
        dataset.manifest,
        example=format,
        splits={"train": Split.of([entry], seq_len=8)},
        sources={
            "docs": SourceEntry(
                weight=1.0, documents_read=num_documents, documents_kept=num_documents, tokens=num_tokens
            )
        },
        funnel=tuple(
            FunnelRow(stage=stage, reason=None, num_documents=num_documents, num_bytes=1) for stage in ("read", "kept")
        ),
    )
    return findings(replace(dataset, manifest=manifest))


PAD = 65_535


def test_padding_at_the_end_of_best_fit_examples_holds(tmp_path):
    rows = np.array([[5, 6, 7, 1, PAD, PAD, PAD, PAD], [5, 6, 7, 8, 9, 10, 11, 1]], "<u2")
    assert padded(tmp_path, rows, 4) == []


def test_padding_before_a_token_is_found(tmp_path):
    rows = np.array([[PAD, PAD, PAD, PAD, 5, 6, 7, 1], [5, 6, 7, 8, 9, 10, 11, 1]], "<u2")
    said = "token 3 of example 0: stated padding only at an example's end, found padding before a token"
    assert f"shards/train/v2-000000.tar: {said}" in padded(tmp_path, rows, 4)


def test_an_id_outside_the_vocabulary_is_no_padding(tmp_path):
    rows = np.array([[5, 6, 7, 1, PAD, PAD, PAD, PAD], [5, 6, 7, 8, 9, 1000, 11, 1]], "<u2")
    assert padded(tmp_path, rows, 4) == [
        "shards/train/v2-000000.tar: token 5 of example 1: stated an id below 1000, found 1000"
    ]
