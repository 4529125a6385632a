"""Input files -> kept documents, quarantined records, and the ledger of both.

One pass over the text, a batch of some 16 MB at a time:

    read -> clean -> redact -> drop null and blank -> statistics and word hashes -> filters -> content hash, signature,
    lines -> documents file

A unit is a run of files of one source, some 64 MB together, or a part of a large file (survey.py); how files fall into
units decides no byte of the result.
Memory is a few batches, whatever the size of a file.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from manifests import storage
from manifests.canonical import fingerprint
from manifests.errors import UserError
from manifests.inputs import INPUTS_SCHEMA
from pipeline import texts
from pipeline.config import BuildConfig, CleanConfig, NearConfig, RedactConfig, SourceConfig, resolved_filters
from pipeline.dedup import exact, minhash
from pipeline.dedup.templates import line_hashes
from pipeline.documents import (
    LINE,
    DocumentsFile,
    add_lines,
    documents_schema,
    in_groups,
    row_group_rows,
    signature_column,
)
from pipeline.filters import judge_all
from pipeline.identity import CONTENT_HASH_BYTES
from pipeline.inputs import InputFile, Inputs, find_inputs, group_inputs
from pipeline.kernels.text import Words, analyse
from pipeline.ledger import Ledger
from pipeline.quarantine import Quarantine
from pipeline.readers import Fields, read_file
from pipeline.readers.parts import Part
from pipeline.readers.survey import Survey
from pipeline.runtime import Runtime, Summary, Unit, short
from pipeline.stages.survey import check_unchanged, survey_files

FORMAT = 5
COUNTED_BYTES = 1 << 30
"""Lines are counted in all documents of a source whose files are no larger than this together, else in every second,
fourth ...: template lines are those of a whole percent of the documents, which a sample of some 100,000 shows.
"""
MAX_UNCOUNTED = 16_000_000
"""Lines held before they are counted: 128 MB. Counting sorts them, so the fewer times the better."""
MAX_SKIPPED = 100
"""Names of files skipped inside archives that a unit hands on: the report lists fewer."""
MIN_BUDGET_RECORDS = 10
"""Bad records that never stop a build unless the budget is 0: a fraction of a small source would be less than one
record.
"""


def find_all_inputs(config: BuildConfig) -> Inputs:
    """List every source, in the order of their names. UserError names a path that matches nothing."""
    found = [find_inputs(source) for source in sorted(config.sources, key=lambda source: source.name)]
    return Inputs(
        files=tuple(file for inputs in found for file in inputs.files),
        skipped=tuple(file for inputs in found for file in inputs.skipped),
    )


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """Read a run of files of one source."""

    source: str
    files: tuple[InputFile, ...]
    format: str
    fields: Fields
    encoding: str | None
    markup: str | None
    clean: CleanConfig
    redact: RedactConfig
    filters: tuple[tuple[str, Any], ...]
    """Names and settings, in the order they judge."""
    near: NearConfig
    lines_level: int
    """Lines are counted in one of 2**lines_level documents, chosen by content hash."""
    part: Part | None
    """Of the one file, where it is read in parts; then `sha256` is the file's, by its survey."""
    sha256: str
    documents_url: str
    lines_url: str
    quarantine_url: str


