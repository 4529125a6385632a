"""What a manifest claims, checked against the bytes: every shard, its lineage, the tokenizer, the inputs, the sums."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from manifests import storage
from manifests.errors import UserError
from manifests.inputs import inputs_digest, read_inputs
from manifests.lineage import lineage_path, read_lineage
from manifests.manifest import Dataset, Manifest, ShardEntry, load, manifest_url
from manifests.scan import Problem, ShardScan, scan_shard
from manifests.shard import VERSION_NAME

_SHARD_NAME = re.compile(rf"({VERSION_NAME.pattern})-([0-9]{{6}})\.tar")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that does not hold, in one file of the data set."""

    file: str
    problem: Problem

    def __str__(self) -> str:
        problem = self.problem
        return f"{self.file}: {problem.field}: stated {problem.stated}, found {problem.found}"


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    """One shard read and checked."""

    split: str
    shard: ShardEntry
    findings: tuple[Finding, ...]


def verify_shards(dataset: Dataset) -> Iterator[ShardResult]:
    """Reads every shard and its lineage once, a block at a time, in the manifest's order."""
    for name, split in dataset.manifest.splits.items():
        for shard in split.shards:
            yield ShardResult(split=name, shard=shard, findings=tuple(_check_shard(dataset, shard)))


def verify_records(dataset: Dataset) -> list[Finding]:
    """Checks everything that is not a shard: the tokenizer's and inputs' files, the parent, the ledger's sums."""
    manifest = dataset.manifest
    findings = [*_check_tokenizer(dataset), *_check_inputs(dataset), *_check_parent(dataset)]
    findings += [Finding(file=dataset.url, problem=problem) for problem in _unbalanced(manifest)]
    return findings


def _check_shard(dataset: Dataset, shard: ShardEntry) -> Iterator[Finding]:
    manifest = dataset.manifest
    name = _SHARD_NAME.fullmatch(storage.basename(shard.path))
    if name is None:
        yield _finding(shard.path, "file name", "<version>-<6 digits>.tar", storage.basename(shard.path))
        return
    try:
        with storage.open_stream(dataset.resolve(shard.path)) as stream:
            scan = scan_shard(
                stream,
                version=name[1],
                shard=int(name[2]),
                num_examples=shard.num_examples,
                format=manifest.example,
                tokenizer=manifest.tokenizer,
            )
    except FileNotFoundError:
        yield _finding(shard.path, "file", f"{shard.num_bytes} bytes", "no such file")
        return
    facts = {
        "num_bytes": (shard.num_bytes, scan.num_bytes),
        "sha256": (shard.sha256, scan.sha256),
        "num_tokens": (shard.num_tokens, scan.num_tokens),
        "num_documents (EOS tokens)": (shard.num_documents, len(scan.eos_places)),
    }
    yield from _differing(shard.path, facts)
    yield from (Finding(file=shard.path, problem=problem) for problem in scan.problems)
    yield from _check_lineage(dataset, shard, scan)


def _check_lineage(dataset: Dataset, shard: ShardEntry, scan: ShardScan) -> Iterator[Finding]:
    path = lineage_path(shard.path)
    try:
        table = read_lineage(dataset.resolve(path))
    except FileNotFoundError:
        yield _finding(path, "file", f"the lineage of {shard.path}", "no such file")
        return
    except UserError as error:
        yield _finding(path, "file", "a lineage table", error)
        return
    seq_len = dataset.manifest.example.seq_len
    num_tokens = table.column("num_tokens").to_numpy()
    starts = table.column("first_example").to_numpy() * seq_len + table.column("first_token").to_numpy()
    ends = starts + num_tokens
    last_places = ends[table.column("ends").to_numpy()] - 1
    facts = {
        "sum of num_tokens": (scan.num_tokens, int(num_tokens.sum())),
        "rows that end a document": (len(scan.eos_places), len(last_places)),
        "runs that overlap": (0, int(np.count_nonzero(starts[1:] < ends[:-1]))),
        "runs outside the shard": (0, int(np.count_nonzero((starts < 0) | (ends > shard.num_examples * seq_len)))),
    }
    yield from _differing(path, facts)
    if len(last_places) == len(scan.eos_places) and not np.array_equal(np.sort(last_places), scan.eos_places):
        index = int((np.sort(last_places) != scan.eos_places).argmax())
        places = [divmod(int(array[index]), seq_len) for array in (scan.eos_places, np.sort(last_places))]
        shown = [f"example {example}, token {token}" for example, token in places]
        yield _finding(path, f"place of EOS number {index}", shown[0], shown[1])


