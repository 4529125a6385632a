"""One unit of reading: a run of files, or a part of one, to a documents file.

One pass over the text, a batch of some 16 MB at a time:

    read -> clean -> redact -> drop null and blank -> statistics and word hashes -> filters -> content hash -> draw ->
    signature, lines -> documents file

The draw by a weight below 1 comes before any search for duplicates: a document that is not in the data set can stand
for no other, in this version or the next.

Memory is a few batches, whatever the size of a file.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from manifests import storage
from pipeline import texts
from pipeline.config import CleanConfig, NearConfig, RedactConfig
from pipeline.counted_lines import LineCounter, in_sample
from pipeline.dedup import exact, minhash
from pipeline.documents import (
    compression,
    documents_schema,
    fixed_bytes,
    row_group_rows,
    signature_column,
)
from pipeline.filters import judge_all
from pipeline.identity import CONTENT_HASH_BYTES, Draw
from pipeline.inputs import InputFile
from pipeline.kernels.text import Words, analyse
from pipeline.quarantine import Quarantine
from pipeline.readers import Fields, read_file
from pipeline.readers.parts import Part
from pipeline.runtime import Summary
from pipeline.stages.survey import check_unchanged

MAX_SKIPPED = 100
"""Names of files skipped inside archives that a unit hands on: the report lists fewer. All are counted."""


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
    draw: Draw | None
    """None where the source's weight leaves nothing out."""
    near: NearConfig
    lines_level: int
    """CountedLines.level."""
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
    num_text_bytes = 0  # as they are read, before anything is judged
    num_changed = num_undated = num_skipped = num_attachments = num_lost_files = lost_bytes = 0
    lines = LineCounter()

    def end(stage: str, reason: str | None, num_documents: int, num_bytes: int) -> None:
        counts[stage, reason] += num_documents
        sizes[stage, reason] += num_bytes

    def found(quarantine: Quarantine) -> Iterator[pa.Table]:
        nonlocal num_text_bytes, num_skipped, num_attachments, num_lost_files, lost_bytes
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
                num_attachments += records.num_attachments
                num_skipped += len(records.skipped)
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
            if summary.num_bad_records and not summary.num_documents:
                num_lost_files += 1
                lost_bytes += num_bytes if task.part is None else task.part.packed_bytes
            inputs.append([task.source, file.name, file.url, num_bytes, f"sha256:{sha256}", summary.num_records])

    schema = documents_schema(task.near.bands * task.near.rows)
    with (
        storage.atomic_writer(task.documents_url) as stream,
        pq.ParquetWriter(
            stream,
            schema,
            compression=compression(task.documents_url),
            use_dictionary=False,
            write_statistics=False,
        ) as writer,
        Quarantine(task.quarantine_url) as quarantine,
    ):
        for documents in texts.gathered(found(quarantine)):
            prepared = texts.prepared(documents["text"].chunk(0), task.clean, task.redact)
            redacted += prepared.redacted
            num_text_bytes += texts.num_bytes(prepared.text)
            num_changed += int(np.count_nonzero(prepared.changed))
            kept = _keep(documents["id"].chunk(0), prepared.text, documents["date"].chunk(0), task, end)
            if kept.num_rows:
                num_undated += kept["date"].null_count
                num_bytes = kept["text"].nbytes
                writer.write_table(kept, row_group_size=row_group_rows(kept.num_rows, num_bytes))
                if task.near.templates.enabled:
                    chosen = in_sample(fixed_bytes(kept["content_hash"], CONTENT_HASH_BYTES), task.lines_level)
                    text = kept["text"].chunk(0)
                    lines.add(text if chosen.all() else text.filter(pa.array(chosen)))
    storage.write_bytes(task.lines_url, lines.lines().tobytes())
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
        "num_undated": num_undated,
        "num_lost_files": num_lost_files,
        "lost_bytes": lost_bytes,
        "redacted": dict(sorted(redacted.items())),
        "num_counted": lines.num_documents,
        "num_attachments": num_attachments,
        "num_skipped": num_skipped,
        "skipped": skipped,
        "files": [task.documents_url, task.lines_url, *([task.quarantine_url] if quarantine.num_rows else [])],
    }


def _keep(ids: pa.Array, text: pa.LargeStringArray, dates: pa.Int64Array, task: ReadTask, end: Any) -> pa.Table:
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

    # Mostly all stay, and a copy of the text costs as much as hashing it.
    if len(stays) < len(text):
        rows = pa.array(stays)
        text, ids, dates = text.take(rows), ids.take(rows), dates.take(rows)
    content_hash = _content_hash_column(exact.content_hashes(text))
    if task.draw is not None:
        drawn = task.draw.drawn(task.source, ids.to_pylist(), content_hash.to_pylist())
        end("weight", "not_drawn", int(np.count_nonzero(~drawn)), int(num_bytes[stays[~drawn]].sum()))
        rows = pa.array(np.flatnonzero(drawn))
        stays, content_hash = stays[drawn], content_hash.take(rows)
        text, ids, dates = text.take(rows), ids.take(rows), dates.take(rows)
    end("kept", None, len(stays), int(num_bytes[stays].sum()))
    kept = {
        "id": ids,
        "text": text,
        "num_bytes": num_bytes[stays],
        "date": dates,
        "content_hash": content_hash,
        "text_hash": exact.text_hashes(text),
        "signature": _signatures(words, stays, task.near),
    }
    return pa.table(kept, schema=schema)


def _content_hash_column(hashes: np.ndarray) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(hashes, "<u8"))
    return pa.Array.from_buffers(pa.binary(CONTENT_HASH_BYTES), len(hashes), [None, data])


def _signatures(words: Words, stays: np.ndarray, near: NearConfig) -> pa.Array:
    num_permutations = near.bands * near.rows
    if not near.enabled or not len(stays):
        return pa.nulls(len(stays), pa.binary(4 * num_permutations))
    signatures, has_signature = minhash.signatures(words, ngram=near.ngram, num_permutations=num_permutations)
    return signature_column(signatures[stays], has_signature[stays])
