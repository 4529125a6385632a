"""Kept documents -> runs of tokens in key order, a run set a split.

For every document that deduplication kept: its ids, EOS at the end; its key and its split from its identity; in the
training split as many copies as its source's weight says, each with its own key.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self

import numpy as np
import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.documents import DocumentsFile, open_parquet
from pipeline.identity import Identities, identities, num_copies
from pipeline.runs import (
    DOCUMENTS,
    MAX_RUN_TOKENS,
    MERGE_BUCKETS,
    EncodedBatch,
    Run,
    RunLayout,
    merge_runs,
    write_run,
)
from pipeline.runtime import BuildError, Runtime, Summary, Unit, short
from pipeline.scratch_disk import scratch_folder, writing_to_scratch
from pipeline.stages.deduplicate import Dropped
from pipeline.stages.engine import TokenizerInUse, open_in_worker
from pipeline.stages.outcome import kept_rows
from pipeline.tokenization import Engines, check_no_specials, encode_surely, first_difference

FORMAT = 5
MAX_UNITS = 4096
"""Beyond it a unit takes several neighbouring files, and makes one run of them: each shard reads from all runs."""
SPLITS = ("train", "validation")
COLUMNS = ["id", "text", "content_hash"]
NUM_SAMPLED = 8
"""Texts of every file that both engines encode, evenly spaced through it."""
MAX_SAMPLED_CHARS = 500
"""Text of each that both engines encode at most: 2 to 5 ms of the reference's, where a task takes 300 to 800."""


@dataclass(frozen=True, kw_only=True)
class EncodeRules:
    """What is the same for all documents of a build."""

    tokenizer: TokenizerInUse
    seed: int
    validation_fraction: float
    layout: RunLayout

    def fingerprint(self) -> str:
        """Of all that decides a document's tokens, its split, its place and its run's bytes."""
        layout = [self.layout.dtype, self.layout.num_buckets]
        return fingerprint([self.tokenizer.fingerprint(), self.seed, self.validation_fraction, *layout])


@dataclass(frozen=True, kw_only=True)
class EncodeTask:
    """Encode what some read units of one source kept."""

    files: tuple[DocumentsFile, ...]
    dropped_url: str
    weight: float
    """Of the files' source."""
    rules: EncodeRules
    runs_url: str
    """Prefix of the runs' urls."""

    @property
    def source(self) -> str:
        """Of the files."""
        return self.files[0].source


def encode_documents(task: EncodeTask) -> Summary:
    """Write the unit's runs; say what each holds."""
    engines = open_in_worker(task.rules.tokenizer)
    totals = dict.fromkeys(("num_documents", "num_copies", "num_tokens", "num_by_reference"), 0)
    with _Runs(task) as runs:
        for file in task.files:
            kept = kept_rows(task.dropped_url, file)
            encoder = _Encoder(file, int(np.count_nonzero(kept)), engines, task.rules)
            for table in _kept(file, kept):
                drawn = _draw(table, task)
                ids, offsets = encoder.encode(table)
                totals["num_documents"] += table.num_rows
                for split, batch in _by_split(table, drawn, ids, offsets, task):
                    totals["num_copies"] += batch.documents.num_rows
                    totals["num_tokens"] += batch.num_tokens
                    runs.add(split, batch)
            totals["num_by_reference"] += encoder.num_by_reference
        runs.finish()
    totals["num_copies"] -= totals["num_documents"]
    return {
        **totals,
        "engine": engines.chosen.name,
        "engine_why": engines.why,
        "runs": {split: [run.url for run in runs.written[split]] for split in SPLITS},
        "files": [run.url for split in SPLITS for run in runs.written[split]],
    }


def _kept(file: DocumentsFile, kept: np.ndarray) -> Iterator[pa.Table]:
    """COLUMNS of the documents that stay, a row group at a time."""
    start = 0
    with open_parquet(file.url) as parquet:
        for group in range(parquet.num_row_groups):
            # A task owns one core.
            table = parquet.read_row_group(group, columns=COLUMNS, use_threads=False)
            mask = kept[start : start + table.num_rows]
            start += table.num_rows
            table = table if mask.all() else table.filter(pa.array(mask))
            if table.num_rows:
                yield table


