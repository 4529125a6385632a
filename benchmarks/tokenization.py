"""Tokenizing, packing and writing: MB per core-second, peers beside us in the same run, memory of a task.

    python benchmarks/tokenization.py [--runs 3] [--only rates padding memory threads] [--gigabytes 2] [--save]

Every figure comes from a process of its own, pinned to one core, in a worker's environment; core-seconds are its user
and system time.
A rate of tokenizing counts UTF-8 bytes of text, a rate of writing the bytes of the shard. `cold` is a worker's first
text; `steady` is text it has never seen (documentation but the manual pages), after the rest of the corpus in that
language.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.tokenization_parts import TASK_MEGABYTES, encode_task, prepare, threads_of_a_task
from pipeline import runtime
from pipeline.runtime import WORKER_ENVIRONMENT, Unit

REPOSITORY = Path(__file__).resolve().parents[1]
SECTIONS = ("rates", "padding", "memory", "threads")


def run_part(folder: Path, *arguments: str) -> dict[str, Any]:
    """One part in a process of its own, on the first core that this one may use."""
    script = Path(__file__).with_name("tokenization_parts.py")
    command = [sys.executable, str(script), str(folder), *arguments]
    core = min(os.sched_getaffinity(0))
    environment = {**os.environ, **WORKER_ENVIRONMENT}
    result = subprocess.run(
        ["taskset", "-c", str(core), *command], capture_output=True, text=True, check=False, env=environment
    )
    if result.returncode:
        raise RuntimeError(f"{arguments}: {result.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def medians(results: list[dict[str, Any]]) -> dict[str, str]:
    names = results[0]["rates"]
    every = {name: sorted(result["rates"][name] for result in results) for name in names}
    return {name: f"{statistics.median(r):,.1f} | {r[0]:,.1f} - {r[-1]:,.1f}" for name, r in every.items()}


def head(runs: int) -> str:
    facts = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next(line.partition(": ")[2].strip() for line in facts if "model name" in line)
    return (
        f"# Tokenizing, packing and writing, {datetime.now(UTC).date().isoformat()}\n\n"
        f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the"
        " start.\nDeepSeek's tokenizer (129,280 ids). Real documentation; one core; medians, then the least and most of"
        f"\n{runs} runs. MB of text per core-second when tokenizing, MB of shard when writing.\n"
    )


def rates(folder: Path, runs: int) -> Iterator[str]:
    """Engines, the encode stage, packing and writing."""
    for language in ("en", "ru"):
        yield f"\n| {language} | median | least - most |\n|---|---|---|"
        for part in ("engine", "stage"):
            results = [run_part(folder, part, language) for _ in range(runs)]
            for name, found in medians(results).items():
                yield f"| {name} | {found} |"
        yield f"\n{results[0]['num_mb']:.1f} MB of text, {results[0]['num_tokens']:,} tokens.\n"
    yield "\n| writing, seq_len 4096, uint32 | median | least - most |\n|---|---|---|"
    for packing in ("concat", "best_fit"):
        results = [run_part(folder, "write", packing, "4096") for _ in range(runs)]
        for name, found in medians(results).items():
            yield f"| {name} | {found} |"
    sizes = f"One shard of {results[0]['shard_mb']:.0f} MB"
    yield f"\n{sizes}; a process that encodes, packs and writes it peaks at {results[0]['peak_mb']:.0f} MB.\n"


def padding(folder: Path) -> Iterator[str]:
    """What best_fit fills rows up with."""
    yield "\n| best_fit, seq_len | padding |\n|---|---|"
    for seq_len in ("1024", "2048", "4096", "8192", "32768"):
        yield f"| {seq_len} | {100 * run_part(folder, 'write', 'best_fit', seq_len)['padding_fraction']:.3f} % |"


def memory(folder: Path, gigabytes: float) -> Iterator[str]:
    """Of tasks of several sizes, and of an engine over gigabytes."""
    yield "\n| memory of an encode task | text, MB | peak, MB |\n|---|---|---|"
    for language in ("en", "ru"):
        for megabytes in TASK_MEGABYTES:
            found = run_part(folder, "stage_memory", f"{language}-{megabytes}")
            yield f"| {language} | {found['num_mb']:.0f} | {found['peak_mb']:.0f} |"
    if gigabytes:
        found = run_part(folder, "engine_memory", str(gigabytes))
        yield f"\n| fastokens over ever new words, MB of text | resident, MB ({found['threads']} threads) |\n|---|---|"
        for done, resident in found["resident_mb_after_mb"]:
            yield f"| {done:,} | {resident} |"


def threads(folder: Path) -> Iterator[str]:
    """What two encode tasks at once do in Ray workers of one core each."""
    ray = runtime.start_ray(build_url=str(folder / "ray"), address=None, num_cpus=2, workers=2, progress=sys.stderr)
    units = [Unit(key=name, label=name, task=encode_task(folder, name)) for name in ("en-64", "ru-64")]
    try:
        found = ray.run("threads", threads_of_a_task, units)
    finally:
        runtime.stop_ray()
    yield "\n| a task in a Ray worker | threads before | made by it | cores busy |\n|---|---|---|---|"
    for unit, of_task in zip(units, found, strict=True):
        made = ", ".join(of_task["made"]) or "none"
        yield f"| {unit.label} | {of_task['before']} | {made} | {of_task['cores_busy']:.2f} |"


def report(folder: Path, only: Sequence[str], runs: int, gigabytes: float) -> Iterator[str]:
    """The result, line by line, Markdown."""
    yield head(runs)
    if "rates" in only:
        yield from rates(folder, runs)
    if "padding" in only:
        yield from padding(folder)
    if "memory" in only:
        yield from memory(folder, gigabytes)
    if "threads" in only:
        yield from threads(folder)


def main() -> int:
    """0 when measured, 2 where there is no corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default=os.environ.get("SHARDMILL_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="what to measure (all)")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="for the engine's memory; 0 leaves it out")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results/")
    arguments = parser.parse_args()
    if not (Path(arguments.corpus) / "clean").is_dir():
        sys.stderr.write(f"no corpus at {arguments.corpus}: give --corpus or set SHARDMILL_CORPUS\n")
        return 2
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(arguments.corpus), Path(folder))
        for line in report(Path(folder), arguments.only, arguments.runs, arguments.gigabytes):
            lines.append(line)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    if arguments.save:
        some = [name for name in SECTIONS if name in arguments.only] if len(arguments.only) < len(SECTIONS) else []
        name = "-".join([datetime.now(UTC).date().isoformat(), "tokenization", *some])
        path = REPOSITORY / "benchmarks" / "results" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
