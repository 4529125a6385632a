"""Input files -> kept documents, quarantined records, and the ledger of both.

    survey of large files -> units (read_unit.py) -> their results added up

A unit is a run of files of one source, some 64 MB together, or a part of a large file (survey.py); how files fall into
units decides no byte of the result.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from manifests.errors import UserError
from manifests.inputs import INPUTS_SCHEMA
from pipeline import texts
from pipeline.budget import Losses, over_budget, over_budget_of_bytes
from pipeline.config import BuildConfig, SourceConfig, resolved_filters
from pipeline.counted_lines import CountedLines
from pipeline.documents import DocumentsFile, in_groups
from pipeline.identity import Draw
from pipeline.inputs import InputFile, Inputs, find_inputs, group_inputs
from pipeline.ledger import Ledger
from pipeline.readers.parts import Part
from pipeline.readers.survey import Survey
from pipeline.runtime import Runtime, Summary, Unit, short
from pipeline.stages.read_unit import ReadTask, read_documents
from pipeline.stages.survey import survey_files

FORMAT = 11
COUNTED_BYTES = 1 << 30
"""Lines are counted in all documents of a source whose files are no larger than this together, else in every second,
fourth ...: template lines are those of a whole percent of the documents, which a sample of some 100,000 shows.
"""


def find_all_inputs(config: BuildConfig) -> Inputs:
    """List every source, in the order of their names. UserError names a path that matches nothing."""
    found = [find_inputs(source) for source in sorted(config.sources, key=lambda source: source.name)]
    return Inputs(
        files=tuple(file for inputs in found for file in inputs.files),
        skipped=tuple(file for inputs in found for file in inputs.skipped),
    )


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
    num_undated: Counter[str]
    """Kept documents without a date, by source: all of them, where dates are not asked for."""
    redacted: Counter[str]
    """Replacements by the rule's name."""
    num_lost_files: Counter[str] = field(default_factory=Counter)
    """Files that gave bad records and no document, by source; of a large file, parts."""
    lost_bytes: Counter[str] = field(default_factory=Counter)
    """Their bytes as they lie in storage."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(name, reason) of files inside archives that are no data by their names: the first of each unit."""
    num_skipped: int = 0
    """All of them."""
    num_attachments: int = 0
    """Of mails, left out."""
    lines: tuple[CountedLines, ...] = ()
    """One a unit."""

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
    source_bytes = _source_bytes(found)
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
    fields = texts.fields_of(config, source)
    settings: list[Any] = [
        [[file.name, file.url, file.num_bytes, file.identity] for file in group],
        [source.name, source.format, dataclasses.asdict(fields), source.encoding, source.markup],
        [None if part is None else dataclasses.asdict(part), sha256],
        [dataclasses.asdict(source.clean or config.clean), dataclasses.asdict(config.redact)],
        [[name, dataclasses.asdict(chosen)] for name, chosen in filters],
        [config.dedup.near.enabled, config.dedup.near.ngram, config.dedup.near.bands, config.dedup.near.rows],
        [config.dedup.near.templates.enabled, level := _lines_level(source_bytes[source.name])],
    ]
    draw = None
    if source.weight < 1:  # another weight of 1 and more changes nothing here, so the unit's result stays valid
        draw = Draw(seed=config.seed, weight=source.weight, validation_fraction=config.validation.fraction)
        settings.append(dataclasses.asdict(draw))
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
        draw=draw,
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
    """Read every file.

    Raises:
        UserError: files lost whole hold more bytes of a source than its budget; told as soon as that is certain, not
            after the rest of the corpus.
    """
    units = read_units(config, found, survey_files(runtime, config, found))
    results = runtime.run("read", read_documents, units, _early_check(config, found, len(units)))
    priorities = {source.name: source.priority for source in config.sources}
    ledger = Ledger()
    files, inputs, quarantine_urls, lines = [], [], [], []
    num_undated: Counter[str] = Counter()
    num_lost_files: Counter[str] = Counter()
    lost_bytes: Counter[str] = Counter()
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
        lines.append(
            CountedLines(
                source=source,
                url=unit.task.lines_url,
                num_documents=result["num_counted"],
                level=unit.task.lines_level,
            )
        )
        first_document += result["num_kept"]
        num_undated[source] += result["num_undated"]
        num_lost_files[source] += result["num_lost_files"]
        lost_bytes[source] += result["lost_bytes"]
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
        num_undated=num_undated,
        num_lost_files=num_lost_files,
        lost_bytes=lost_bytes,
        num_changed=sum(result["num_changed"] for result in results),
        skipped=tuple((name, reason) for result in results for name, reason in result["skipped"]),
        num_skipped=sum(result["num_skipped"] for result in results),
        num_attachments=sum(result["num_attachments"] for result in results),
        redacted=sum((Counter(result["redacted"]) for result in results), Counter()),
        lines=tuple(lines),
    )