def _check_tokenizer(dataset: Dataset) -> Iterator[Finding]:
    entry = dataset.manifest.tokenizer
    try:
        found = hashlib.sha256(storage.read_bytes(dataset.resolve(entry.path))).hexdigest()
    except FileNotFoundError:
        yield _finding(entry.path, "file", "the tokenizer", "no such file")
        return
    yield from _differing(entry.path, {"sha256": (entry.sha256, found)})


def _check_inputs(dataset: Dataset) -> Iterator[Finding]:
    entry = dataset.manifest.inputs
    try:
        table = read_inputs(dataset.resolve(entry.path))
    except FileNotFoundError:
        yield _finding(entry.path, "file", "the table of inputs", "no such file")
        return
    except UserError as error:
        yield _finding(entry.path, "file", "the table of inputs", error)
        return
    facts = {
        "num_files": (entry.num_files, table.num_rows),
        "num_bytes": (entry.num_bytes, sum(table.column("num_bytes").to_pylist())),
        "digest": (entry.digest, inputs_digest(table)),
    }
    yield from _differing(entry.path, facts)


def _check_parent(dataset: Dataset) -> Iterator[Finding]:
    """A parent that is no longer kept is no fault: what is still in use of it, this manifest lists itself."""
    parent = dataset.manifest.parent
    if parent is None:
        return
    url = manifest_url(dataset.root, parent.version)
    try:
        found = load(url).manifest.digest
    except FileNotFoundError:
        return
    except UserError as error:
        yield _finding(url, "file", "the parent's manifest", error)
        return
    yield from _differing(url, {"digest": (parent.digest, found)})


def _unbalanced(manifest: Manifest) -> Iterator[Problem]:
    read, kept = (_stage_total(manifest, stage) for stage in ("read", "kept"))
    ended = sum(row.num_documents for row in manifest.funnel if row.stage != "read")
    sources = manifest.sources.values()
    facts = {
        "funnel: documents read, and the sum of where they ended": (read, ended),
        "sources: documents_read, summed": (read, sum(source.documents_read for source in sources)),
        "sources: documents_kept, summed": (kept, sum(source.documents_kept for source in sources)),
    }
    for field, (stated, found) in facts.items():
        if stated != found:
            yield Problem(field=field, stated=stated, found=found)
    # Concat drops the last row of a split where it is not full. Best fit pads it, and so drops nothing.
    # A version that continues another has the tails of both.
    builds = {
        storage.basename(shard.path).rpartition("-")[0] for split in manifest.splits.values() for shard in split.shards
    }
    rows = len(manifest.splits) * max(1, len(builds)) if manifest.example.packing == "concat" else 0
    most = rows * (manifest.example.seq_len - 1)
    if not 0 <= manifest.num_dropped_tokens <= most:
        yield Problem(
            field="sources: tokens, summed",
            stated=f"0 to {most} more than in all splits",
            found=f"{manifest.num_dropped_tokens} more",
        )


def _stage_total(manifest: Manifest, stage: str) -> int:
    return sum(row.num_documents for row in manifest.funnel if row.stage == stage)


def _differing(file: str, facts: Mapping[str, tuple[object, object]]) -> Iterator[Finding]:
    for field, (stated, found) in facts.items():
        if stated != found:
            yield _finding(file, field, stated, found)


def _finding(file: str, field: str, stated: object, found: object) -> Finding:
    return Finding(file=file, problem=Problem(field=field, stated=stated, found=found))
