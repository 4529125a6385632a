"""Kept documents -> runs of tokens in key order, a run set a split.

For every document that deduplication kept: its ids, EOS at the end; its key and its split from its identity; in the
training split as many copies as its source's weight says, each with its own key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

import numpy as np
import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.config import TokenizerConfig
from pipeline.documents import open_parquet
from pipeline.identity import identities, num_copies
from pipeline.kernels.ragged import take_lists
from pipeline.runs import MAX_RUN_TOKENS, Run, run_schema, write_run
from pipeline.runtime import BuildError, Runtime, Summary, Unit, short
from pipeline.stages.deduplicate import DocumentsFile, Dropped, kept_rows
from pipeline.tokenization import (
    Engines,
    Tokenizer,
    first_difference,
    open_engines,
    read_tokenizer,
    with_special_tokens,
)

FORMAT = 1
SPLITS = ("train", "validation")
NUM_SAMPLED = 8
"""Texts of every batch that both engines encode, evenly spaced through it."""
MAX_SAMPLED_CHARS = 16_000
"""Text of a batch that both engines encode at most. The reference takes 7 ms for it, a batch of 16 MB takes 130 ms."""


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
    pending: dict[str, list[pa.Table]] = {split: [] for split in SPLITS}
    pending_tokens = dict.fromkeys(SPLITS, 0)
    runs: dict[str, list[Run]] = {split: [] for split in SPLITS}
    num_documents = num_tokens = 0

    def flush(split: str) -> None:
        url = f"{task.runs_url}-{split}-{len(runs[split]):06d}.arrow"
        runs[split].append(write_run(url, task.file.source, pa.concat_tables(pending[split]), task.num_buckets))
        pending[split], pending_tokens[split] = [], 0

    with open_parquet(task.file.url) as parquet:
        start = 0
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, columns=["id", "text", "content_hash"])
            table = table.filter(pa.array(kept[start : start + table.num_rows]))
            start += parquet.metadata.row_group(group).num_rows
            if not table.num_rows:
                continue
            encoded = _encode(table, engines, tokenizer, task)
            num_documents += table.num_rows
            for split, documents in _by_split(table, encoded, task).items():
                if documents.num_rows:
                    pending[split].append(documents)
                    added = int(documents["num_tokens"].to_numpy().sum())
                    num_tokens += added
                    pending_tokens[split] += added
                    pending[split][-1] = documents.drop_columns(["num_tokens"])
                if pending_tokens[split] >= MAX_RUN_TOKENS:
                    flush(split)
    for split in SPLITS:
        if pending[split]:
            flush(split)
    return {
        "num_documents": num_documents,
        "num_tokens": num_tokens,
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


def _encode(table: pa.Table, engines: Engines, tokenizer: Tokenizer, task: EncodeTask) -> pa.Array:
    """Token lists of a batch, special tokens in place; a sample is held against the reference engine."""
    texts = table["text"].to_pylist()
    if engines.chosen is not engines.reference:
        sample = _sample(texts)
        different = first_difference(engines.chosen, engines.reference, [texts[i] for i in sample])
        if different is not None:
            raise BuildError(
                f"document {table['id'][sample[different]].as_py()!r} of source {task.file.source}:"
                f" {engines.chosen.name} gives other ids than {engines.reference.name}: set tokenizer.engine: reference"
            )
    ids, offsets = engines.chosen.encode(texts)
    try:
        ids, offsets = with_special_tokens(ids, offsets, tokenizer)
    except ValueError as error:
        raise BuildError(
            f"source {task.file.source}, {task.file.url}: {error}: this tokenizer cannot be used"
        ) from error
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.astype(task.dtype)))


def _sample(texts: Sequence[str]) -> list[int]:
    """Indices of up to NUM_SAMPLED texts, evenly spaced, of MAX_SAMPLED_CHARS together; longer ones are passed over."""
    sample, left = [], MAX_SAMPLED_CHARS
    for i in range(0, len(texts), max(1, len(texts) // NUM_SAMPLED)):
        if len(texts[i]) <= left:
            sample.append(i)
            left -= len(texts[i])
    return sample


def _by_split(table: pa.Table, tokens: pa.Array, task: EncodeTask) -> dict[str, pa.Table]:
    """The batch's documents and copies as run tables, with a column num_tokens beside."""
    ids, hashes = table["id"].to_pylist(), table["content_hash"].to_pylist()
    own = identities(task.seed, task.file.source, ids, hashes)
    lengths = np.diff(tokens.offsets.to_numpy())
    in_validation = own.validation_draws < task.validation_fraction
    # A copy in validation would only be weighed twice there: weights act on training alone.
    copies = np.where(in_validation, 1, num_copies(task.weight, own.repeat_draws))
    schema = run_schema(task.dtype).append(pa.field("num_tokens", pa.int64()))
    parts: dict[str, list[pa.Table]] = {split: [schema.empty_table()] for split in SPLITS}
    for repeat in range(int(copies.max())):
        keys = own.keys if repeat == 0 else identities(task.seed, task.file.source, ids, hashes, repeat).keys
        for split, chosen in (("train", ~in_validation), ("validation", in_validation)):
            rows = np.flatnonzero(chosen & (copies > repeat))
            take = pa.array(rows)
            columns = {
                "key_high": keys[rows, 0],
                "key_low": keys[rows, 1],
                "id": table["id"].combine_chunks().take(take),
                "repeat": np.full(len(rows), repeat, np.int32),
                "tokens": take_lists(tokens, rows),
                "num_tokens": lengths[rows],
            }
            parts[split].append(pa.table(columns, schema=schema))
    return {split: pa.concat_tables(tables) for split, tables in parts.items()}


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
    engine: str
    """The engine, and why it was chosen."""
    num_buckets: int

    def in_words(self, vocab_size: int) -> str:
        """One line for the person who waits."""
        return f"encoded {sum(self.num_tokens.values()):,} tokens of a vocabulary of {vocab_size:,} by {self.engine}"


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
    num_tokens, num_documents = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
    for file, result in zip(files, results, strict=True):
        num_tokens[file.source] += result["num_tokens"]
        num_documents[file.source] += result["num_documents"]
    return Encoded(
        keys=tuple(unit.key for unit in units),
        runs={
            split: tuple(Run.from_json(run) for result in results for run in result["runs"][split]) for split in SPLITS
        },
        num_tokens=num_tokens,
        num_documents=num_documents,
        engine=" / ".join(sorted({f"{result['engine']} ({result['engine_why']})" for result in results})) or "none",
        num_buckets=num_buckets,
    )