def _early_check(config: BuildConfig, found: Inputs, num_units: int) -> Callable[[Unit, Summary], None]:
    """Adds up what files lost whole take of each source; the share can only grow, so beyond the budget is the end.

    The last unit is left to `check_budget`, which has all records at hand.
    """
    source_bytes = _source_bytes(found)
    so_far = {name: Losses(num_bytes=num_bytes) for name, num_bytes in source_bytes.items()}

    num_left = num_units

    def check(unit: Unit, result: Summary) -> None:
        nonlocal num_left
        num_left -= 1
        source = unit.task.source
        old = so_far[source]
        bad = {str(reason): n for stage, reason, n, _ in result["ended"] if stage == "quarantine"}
        new = so_far[source] = Losses(
            reasons=Counter(old.reasons) + Counter(bad),
            num_bytes=old.num_bytes,
            num_lost_files=old.num_lost_files + result["num_lost_files"],
            lost_bytes=old.lost_bytes + result["lost_bytes"],
        )
        over = over_budget_of_bytes(new, config.bad_records.budget_fraction)
        if num_left and over:
            raise UserError(
                f"bad_records.budget_fraction: source {source} {over}, and files are still unread: see"
                f" {unit.task.quarantine_url}, then mend the files or raise the budget"
            )

    return check


def _source_bytes(found: Inputs) -> Counter[str]:
    source_bytes: Counter[str] = Counter()
    for file in found.files:
        source_bytes[file.source] += file.num_bytes
    return source_bytes


def _a_row_a_file(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The rows of a file's parts as one, their records added up."""
    of_file: dict[tuple[str, str], list[Any]] = {}
    for source, name, *rest, num_records in rows:
        row = of_file.setdefault((source, name), [source, name, *rest, 0])
        row[-1] += num_records
    return list(of_file.values())


def undated_in_words(config: BuildConfig, documents: Read) -> str | None:
    """A line for the person who waits, where the newest duplicate is to stay and some documents have no date.

    Raises:
        UserError: none has one.
    """
    num_undated = documents.num_undated.total()
    if config.dedup.keep != "newest" or not num_undated:
        return None
    if num_undated == documents.num_kept:
        raise UserError(
            f"dedup.keep is newest, but none of {num_undated:,} documents has a date that can be read: correct the"
            " sources' date (a field's name), or keep the longest or the smallest_id"
        )
    of_source = ", ".join(f"{source} {n:,}" for source, n in sorted(documents.num_undated.items()) if n)
    return (
        f"note: {num_undated:,} of {documents.num_kept:,} documents have no date that can be read"
        f" ({of_source}): of duplicates they count as the oldest"
    )


def check_budget(documents: Read, budget_fraction: float, where: str) -> None:
    """Stop the build when a source has more bad records, or bytes in files lost whole, than allowed (budget.py).

    Raises:
        UserError: with the three commonest reasons, and where every record can be seen.
    """
    num_bytes: Counter[str] = Counter()
    for source, size in zip(
        documents.inputs["source"].to_pylist(), documents.inputs["num_bytes"].to_pylist(), strict=True
    ):
        num_bytes[source] += size
    ledger = documents.ledger
    for source in sorted(ledger.read_documents):
        losses = Losses(
            num_records=ledger.read_documents[source],
            reasons={
                str(reason): n
                for (s, stage, reason), n in ledger.ended_documents.items()
                if (s, stage) == (source, "quarantine")
            },
            num_bytes=num_bytes[source],
            num_lost_files=documents.num_lost_files[source],
            lost_bytes=documents.lost_bytes[source],
        )
        if over := over_budget(losses, budget_fraction):
            raise UserError(
                f"bad_records.budget_fraction: source {source} {over}: see {where}, then mend the files or raise the"
                " budget"
            )
