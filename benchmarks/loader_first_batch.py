"""How soon a loader gives its first batch from local disk, beside np.memmap under a DataLoader and the other peers.

    .venv/bin/python benchmarks/loader_first_batch.py --peer-python PEER/bin/python [--save]

A process a measurement, on all cores, the shards in the page cache. Everybody in turn, again and again: the machine's
busy moments meet all alike.
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

import numpy as np

from benchmarks.loader_data import INSTALL, SHARDS, make_data, run, run_peer
from benchmarks.machine import REPOSITORY, load_in_words, save, this_machine

BATCH = 8
PEERS = ("memmap", "litdata", "webdataset", "streaming")
# What the table calls it, whose loader it is, its settings.
CASES: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("ours", "ours", {"workers": 0}),
    ("ours, num_ahead=0", "ours", {"workers": 0, "num_ahead": 0}),
    *((peer, peer, {"workers": 0}) for peer in PEERS),
    ("ours", "ours", {"workers": 2}),
    *((peer, peer, {"workers": 2}) for peer in PEERS),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="the median counts; default: %(default)s")
    parser.add_argument("--peer-python", help=f"a Python that has the peers: {INSTALL}")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results/")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _child(json.loads(options.child))
    folder = Path(tempfile.mkdtemp(prefix="shardmill-loader-benchmark-"))
    try:
        found = _measured(folder, options.runs, options.peer_python)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "\n".join(_lines(options.runs, found)) + "\n"
    sys.stdout.write(text)
    if options.save:
        path = save("loader-first-batch", this_machine(), text, {"options": {"runs": options.runs}, "results": found})
        sys.stdout.write(f"\nsaved {path.relative_to(REPOSITORY)}\n")
    return 0


def _measured(folder: Path, num_runs: int, peer_python: str | None) -> list[dict[str, Any]]:
    from loader.columns import load_kernel

    load_kernel(np.dtype("<u4"), np.dtype("int64"))  # compiled once a machine, and not while others are measured
    made = make_data(folder, 12_208, 4096)
    cases = [case for case in CASES if case[1] == "ours" or peer_python]
    for who in sorted({who for _, who, _ in cases} & {"streaming", "litdata"}):
        run_peer(str(peer_python), ["prepare", who, made["tokens"], str(folder / who)])
    runs: list[list[dict[str, float]]] = [[] for _ in cases]
    for _ in range(num_runs):
        for of_case, (name, who, settings) in zip(runs, cases, strict=True):
            sys.stderr.write(f"{name}, {settings['workers']} workers\n")
            if who == "ours":
                command = [sys.executable, __file__, "--child", json.dumps({"manifest": made["manifest"], **settings})]
                of_case.append(run(command, pinned=False))
            else:
                place = made["shards"] if who == "webdataset" else str(folder / who)
                arguments = ["start", who, made["tokens"], place, json.dumps({"batch": BATCH, **settings})]
                of_case.append(run_peer(str(peer_python), arguments, pinned=False))
    return [
        {"who": name, **settings}
        | {key: statistics.median(of[key] for of in of_case) for key in of_case[0]}
        | {"soonest_s": min(of["first_batch_s"] for of in of_case)}
        for of_case, (name, _, settings) in zip(runs, cases, strict=True)
    ]


def _child(settings: dict[str, Any]) -> int:
    """Begins once, in this process."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    from loader.loader import Loader

    imported, cpu = time.perf_counter(), time.process_time()
    ahead = {"num_ahead": settings["num_ahead"]} if "num_ahead" in settings else {}
    loader = Loader(
        settings["manifest"], global_batch=BATCH, columns=("input_ids",), num_workers=settings["workers"], **ahead
    )
    batches = iter(loader)
    next(batches)
    times = {"first_batch_s": time.perf_counter() - imported, "cpu_s": time.process_time() - cpu}
    sys.stdout.write(json.dumps({"imports_s": imported - began, **times}) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _lines(num_runs: int, found: list[dict[str, Any]]) -> Iterator[str]:
    yield "# How soon a loader gives its first batch from local disk"
    yield ""
    yield (
        f"ms from making the loader to its first batch of {BATCH} examples of 4,096 tokens, shuffled: 208 MB in "
        f"{SHARDS} shards, peers' chunks of 16 MB, all in the page cache. {num_runs} runs, each of everybody in turn. "
        "Imports are what each needs beyond torch; CPU time is the main process's."
    )
    yield ""
    yield "| who | workers | first batch, median | soonest | CPU time | imports before |"
    yield "|---|---|---|---|---|---|"
    for row in found:
        parts = (f"{row[name] * 1e3:,.1f}" for name in ("first_batch_s", "soonest_s", "cpu_s", "imports_s"))
        yield f"| {row['who']} | {row['workers']} | " + " | ".join(parts) + " |"
    yield ""
    yield f"{this_machine().in_words()}. Its load: {load_in_words()}."


if __name__ == "__main__":
    sys.exit(main())
