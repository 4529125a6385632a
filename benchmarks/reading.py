"""Reading and cleaning: MB of UTF-8 text per core-second, beside what others need for a part of it.

    python benchmarks/reading.py [--corpus ../shared/corpus] [--megabytes 60] [--runs 3] [--save]

Rows: decoding alone (zstd, gzip), parsing alone (msgspec and json line by line, pyarrow), and ours:
reading to Arrow, and reading with cleaning and with every redaction rule, from JSON lines and Parquet. CPU time (user
and system) of this process, one thread, median of the runs; files are in the page cache, kernels are warm.
"""

import argparse
import datetime
import functools
import gzip
import io
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", ARROW_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import zstandard

from pipeline import texts
from pipeline.config import CleanConfig, RedactConfig
from pipeline.readers import read_file


def corpus_lines(corpus: Path, megabytes: int) -> list[bytes]:
    """Lines of clean/, every file in turn, until they hold so much text."""
    streams: list[Iterator[bytes]] = []
    for path in sorted(corpus.glob("clean/*/*.jsonl.zst")):
        opened = zstandard.ZstdDecompressor().stream_reader(path.open("rb"))
        streams.append(iter(io.BufferedReader(opened, 1 << 20)))
    lines: list[bytes] = []
    num_bytes = 0
    while streams and num_bytes < megabytes * 1_000_000:
        for stream in list(streams):
            line = next(stream, None)
            if line is None:
                streams.remove(stream)
                continue
            lines.append(line)
            num_bytes += len(line)
    return lines


def measures(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each row's name and what it runs."""
    plain, zst, gz, parquet = (folder / f"a.{ending}" for ending in ("jsonl", "jsonl.zst", "jsonl.gz", "parquet"))
    decode = msgspec.json.Decoder(msgspec.defstruct("Line", [("id", str), ("text", str)])).decode

    def drain(stream: Any) -> None:
        while stream.read(1 << 20):
            pass

    def lines() -> Iterator[bytes]:
        with plain.open("rb") as file:
            yield from file

    yield "zstd decoding alone", lambda: drain(zstandard.ZstdDecompressor().stream_reader(zst.open("rb")))
    yield "gzip decoding alone", lambda: drain(gzip.open(gz))  # noqa: SIM115 - read to its end
    yield "msgspec line by line, id and text", lambda: [decode(line) for line in lines()]
    yield "json.loads line by line", lambda: [json.loads(line) for line in lines()]
    read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=64 << 20)
    yield "pyarrow.json alone", lambda: pyarrow.json.read_json(plain, read_options=read_options)
    yield "pyarrow.parquet alone", lambda: pq.read_table(parquet, use_threads=False)
    for path in (plain, zst, gz, parquet):
        name = path.name.partition(".")[2]
        yield f"ours: read {name}", functools.partial(ours, path, clean=False)
        yield f"ours: read and clean {name}", functools.partial(ours, path)
    yield "ours: read, clean, redact jsonl.zst", lambda: ours(zst, redact=True)


def ours(path: Path, *, clean: bool = True, redact: bool = False) -> None:
    """The build's own way from a file to prepared texts."""
    for records in read_file(str(path)):
        if clean:
            texts.prepared(records.text, CleanConfig(), RedactConfig(all=redact))


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("SHARDMILL_CORPUS", default)))
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-<machine>-reading.md")
    options = parser.parse_args()
    lines = corpus_lines(options.corpus, options.megabytes)
    rows = [json.loads(line) for line in lines]
    megabytes = sum(len(row["text"].encode()) for row in rows) / 1e6
    pa.set_cpu_count(1)
    table = []
    with tempfile.TemporaryDirectory(prefix="shardmill-reading-") as name:
        folder = Path(name)
        content = b"".join(lines)
        (folder / "a.jsonl").write_bytes(content)
        (folder / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(content))
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(content, 6))
        columns = {key: pa.array([row[key] for row in rows], pa.large_string()) for key in ("id", "text")}
        pq.write_table(pa.table(columns), folder / "a.parquet", compression="zstd", row_group_size=20_000)
        ours(folder / "a.parquet", redact=True)  # kernels are loaded
        for what, run in measures(folder):
            seconds = []
            for _ in range(options.runs):
                before = time.process_time()
                run()
                seconds.append(time.process_time() - before)
            table.append((what, megabytes / statistics.median(seconds)))
    head = f"{megabytes:.1f} MB of text in {len(rows):,} documents; MB per core-second, median of {options.runs}"
    text = f"{head}\n\n| what | MB per core-second |\n|---|---|\n"
    text += "".join(f"| {what} | {rate:.0f} |\n" for what, rate in table)
    load = os.getloadavg()[0]
    text += f"\n{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}\n"
    sys.stdout.write(text)
    if options.save:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        folder = Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        target = folder / f"{today}-{platform.machine()}-{os.cpu_count()}cores-reading.md"
        target.write_text(
            f"# Reading and cleaning\n\n`python benchmarks/reading.py --megabytes {options.megabytes}`\n\n{text}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
