"""Kept documents -> runs of tokens in key order, a run set a split.

For every document that deduplication kept: its ids, EOS at the end; its key and its split from its identity; in the
training split as many copies as its source's weight says, each with its own key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

import numpy as np
import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.config import TokenizerConfig
from pipeline.documents import DocumentsFile, open_parquet
from pipeline.identity import Identities, identities, num_copies
from pipeline.runs import MAX_RUN_TOKENS, NUM_INDEX_COLUMNS, EncodedBatch, Run, run_schema, write_run
from pipeline.runtime import BuildError, Runtime, Summary, Unit, short
from pipeline.stages.deduplicate import Dropped
from pipeline.stages.outcome import kept_rows
from pipeline.tokenization import (
    Engines,
    Tokenizer,
    encode_surely,
    first_difference,
    open_engines,
    read_tokenizer,
    with_special_tokens,
)

FORMAT = 3
SPLITS = ("train", "validation")
NUM_SAMPLED = 8
"""Texts of every batch that both engines encode, evenly spaced through it."""
MAX_SAMPLED_CHARS = 1_000
"""Text of each that both engines encode at most. The reference takes 5 to 8 ms for all of them, a batch of 16 MB 120 to
180 ms.
"""


@dataclass(frozen=True, kw_only=True)
class EncodeTask:
    """Encode what one read unit kept."""

    file: DocumentsFile
    dropped_url: str
    tokenizer_url: str
    eos: str | None
    bos: str | None
    engine: str
    seed: int
    weight: float
    validation_fraction: float
    dtype: str
    num_buckets: int
    runs_url: str
    """Prefix of the runs' urls."""


def encode_documents(task: EncodeTask) -> Summary:
    """Write the unit's runs; say what each holds."""
    tokenizer, engines = _open(task.tokenizer_url, task.eos, task.bos, task.engine)
    kept = kept_rows(task.dropped_url, task.file)
    pending: dict[str, list[EncodedBatch]] = {split: [] for split in SPLITS}
    runs: dict[str, list[Run]] = {split: [] for split in SPLITS}
    totals = dict.fromkeys(
        ("num_documents", "num_copies", "num_tokens", "num_by_reference", "num_undrawn", "undrawn_bytes"), 0
    )

    def flush() -> None:
        # Both splits at once: a batch's tokens are held until both are written.
        for split in SPLITS:
            if pending[split]:
                url = f"{task.runs_url}-{split}-{len(runs[split]):06d}.arrow"
                runs[split].append(write_run(url, task.file.source, pending[split], task.num_buckets))
                pending[split] = []

    with open_parquet(task.file.url) as parquet:
        start = num_pending = 0
        for group in range(parquet.num_row_groups):
            # A task owns one core.
            columns = ["id", "text", "content_hash", "num_bytes"]
            table = parquet.read_row_group(group, columns=columns, use_threads=False)
            mask = kept[start : start + table.num_rows]
            start += table.num_rows
            table = table if mask.all() else table.filter(pa.array(mask))
            if not table.num_rows:
                continue
            drawn = _draw(table, task)
            if not drawn.copies.all():
                undrawn = table["num_bytes"].to_numpy()[drawn.copies == 0]
                totals["num_undrawn"] += len(undrawn)
                totals["undrawn_bytes"] += int(undrawn.sum())
                table = table.filter(pa.array(drawn.copies > 0))
                if not table.num_rows:
                    continue
                drawn = _draw(table, task)
            encoded = _encode(table, engines, tokenizer, task)
            totals["num_documents"] += table.num_rows
            totals["num_by_reference"] += encoded.num_by_reference
            for split, batch in _by_split(table, drawn, encoded, task):
                totals["num_copies"] += batch.documents.num_rows
                totals["num_tokens"] += batch.num_tokens
                pending[split].append(batch)
                num_pending += batch.num_tokens
                if num_pending >= MAX_RUN_TOKENS:
                    flush()
                    num_pending = 0
    flush()
    totals["num_copies"] -= totals["num_documents"]
    return {
        **totals,
        "engine": engines.chosen.name,
        "engine_why": engines.why,
        "runs": {split: [run.to_json() for run in runs[split]] for split in SPLITS},
        "files": [run.url for split in SPLITS for run in runs[split]],
    }


@lru_cache(maxsize=1)
def _open(url: str, eos: str | None, bos: str | None, engine: str) -> tuple[Tokenizer, Engines]:
    """The tokenizer and its engines, once a worker: 128,000 ids load in 1.5 s. The url names the content."""
    tokenizer = read_tokenizer(storage.read_bytes(url), eos=eos, bos=bos)
    return tokenizer, open_engines(tokenizer, engine)


@dataclass(frozen=True, kw_only=True)
class _Tokens:
    """Token lists of a batch, special tokens in place."""

    values: np.ndarray
    offsets: np.ndarray
    """int64 (n + 1,)."""
    num_by_reference: int
    """Documents that the fast engine gave up on."""


