"""How soon a loader begins: from S3 beside peers, and in the middle of an epoch of 1 GB and of 10 TB.

    .venv/bin/python benchmarks/loader_start.py [--part s3] [--peer-python PEER/bin/python] [--save]

The S3 part runs where AWS_ENDPOINT_URL names a server (`../shared/tools/real_s3 start` prints what to export) and
makes a bucket there. Every measurement is a process of its own, and begins when torch is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.loader_data import INSTALL, SHARDS, make_data, run, run_peer
from benchmarks.machine import REPOSITORY, load_in_words, save, this_machine

PEERS = ("streaming", "litdata", "webdataset")
BATCH = 8
# Shards of 256 MB, as builds make them.
EXAMPLES_A_SHARD = 14_700
SETS = {"1 GB": 4, "10 TB": 40_000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="the median counts; default: %(default)s")
    parser.add_argument("--part", choices=("resume", "s3"), help="only this; default: both")
    parser.add_argument("--peer-python", help=f"a Python that has the peers: {INSTALL}")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results/")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _child(json.loads(options.child))
    folder = Path(tempfile.mkdtemp(prefix="shardmill-loader-benchmark-"))
    try:
        found = {}
        if options.part != "s3":
            found["resume"] = _resumes(folder, options.runs)
        if options.part != "resume" and os.environ.get("AWS_ENDPOINT_URL"):
            found["s3"] = _from_s3(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "\n".join(_lines(options, found)) + "\n"
    sys.stdout.write(text)
    if options.save:
        path = save("loader-start", this_machine(), text, {"options": {"runs": options.runs}, "results": found})
        sys.stdout.write(f"\nsaved {path.relative_to(REPOSITORY)}\n")
    return 0


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _resumes(folder: Path, num_runs: int) -> list[dict[str, Any]]:
    """A start and a resumption at 90 % of an epoch, of sets whose shards are files of nothing but holes."""
    rows = []
    for name, num_shards in SETS.items():
        manifest = _holes(folder / name.replace(" ", ""), num_shards)
        for done in (0.0, 0.9):
            settings = {"manifest": manifest, "done": done, "columns": "all"}
            rows.append({"set": name, "done": done, **_medians([_ours(settings) for _ in range(num_runs)])})
    return rows


def _holes(root: Path, num_shards: int) -> str:
    """A manifest of shards of 256 MB of zeros, which take no place on disk."""
    from manifests import ExampleFormat, ShardEntry, Split
    from tests.datasets import write_manifest

    example = ExampleFormat(seq_len=4096, dtype="uint32", packing="concat")
    num_bytes = example.shard_num_bytes(EXAMPLES_A_SHARD)
    (root / "shards/train").mkdir(parents=True)
    entries = []
    for number in range(num_shards):
        path = f"shards/train/v1-{number:06d}.tar"
        with (root / path).open("wb") as stream:
            stream.truncate(num_bytes)
        entries.append(
            ShardEntry(
                path=path,
                sha256=f"{number:064x}",
                num_bytes=num_bytes,
                num_examples=EXAMPLES_A_SHARD,
                num_tokens=EXAMPLES_A_SHARD * example.seq_len,
                num_documents=1,
            )
        )
    return write_manifest(str(root), {"train": Split.of(entries, seq_len=example.seq_len)}, example=example)


def _from_s3(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    made = make_data(folder, 12_208, 4096)
    places = {"ours": folder / "ours", "webdataset": folder / "ours"}
    if options.peer_python:
        for who in ("streaming", "litdata"):
            places[who] = folder / who
            run_peer(options.peer_python, ["prepare", who, made["tokens"], str(places[who])])
    bucket = f"shardmill-benchmark-{os.getpid()}"
    _upload(bucket, set(places.values()))
    rows = []
    for who in ("ours", *(PEERS if options.peer_python else ())):
        runs = []
        for number in range(options.runs):
            sys.stderr.write(f"{who} from S3\n")
            place = f"s3://{bucket}/{places[who].name}"
            cache = str(folder / f"cache-{who}-{number}")
            if who == "ours":
                runs.append(_ours({"manifest": f"{place}/manifests/v1.json", "cache": cache, "done": 0.0}))
            else:
                runs.append(run_peer(options.peer_python, ["first", who, place, cache, json.dumps({"batch": BATCH})]))
        rows.append({"who": who, **_medians(runs)})
    return rows


def _upload(bucket: str, folders: set[Path]) -> None:
    import boto3

    store = boto3.client("s3")
    store.create_bucket(Bucket=bucket)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                key = f"{folder.name}/{path.relative_to(folder)}"
                store.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


def _ours(settings: dict[str, Any]) -> Any:
    return run([sys.executable, __file__, "--child", json.dumps(settings)], pinned=False)


def _child(settings: dict[str, Any]) -> int:
    """Begins once, in this process."""
    import torch

    torch.set_num_threads(1)
    started, cpu = time.perf_counter(), time.process_time()
    from loader import Loader
    from loader.columns import COLUMNS
    from manifests import load

    dataset = load(settings["manifest"])
    loaded = time.perf_counter()
    loader = Loader(
        dataset,
        global_batch=BATCH,
        columns=COLUMNS if settings.get("columns") == "all" else ("input_ids",),
        cache_dir=settings.get("cache"),
    )
    if settings["done"]:
        done = int(loader.steps_per_epoch * settings["done"]) * BATCH
        loader.load_state_dict(loader.state_dict() | {"examples_consumed": done})
    next(iter(loader))
    ended = time.perf_counter()
    times = {"manifest_s": loaded - started, "first_batch_s": ended - loaded, "all_s": ended - started}
    sys.stdout.write(json.dumps(times | {"cpu_s": time.process_time() - cpu}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # downloads under way are not waited for


def _lines(options: argparse.Namespace, found: dict[str, Any]) -> Iterator[str]:
    yield "# How soon a loader begins"
    yield ""
    yield f"From the end of `import torch` to the first batch of {BATCH}, ms; the median of {options.runs} runs."
    if "resume" in found:
        yield ""
        yield "| set of 256 MB shards | at | imports and manifest | from there to the first batch | all | CPU time |"
        yield "|---|---|---|---|---|---|"
    for row in found.get("resume", ()):
        figures = (row["manifest_s"], row["first_batch_s"], row["all_s"], row["cpu_s"])
        yield (
            f"| {row['set']} | {row['done']:.0%} of an epoch | "
            + " | ".join(f"{of * 1e3:,.0f}" for of in figures)
            + " |"
        )
    if "s3" in found:
        yield ""
        yield f"From S3 (a server on this machine), 208 MB in {SHARDS} shards, peers' chunks of 16 MB, an empty cache:"
        yield ""
        yield "| who | all | CPU time of the process |"
        yield "|---|---|---|"
        for row in found["s3"]:
            yield f"| {row['who']} | {row['all_s'] * 1e3:,.0f} | {row['cpu_s'] * 1e3:,.0f} |"
    yield ""
    yield f"{this_machine().in_words()}. Its load: {load_in_words()}."


if __name__ == "__main__":
    sys.exit(main())