class _Runs:
    """Batches on their way into runs: written whenever MAX_RUN_TOKENS have come together; of a task of several files to
    the local disk first, where they become one run a split.
    """

    def __init__(self, task: EncodeTask) -> None:
        self._task = task
        self._pending: dict[str, list[EncodedBatch]] = {split: [] for split in SPLITS}
        self._num_pending = 0
        self._is_merged = len(task.files) > 1
        self.written: dict[str, list[Run]] = {split: [] for split in SPLITS}

    def __enter__(self) -> Self:
        self._exit = ExitStack()
        self._folder = str(self._exit.enter_context(scratch_folder())) if self._is_merged else ""
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def add(self, split: str, batch: EncodedBatch) -> None:
        self._pending[split].append(batch)
        self._num_pending += batch.num_tokens
        if self._num_pending >= MAX_RUN_TOKENS:
            self._flush()

    def finish(self) -> None:
        """All that was added is in `written`."""
        self._flush()
        if self._is_merged:
            for split, pieces in self.written.items():
                if pieces:
                    url = f"{self._task.runs_url}-{split}-000000.run"
                    self.written[split] = [merge_runs(url, pieces, self._task.rules.layout)]

    def _flush(self) -> None:
        layout = self._task.rules.layout
        if self._is_merged:
            layout = replace(layout, num_buckets=min(MERGE_BUCKETS, layout.num_buckets))
        # Both splits at once: a batch's tokens are held until both are written.
        for split in SPLITS:
            if self._pending[split]:
                name = f"{split}-{len(self.written[split]):06d}.run"
                url = storage.join(self._folder, name) if self._is_merged else f"{self._task.runs_url}-{name}"
                with writing_to_scratch() if self._is_merged else nullcontext():
                    run = write_run(url, self._task.source, self._pending[split], layout)
                self.written[split].append(run)
                self._pending[split] = []
        self._num_pending = 0


