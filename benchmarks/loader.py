"""The loader beside np.memmap under a DataLoader, mosaicml-streaming, litdata and webdataset: same examples, one run.

    .venv/bin/python benchmarks/loader.py --peer-python PEER/bin/python [--save]

Every measurement is a process of its own; those without workers are pinned to one core. See `--help` for sizes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.loader_data import INSTALL, make_data, run, run_peer
from benchmarks.loader_measure import measure
from benchmarks.machine import REPOSITORY, load_in_words, save, this_machine

# Measured once: an epoch takes them seconds, and their figures are far from anybody's.
SLOW = ("streaming", "webdataset")
PEERS = ("memmap", "streaming", "litdata", "webdataset")
# Shards' worth of examples that a lane shuffles at a time. With 1, an epoch of these 12 shards on 8 lanes moves an
# example 0.97 of a full shuffle's mean on average, but single epochs 0.9 to 1.05; with 2, every epoch 1.00.
WINDOW_SHARDS = 2


def main() -> int:
    options = _options()
    if options.child:
        return _child(json.loads(options.child))
    folder = Path(tempfile.mkdtemp(prefix="shardmill-loader-benchmark-"))
    try:
        made = make_data(folder, options.examples, options.seq_len)
        results = list(_measured(options, folder, made))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "\n".join(_table(options, results))
    sys.stdout.write(text + "\n")
    if options.save:
        kept = {name: getattr(options, name) for name in ("examples", "seq_len", "batch", "runs")}
        path = save("loader", this_machine(), text + "\n", {"options": kept, "results": results})
        sys.stdout.write(f"\nsaved {path.relative_to(REPOSITORY)}\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=12_208, help="default: %(default)s")
    parser.add_argument("--seq-len", type=int, default=4096, help="tokens an example; default: %(default)s")
    parser.add_argument("--batch", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="the median counts; default: %(default)s")
    parser.add_argument("--peer-python", help=f"a Python that has the peers: {INSTALL}")
    parser.add_argument("--only", nargs="+", help="of: ours, " + ", ".join(PEERS))
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results/")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measured(options: argparse.Namespace, folder: Path, made: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Each measurement's medians, in the order of the table."""
    cases: list[tuple[str, dict[str, Any]]] = []
    for dtype in ("int64", "int32"):
        for name, settings in (("ours", {"num_ahead": 0}), ("ours, a thread", {})):
            cases.append((name, {"workers": 0, "dtype": dtype, **settings}))
        cases += [(peer, {"workers": 0, "dtype": dtype}) for peer in PEERS]
    cases += [(name, {"workers": 2, "dtype": "int64"}) for name in ("ours", *PEERS)]
    cases.append(("ours, all four columns", {"workers": 0, "dtype": "int64", "num_ahead": 0, "columns": "all"}))
    cases.append(("ours, all four columns", {"workers": 2, "dtype": "int64", "columns": "all"}))
    from loader.columns import load_kernel

    for dtype in ("int64", "int32"):  # compiled once a machine, and not while others are measured
        load_kernel(np.dtype("<u4"), np.dtype(dtype))
    prepared: set[str] = set()
    for name, settings in cases:
        who = name.split(",")[0]
        if (options.only and who not in options.only) or (who != "ours" and not options.peer_python):
            continue
        settings = settings | {"batch": options.batch, "manifest": made["manifest"]}
        place = made["shards"] if who == "webdataset" else str(folder / who)
        if who in ("streaming", "litdata") and who not in prepared:
            run_peer(options.peer_python, ["prepare", who, made["tokens"], place])
            prepared.add(who)
        runs = []
        for _ in range(1 if who in SLOW else options.runs):
            sys.stderr.write(f"{name}, {settings['workers']} workers, {settings['dtype']}\n")
            if who == "ours":
                command = [sys.executable, __file__, "--child", json.dumps(settings)]
                runs.append(run(command, pinned=not settings["workers"]))
            else:
                arguments = ["measure", who, made["tokens"], place, json.dumps(settings)]
                runs.append(run_peer(options.peer_python, arguments, pinned=not settings["workers"]))
        found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        yield {"who": name, **settings, **found, "manifest": None}


def _child(settings: dict[str, Any]) -> int:
    """Measures us, in this process."""
    import torch

    from loader import Loader
    from loader.columns import COLUMNS

    columns = COLUMNS if settings.get("columns") == "all" else ("input_ids",)

    def make() -> Loader:
        return Loader(
            settings["manifest"],
            global_batch=settings["batch"],
            window_shards=WINDOW_SHARDS,
            num_workers=settings["workers"],
            **({"num_ahead": settings["num_ahead"]} if "num_ahead" in settings else {}),
            columns=columns,
            dtype=getattr(torch, settings["dtype"]),
        )

    def batches(loader: Loader) -> Iterator[torch.Tensor]:
        for batch in loader:
            yield batch["input_ids"]
            loader.advance()

    def resumed(steps: int) -> Iterator[torch.Tensor]:
        loader = make()
        loader.load_state_dict(loader.state_dict() | {"examples_consumed": steps * settings["batch"]})
        return batches(loader)

    sys.stdout.write(json.dumps(measure(make, batches, resumed, settings)) + "\n")
    return 0


def _table(options: argparse.Namespace, results: list[dict[str, Any]]) -> Iterator[str]:
    yield f"# Loaders: {options.examples:,} examples of {options.seq_len:,} tokens, batch {options.batch}, shuffled"
    yield ""
    yield (
        "Examples a second of CPU time (user and system, all processes) and of the wall; "
        f"the median of {options.runs} run(s); one of {' and '.join(SLOW)}."
    )
    yield ""
    names = (
        "who",
        "workers",
        "batches of",
        "ex/s CPU",
        "ex/s wall",
        "first batch ms",
        "resume at 90 % ms",
        "peak MB",
        "anonymous MB",
    )
    yield "| " + " | ".join([*names, "mean move"]) + " |"
    yield "|" + "---|" * (len(names) + 1)
    for row in results:
        what = "4 columns" if row.get("columns") == "all" else row["dtype"]
        figures = (
            row["examples_per_cpu_s"],
            row["examples_per_s"],
            row["first_batch_s"] * 1e3,
            row["resume_s"] * 1e3,
            row["peak_mb"],
            row["anonymous_mb"],
            row["mean_move"],
        )
        yield (
            f"| {row['who']} | {row['workers']} | {what} | " + " | ".join(f"{figure:,.0f}" for figure in figures) + " |"
        )
    yield ""
    yield f"A full shuffle's mean move: {options.examples / 3:,.0f}; ours with window_shards={WINDOW_SHARDS}."
    yield (
        "Imports are not part of a first batch. Memory is the main process's beyond the torch import: its peak, which "
        "includes mapped files (the whole set, 208 MB, for ours and np.memmap), and what is its own at the end."
    )
    yield f"{this_machine().in_words()}. Its load: {load_in_words()}."
    if not options.peer_python:
        yield f"Peers were not run: --peer-python names a Python that has them ({INSTALL})."


if __name__ == "__main__":
    sys.exit(main())