def read_documents(task: ReadTask) -> Summary:
    """Write the unit's documents and, where there are any, its quarantined records; count where each record ended."""
    counts: Counter[tuple[str, str | None]] = Counter()
    sizes: Counter[tuple[str, str | None]] = Counter()
    inputs: list[list[Any]] = []
    redacted: Counter[str] = Counter()
    skipped: list[list[str]] = []
    num_text_bytes = num_changed = num_counted = 0  # bytes: as they are read, before anything is judged
    lines, uncounted = np.empty(0, LINE), [np.empty(0, np.uint64)]

    def end(stage: str, reason: str | None, num_documents: int, num_bytes: int) -> None:
        counts[stage, reason] += num_documents
        sizes[stage, reason] += num_bytes

    def found(quarantine: Quarantine) -> Iterator[pa.Table]:
        nonlocal num_text_bytes
        for file in task.files:
            check_unchanged(file)
            reading = read_file(
                file.url,
                format=task.format,
                fields=task.fields,
                encoding=task.encoding,
                markup=task.markup,
                part=task.part,
            )
            for records in reading:
                for bad in records.bad:
                    end("quarantine", bad.reason, bad.num_records, bad.num_bytes)
                quarantine.add(task.source, file.name, records.bad)
                for path, reason in records.skipped[: max(0, MAX_SKIPPED - len(skipped))]:
                    skipped.append([texts.file_of(file.name, path), reason])
                num_text_bytes += sum(bad.num_bytes for bad in records.bad)
                documents, num_null = texts.found(records, file.name)
                end("filter", "empty.null", num_null, 0)
                yield documents
            check_unchanged(file)
            summary = reading.summary
            num_bytes, sha256 = (
                (summary.num_bytes, summary.sha256) if task.part is None else (file.num_bytes, task.sha256)
            )
            inputs.append([task.source, file.name, file.url, num_bytes, f"sha256:{sha256}", summary.num_records])

    schema = documents_schema(task.near.bands * task.near.rows)
    with (
        storage.atomic_writer(task.documents_url) as stream,
        pq.ParquetWriter(stream, schema, compression="lz4", use_dictionary=False, write_statistics=False) as writer,
        Quarantine(task.quarantine_url) as quarantine,
    ):
        for documents in texts.gathered(found(quarantine)):
            prepared = texts.prepared(documents["text"].chunk(0), task.clean, task.redact)
            redacted += prepared.redacted
            num_text_bytes += texts.num_bytes(prepared.text)
            num_changed += int(np.count_nonzero(prepared.changed))
            kept = _keep(documents["id"].chunk(0), prepared.text, task, end)
            if kept.num_rows:
                num_bytes = kept["text"].nbytes
                writer.write_table(kept, row_group_size=row_group_rows(kept.num_rows, num_bytes))
                if task.near.templates.enabled:
                    hashes, num_documents = _lines(kept, task.lines_level)
                    uncounted.append(hashes)
                    num_counted += num_documents
                    if sum(map(len, uncounted)) > MAX_UNCOUNTED:
                        lines, uncounted = add_lines(lines, np.concatenate(uncounted)), []
    lines = add_lines(lines, np.concatenate([*uncounted, np.empty(0, np.uint64)]))
    storage.write_bytes(task.lines_url, lines.tobytes())
    return {
        "inputs": inputs,
        "ended": [
            [stage, reason, counts[stage, reason], sizes[stage, reason]] for stage, reason in sorted(counts, key=str)
        ],
        "num_records": sum(row[-1] for row in inputs),
        "num_text_bytes": num_text_bytes,
        "num_kept": counts["kept", None],
        "num_quarantined": sum(n for (stage, _), n in counts.items() if stage == "quarantine"),
        "num_changed": num_changed,
        "redacted": dict(sorted(redacted.items())),
        "num_counted": num_counted,
        "skipped": skipped,
        "files": [task.documents_url, task.lines_url, *([task.quarantine_url] if quarantine.num_rows else [])],
    }


def _keep(ids: pa.Array, text: pa.LargeStringArray, task: ReadTask, end: Any) -> pa.Table:
    """The batch's documents that stay, by documents_schema. The rest go to `end`."""
    schema = documents_schema(task.near.bands * task.near.rows)
    num_bytes = pc.binary_length(text).cast(pa.int64()).to_numpy()

    statistics, words = analyse(text)
    blank = statistics.num_words == 0
    verdicts, reasons = judge_all(task.filters, statistics)
    reason = np.where(blank, 0, verdicts + 1)  # 0: blank, 1: kept, above: reasons[reason - 2]
    for code in np.unique(reason[reason != 1]):
        of_code = reason == code
        name = "empty.blank" if code == 0 else reasons[code - 2]
        end("filter", name, int(of_code.sum()), int(num_bytes[of_code].sum()))
    stays = np.flatnonzero(reason == 1)
    end("kept", None, len(stays), int(num_bytes[stays].sum()))

    # Mostly all stay, and a copy of the text costs as much as hashing it.
    if len(stays) < len(text):
        rows = pa.array(stays)
        text, ids = text.take(rows), ids.take(rows)
    hashes = exact.content_hashes(text)
    kept = {
        "id": ids,
        "text": text,
        "num_bytes": num_bytes[stays],
        "content_hash": pa.Array.from_buffers(
            pa.binary(CONTENT_HASH_BYTES), len(stays), [None, pa.py_buffer(np.ascontiguousarray(hashes, "<u8"))]
        ),
        "text_hash": exact.text_hashes(text),
        "signature": _signatures(words, stays, task.near),
    }
    return pa.table(kept, schema=schema)