class _Encoder:
    """The engine, held against the reference on NUM_SAMPLED documents evenly spaced through a file."""

    def __init__(self, file: DocumentsFile, num_documents: int, engines: Engines, rules: EncodeRules) -> None:
        self._file = file
        self._rules = rules
        self._step = max(1, -(-num_documents // NUM_SAMPLED))
        self._num_encoded = 0
        self._engines = engines
        self.num_by_reference = 0
        """Documents that the fast engine gave up on."""

    def encode(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of a batch and their offsets, without EOS and BOS; BuildError where the engines differ."""
        texts = table["text"].to_pylist()
        ids, offsets, num_by_reference = encode_surely(self._engines, texts)
        self.num_by_reference += num_by_reference
        self._compare(table, texts)
        self._num_encoded += len(texts)
        try:
            check_no_specials(ids, offsets, self._rules.layout.special_ids)
        except ValueError as error:
            where = f"source {self._file.source}, {self._file.url}"
            raise BuildError(f"{where}: {error}: this tokenizer cannot be used") from error
        return ids, offsets

    def _compare(self, table: pa.Table, texts: Sequence[str]) -> None:
        chosen, reference = self._engines.chosen, self._engines.reference
        rows = range(-self._num_encoded % self._step, len(texts), self._step)
        if chosen is reference or not rows:
            return
        different = first_difference(chosen, reference, [middle(texts[row]) for row in rows])
        if different is not None:
            raise BuildError(
                f"document {table['id'][rows[different]].as_py()!r} of source {self._file.source}:"
                f" {chosen.name} gives other ids than {reference.name}: set tokenizer.engine: reference"
            )


def middle(text: str) -> str:
    """The stretch of MAX_SAMPLED_CHARS in the middle of a text."""
    start = max(0, len(text) - MAX_SAMPLED_CHARS) // 2
    return text[start : start + MAX_SAMPLED_CHARS]


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """What the documents' identities decide of a batch, one entry a document."""

    keys: np.ndarray
    """uint64 (n, 2)."""
    in_validation: np.ndarray
    copies: np.ndarray
    """int64: how often it stands in its split, once or more: of a weight below 1, reading has left the rest out."""


def _draw(table: pa.Table, task: EncodeTask) -> _Drawn:
    own = _identities(table, task, repeat=0)
    in_validation = own.validation_draws < task.rules.validation_fraction
    # A copy in validation would only be weighed twice there: weights act on training alone.
    copies = np.where(in_validation, 1, num_copies(task.weight, own.repeat_draws))
    return _Drawn(keys=own.keys, in_validation=in_validation, copies=copies)


def _identities(table: pa.Table, task: EncodeTask, repeat: int) -> Identities:
    ids, hashes = table["id"].to_pylist(), table["content_hash"].to_pylist()
    return identities(task.rules.seed, task.source, ids, hashes, repeat)


def _by_split(
    table: pa.Table, drawn: _Drawn, ids: np.ndarray, offsets: np.ndarray, task: EncodeTask
) -> Iterator[tuple[str, EncodedBatch]]:
    """The batch's documents and copies by split, where there are any; copies share their document's tokens."""
    in_validation, copies = drawn.in_validation, drawn.copies
    layout = task.rules.layout
    lengths = np.diff(offsets) + layout.special_ids.num
    id_column = table["id"].combine_chunks()
    for repeat in range(int(copies.max())):
        keys = drawn.keys if repeat == 0 else _identities(table, task, repeat).keys
        for split, chosen in (("train", ~in_validation), ("validation", in_validation)):
            rows = np.flatnonzero(chosen & (copies > repeat))
            if not len(rows):
                continue
            columns = {
                "key_high": keys[rows, 0],
                "key_low": keys[rows, 1],
                "id": id_column.take(pa.array(rows)),
                "repeat": np.full(len(rows), repeat, np.int32),
                "num_tokens": lengths[rows],
            }
            yield split, EncodedBatch(documents=pa.table(columns, schema=DOCUMENTS), tokens=ids, starts=offsets[rows])


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The outcome of the stage."""

    keys: tuple[str, ...]
    runs: dict[str, tuple[Run, ...]]
    """By split."""
    num_tokens: dict[str, int]
    """Tokens encoded, copies included, by source."""
    num_documents: dict[str, int]
    """Documents encoded, copies not counted, by source."""
    num_copies: dict[str, int]
    """Copies that weights made beside them, by source."""
    num_by_reference: int
    """Documents that the fast engine gave up on, and the reference encoded."""
    engine: str
    """The engine, and why it was chosen."""
    num_buckets: int

    def in_words(self, vocab_size: int) -> str:
        """One line for the person who waits."""
        copies = ", ".join(f"{n:+,} of {name} by its weight" for name, n in sorted(self.num_copies.items()) if n)
        gave_up = f"; {self.num_by_reference:,} documents by the reference alone" if self.num_by_reference else ""
        return (
            f"encoded {sum(self.num_documents.values()):,} documents{f' ({copies})' if copies else ''} to"
            f" {sum(self.num_tokens.values()):,} tokens of a vocabulary of {vocab_size:,} by {self.engine}{gave_up}"
        )


def encode(
    runtime: Runtime,
    build_url: str,
    files: Sequence[DocumentsFile],
    dropped: Dropped,
    weights: dict[str, float],
    rules: EncodeRules,
) -> Encoded:
    """Encode everything that was kept; `weights` by source."""
    units = []
    for together in _together(files):
        source = together[0].source
        of_files = [[file.key, file.first_document] for file in together]
        key = fingerprint(["encode", FORMAT, of_files, dropped.key, weights[source], rules.fingerprint()])
        task = EncodeTask(
            files=together,
            dropped_url=dropped.url,
            weight=weights[source],
            rules=rules,
            runs_url=storage.join(build_url, "encode", short(key)),
        )
        units.append(Unit(key=key, label=f"{source}, documents of {together[0].url}", task=task))
    results = runtime.run("encode", encode_documents, units)
    counts = {name: dict.fromkeys(weights, 0) for name in ("num_tokens", "num_documents", "num_copies")}
    runs: dict[str, list[Run]] = {split: [] for split in SPLITS}
    for unit, result in zip(units, results, strict=True):
        source = unit.task.source
        for name, by_source in counts.items():
            by_source[source] += result[name]
        for split, urls in result["runs"].items():
            runs[split] += [Run(url=url, source=source, num_buckets=rules.layout.num_buckets) for url in urls]
    return Encoded(
        keys=tuple(unit.key for unit in units),
        runs={split: tuple(found) for split, found in runs.items()},
        **counts,
        num_by_reference=sum(result["num_by_reference"] for result in results),
        engine=" / ".join(sorted({f"{result['engine']} ({result['engine_why']})" for result in results})) or "none",
        num_buckets=rules.layout.num_buckets,
    )


def _together(files: Sequence[DocumentsFile]) -> Iterator[tuple[DocumentsFile, ...]]:
    """The files of each unit: one, or neighbours of one source where there are more than MAX_UNITS."""
    num_together = -(-len(files) // MAX_UNITS)
    for _, of_source in groupby(files, key=lambda file: file.source):
        own = tuple(of_source)
        for first in range(0, len(own), num_together):
            yield own[first : first + num_together]