def _encode(table: pa.Table, engines: Engines, tokenizer: Tokenizer, task: EncodeTask) -> _Tokens:
    """Encode a batch; a sample is held against the reference engine."""
    texts = table["text"].to_pylist()
    ids, offsets, num_by_reference = encode_surely(engines, texts)
    if engines.chosen is not engines.reference:
        sample = _sample(texts)
        different = first_difference(engines.chosen, engines.reference, [text for _, text in sample])
        if different is not None:
            raise BuildError(
                f"document {table['id'][sample[different][0]].as_py()!r} of source {task.file.source}:"
                f" {engines.chosen.name} gives other ids than {engines.reference.name}: set tokenizer.engine: reference"
            )
    try:
        values, offsets = with_special_tokens(ids, offsets, tokenizer, task.dtype)
    except ValueError as error:
        raise BuildError(
            f"source {task.file.source}, {task.file.url}: {error}: this tokenizer cannot be used"
        ) from error
    return _Tokens(values=values, offsets=offsets, num_by_reference=num_by_reference)


def _sample(texts: Sequence[str]) -> list[tuple[int, str]]:
    """Up to NUM_SAMPLED documents, evenly spaced: the index of each, and a stretch from the middle of its text."""
    chosen = range(0, len(texts), -(-len(texts) // NUM_SAMPLED))
    middles = [(i, max(0, len(texts[i]) - MAX_SAMPLED_CHARS) // 2) for i in chosen]
    return [(i, texts[i][start : start + MAX_SAMPLED_CHARS]) for i, start in middles]


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """What the documents' identities decide of a batch, one entry a document."""

    own: Identities
    in_validation: np.ndarray
    copies: np.ndarray
    """int64: how often it stands in its split; 0 where a weight below 1 leaves it out."""


def _draw(table: pa.Table, task: EncodeTask) -> _Drawn:
    own = identities(task.seed, task.file.source, table["id"].to_pylist(), table["content_hash"].to_pylist())
    in_validation = own.validation_draws < task.validation_fraction
    # A copy in validation would only be weighed twice there: weights act on training alone.
    copies = np.where(in_validation, 1, num_copies(task.weight, own.repeat_draws))
    return _Drawn(own=own, in_validation=in_validation, copies=copies)


def _by_split(table: pa.Table, drawn: _Drawn, tokens: _Tokens, task: EncodeTask) -> Iterator[tuple[str, EncodedBatch]]:
    """The batch's documents and copies by split, where there are any; copies share their document's tokens."""
    ids, hashes = table["id"].to_pylist(), table["content_hash"].to_pylist()
    own, in_validation, copies = drawn.own, drawn.in_validation, drawn.copies
    lengths = np.diff(tokens.offsets)
    id_column = table["id"].combine_chunks()
    schema = pa.schema(list(run_schema(task.dtype))[:NUM_INDEX_COLUMNS])
    for repeat in range(int(copies.max())):
        keys = own.keys if repeat == 0 else identities(task.seed, task.file.source, ids, hashes, repeat).keys
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
            yield (
                split,
                EncodedBatch(
                    documents=pa.table(columns, schema=schema), tokens=tokens.values, starts=tokens.offsets[rows]
                ),
            )


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
    undrawn: tuple[tuple[str, int, int], ...]
    """(source, num_documents, num_bytes) that a weight below 1 left out."""
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
    *,
    tokenizer: Tokenizer,
    tokenizer_url: str,
    config: TokenizerConfig,
    seed: int,
    validation_fraction: float,
    dtype: str,
    num_buckets: int,
) -> Encoded:
    """Encode everything that was kept."""
    libraries = {name: version(name) for name in ("tokenizers", "fastokens")}
    units = []
    for file in files:
        key = fingerprint(
            [
                *["encode", FORMAT, file.key, file.first_document, dropped.key, libraries, seed, weights[file.source]],
                *[
                    tokenizer.sha256,
                    tokenizer.eos_id,
                    tokenizer.bos_id,
                    config.engine,
                    validation_fraction,
                    num_buckets,
                ],
            ]
        )
        task = EncodeTask(
            file=file,
            dropped_url=dropped.url,
            tokenizer_url=tokenizer_url,
            eos=config.eos,
            bos=config.bos,
            engine=config.engine,
            seed=seed,
            weight=weights[file.source],
            validation_fraction=validation_fraction,
            dtype=dtype,
            num_buckets=num_buckets,
            runs_url=storage.join(build_url, "encode", short(key)),
        )
        units.append(Unit(key=key, label=f"{file.source}, documents of {file.url}", task=task))
    results = runtime.run("encode", encode_documents, units)
    counts = {name: dict.fromkeys(weights, 0) for name in ("num_tokens", "num_documents", "num_copies")}
    for file, result in zip(files, results, strict=True):
        for name, by_source in counts.items():
            by_source[file.source] += result[name]
    return Encoded(
        keys=tuple(unit.key for unit in units),
        runs={
            split: tuple(Run.from_json(run) for result in results for run in result["runs"][split]) for split in SPLITS
        },
        **counts,
        undrawn=tuple(
            (file.source, result["num_undrawn"], result["undrawn_bytes"])
            for file, result in zip(files, results, strict=True)
            if result["num_undrawn"]
        ),
        num_by_reference=sum(result["num_by_reference"] for result in results),
        engine=" / ".join(sorted({f"{result['engine']} ({result['engine_why']})" for result in results})) or "none",
        num_buckets=num_buckets,
    )