def _signatures(words: Words, stays: np.ndarray, near: NearConfig) -> pa.Array:
    num_permutations = near.bands * near.rows
    if not near.enabled or not len(stays):
        return pa.nulls(len(stays), pa.binary(4 * num_permutations))
    signatures, has_signature = minhash.signatures(words, ngram=near.ngram, num_permutations=num_permutations)
    return signature_column(signatures[stays], has_signature[stays])


def _lines(kept: pa.Table, level: int) -> tuple[np.ndarray, int]:
    """The lines of the batch's documents that are in the sample, each once a document, and how many documents."""
    hashes, offsets = line_hashes(kept["text"].chunk(0))
    first_byte = np.frombuffer(kept["content_hash"].chunk(0).buffers()[1], np.uint8)[::CONTENT_HASH_BYTES]
    rows = np.flatnonzero(first_byte[: kept.num_rows] & ((1 << level) - 1) == 0)
    if len(rows) == kept.num_rows:
        return hashes, len(rows)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(hashes))
    return lists.take(pa.array(rows)).values.to_numpy(), len(rows)


@dataclass(frozen=True, kw_only=True)
class Read:
    """The outcome of the stage."""

    files: tuple[DocumentsFile, ...]
    inputs: pa.Table
    """INPUTS_SCHEMA."""
    ledger: Ledger
    """Documents that reading kept are `kept` in it, until deduplication moves some."""
    quarantine_urls: tuple[tuple[str, str], ...]
    """(source, url) of each unit's quarantined records."""
    num_changed: int
    redacted: Counter[str]
    """Replacements by the rule's name."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(name, reason) of files inside archives that are no data by their names, MAX_SKIPPED a unit."""
    lines: tuple[tuple[str, str, int], ...] = ()
    """(source, url, num_documents) of each unit's counted lines."""

    @property
    def num_read(self) -> int:
        """Records found."""
        return sum(self.ledger.read_documents.values())

    @property
    def num_kept(self) -> int:
        """Documents kept so far."""
        return sum(file.num_documents for file in self.files)


def read_units(config: BuildConfig, found: Inputs, surveys: Mapping[InputFile, Survey]) -> list[Unit]:
    """The stage's units, in the order of (source, name, part); `surveys` are of the files that are read in parts."""
    build_url = storage.join(storage.absolute(config.output), ".build")
    sources = {source.name: source for source in config.sources}
    source_bytes: Counter[str] = Counter()
    for file in found.files:
        source_bytes[file.source] += file.num_bytes
    units = []
    for group in group_inputs(found.files, alone=surveys):
        survey = surveys.get(group[0], Survey(parts=()))
        for part in survey.parts or (None,):
            units.append(_unit(config, sources[group[0].source], group, source_bytes, part, survey.sha256, build_url))
    return units


def _unit(
    config: BuildConfig,
    source: SourceConfig,
    group: Sequence[InputFile],
    source_bytes: Mapping[str, int],
    part: Part | None,
    sha256: str,
    build_url: str,
) -> Unit:
    filters = tuple(resolved_filters(config, source))
    fields = Fields(text=source.text, id=source.id)
    settings: list[Any] = [
        [[file.name, file.url, file.num_bytes, file.identity] for file in group],
        [source.name, source.format, dataclasses.asdict(fields), source.encoding, source.markup],
        [None if part is None else dataclasses.asdict(part), sha256],
        [dataclasses.asdict(source.clean or config.clean), dataclasses.asdict(config.redact)],
        [[name, dataclasses.asdict(chosen)] for name, chosen in filters],
        [config.dedup.near.enabled, config.dedup.near.ngram, config.dedup.near.bands, config.dedup.near.rows],
        [config.dedup.near.templates.enabled, level := _lines_level(source_bytes[source.name])],
    ]
    key = fingerprint(["read", FORMAT, *settings])
    task = ReadTask(
        source=source.name,
        files=tuple(group),
        format=source.format,
        fields=fields,
        encoding=source.encoding,
        markup=source.markup,
        clean=source.clean or config.clean,
        redact=config.redact,
        filters=filters,
        near=config.dedup.near,
        lines_level=level,
        part=part,
        sha256=sha256,
        documents_url=storage.join(build_url, "read", f"{short(key)}.parquet"),
        lines_url=storage.join(build_url, "read", f"{short(key)}.lines"),
        quarantine_url=storage.join(build_url, "read", f"{short(key)}.quarantine.parquet"),
    )
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    size = sum(file.num_bytes for file in group)
    if part is not None:
        more = f", from record {part.first_record:,}"
        size = part.packed_bytes
    return Unit(key=key, label=f"{source.name}: {group[0].name}{more}", task=task, num_bytes=size)


def _lines_level(num_bytes: int) -> int:
    # At most one document in 128: seven bits of a byte, 100 TB a source.
    return min(7, max(0, (num_bytes // COUNTED_BYTES).bit_length()))


def read(runtime: Runtime, config: BuildConfig, found: Inputs) -> Read:
    """Read every file. UserError when a source has more bad records than its budget."""
    units = read_units(config, found, survey_files(runtime, config, found))
    results = runtime.run("read", read_documents, units)
    priorities = {source.name: source.priority for source in config.sources}
    ledger = Ledger()
    files, inputs, quarantine_urls, lines = [], [], [], []
    first_document = 0
    for unit, result in zip(units, results, strict=True):
        source = unit.task.source
        ledger.read(source, result["num_records"], result["num_text_bytes"])
        for stage, reason, num_documents, num_bytes in result["ended"]:
            ledger.end(source, stage, reason, num_documents, num_bytes)
        files.append(
            DocumentsFile(
                key=unit.key,
                url=unit.task.documents_url,
                source=source,
                priority=priorities[source],
                num_documents=result["num_kept"],
                first_document=first_document,
                num_bytes=sum(size for stage, _, _, size in result["ended"] if stage == "kept"),
            )
        )
        lines.append((source, unit.task.lines_url, result["num_counted"]))
        first_document += result["num_kept"]
        inputs += result["inputs"]
        if result["num_quarantined"]:
            quarantine_urls.append((source, unit.task.quarantine_url))
    ledger.check()
    inputs = _a_row_a_file(inputs)
    columns = zip(*inputs, strict=True) if inputs else [[] for _ in INPUTS_SCHEMA]
    return Read(
        files=in_groups(files),
        inputs=pa.table(dict(zip(INPUTS_SCHEMA.names, map(list, columns), strict=True)), schema=INPUTS_SCHEMA),
        ledger=ledger,
        quarantine_urls=tuple(quarantine_urls),
        num_changed=sum(result["num_changed"] for result in results),
        skipped=tuple((name, reason) for result in results for name, reason in result["skipped"]),
        redacted=sum((Counter(result["redacted"]) for result in results), Counter()),
        lines=tuple(lines),
    )


def _a_row_a_file(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The rows of a file's parts as one, their records added up."""
    of_file: dict[tuple[str, str], list[Any]] = {}
    for source, name, *rest, num_records in rows:
        row = of_file.setdefault((source, name), [source, name, *rest, 0])
        row[-1] += num_records
    return list(of_file.values())


def check_budget(ledger: Ledger, budget_fraction: float, where: str) -> None:
    """Stop the build when a source has more bad records than allowed.

    Allowed are `budget_fraction` of its records, and MIN_BUDGET_RECORDS where that is more and the fraction is not 0.

    Raises:
        UserError: with the three commonest reasons, and where every record can be seen.
    """
    for source in sorted(ledger.read_documents):
        num_read, num_bad = ledger.read_documents[source], ledger.documents(source, "quarantine")
        allowed = max(int(budget_fraction * num_read), MIN_BUDGET_RECORDS if budget_fraction else 0)
        if num_bad > allowed:
            reasons = Counter(
                {
                    reason: n
                    for (s, stage, reason), n in ledger.ended_documents.items()
                    if (s, stage) == (source, "quarantine")
                }
            )
            commonest = ", ".join(f"{reason} {n:,}" for reason, n in reasons.most_common(3))
            raise UserError(
                f"bad_records.budget_fraction: source {source} has {num_bad:,} unreadable of {num_read:,} records,"
                f" {allowed:,} are allowed ({commonest}): see {where}, then mend the files or raise the budget"
            )
