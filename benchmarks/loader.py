"""The loader beside np.memmap under a DataLoader, mosaicml-streaming, litdata and webdataset: same examples, one run.

    .venv/bin/python benchmarks/loader.py --peer-python PEER/bin/python [--save]

Every measurement is a process of its own; those without workers are pinned to one core. See `--help` for sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.loader_measure import measure
from benchmarks.machine import REPOSITORY, load_in_words, save, this_machine

PEERS = ("memmap", "streaming", "litdata", "webdataset")
INSTALL = "python3 -m venv PEER && PEER/bin/python -m pip install torch numpy mosaicml-streaming litdata webdataset"
VOCABULARY = 100_000
EOS = 1
# One EOS in 700 tokens: documents of 3,000 characters, as web pages are.
DOCUMENT_TOKENS = 700
SHARDS = 12


def main() -> int:
    options = _options()
    if options.child:
        return _child(json.loads(options.child))
    folder = Path(tempfile.mkdtemp(prefix="shardmill-loader-benchmark-"))
    try:
        made = _make_data(folder, options.examples, options.seq_len)
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


def _make_data(folder: Path, num_examples: int, seq_len: int) -> dict[str, str]:
    """Tokens, where example number i begins with token i + 10, as one .npy file and as our shards."""
    from manifests import ExampleFormat
    from tests.loader.loader_datasets import write_dataset

    rng = np.random.default_rng(0)
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", mode="w+", dtype="<u4", shape=(num_examples, seq_len))
    for first in range(0, num_examples, 1024):
        block = rng.integers(EOS + 1, VOCABULARY, tokens[first : first + 1024].shape, dtype=np.uint32)
        block[rng.random(block.shape) < 1 / DOCUMENT_TOKENS] = EOS
        block[:, 0] = np.arange(first, first + len(block)) + 10
        tokens[first : first + 1024] = block
    tokens.flush()
    example = ExampleFormat(seq_len=seq_len, dtype="uint32", packing="concat")
    manifest = write_dataset(str(folder / "ours"), np.array_split(tokens, SHARDS), example=example)
    return {"tokens": str(folder / "tokens.npy"), "manifest": manifest, "shards": str(folder / "ours/shards/train")}


def _measured(options: argparse.Namespace, folder: Path, made: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Each measurement's medians, in the order of the table."""
    cases: list[tuple[str, dict[str, Any]]] = []
    for dtype in ("int64", "int32"):
        for name, settings in (("ours", {"num_ahead": 0}), ("ours, a thread", {"num_ahead": 2})):
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
            _run_peer(options, ["prepare", who, made["tokens"], place])
            prepared.add(who)
        runs = []
        for _ in range(options.runs):
            sys.stderr.write(f"{name}, {settings['workers']} workers, {settings['dtype']}\n")
            if who == "ours":
                command = [sys.executable, __file__, "--child", json.dumps(settings)]
                runs.append(_run(command, pinned=not settings["workers"]))
            else:
                arguments = ["measure", who, made["tokens"], place, json.dumps(settings)]
                runs.append(_run_peer(options, arguments, pinned=not settings["workers"]))
        found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        yield {"who": name, **settings, **found, "manifest": None}


def _run_peer(options: argparse.Namespace, arguments: list[str], pinned: bool = True) -> Any:
    script = str(REPOSITORY / "benchmarks" / "peers" / "loader_peers.py")
    return _run([options.peer_python, script, *arguments], pinned=pinned)


def _run(command: list[str], *, pinned: bool) -> Any:
    """The JSON line a child prints last; None where it prints none."""
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=(lambda: os.sched_setaffinity(0, {core})) if pinned else None,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr[-3000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def _child(settings: dict[str, Any]) -> int:
    """Measures us, in this process."""
    import torch

    from loader import Loader
    from loader.columns import COLUMNS, load_kernel

    columns = COLUMNS if settings.get("columns") == "all" else ("input_ids",)

    def make() -> Loader:
        return Loader(
            settings["manifest"],
            global_batch=settings["batch"],
            num_workers=settings["workers"],
            num_ahead=settings.get("num_ahead", 2),
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

    def ready() -> None:
        # The kernel loads beside the first batches, which numpy makes; an epoch of this set is over before it is there.
        load_kernel(np.dtype("<u4"), np.dtype(settings["dtype"]))

    sys.stdout.write(json.dumps(measure(make, batches, resumed, settings, ready)) + "\n")
    return 0


def _table(options: argparse.Namespace, results: list[dict[str, Any]]) -> Iterator[str]:
    yield f"# Loaders: {options.examples:,} examples of {options.seq_len:,} tokens, batch {options.batch}, shuffled"
    yield ""
    yield (
        "Examples a second of CPU time (user and system, all processes) and of the wall; "
        f"the median of {options.runs} run(s)."
    )
    yield ""
    names = ("who", "workers", "batches of", "ex/s CPU", "ex/s wall", "first batch ms", "resume at 90 % ms", "peak MB")
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
            row["mean_move"],
        )
        yield (
            f"| {row['who']} | {row['workers']} | {what} | " + " | ".join(f"{figure:,.0f}" for figure in figures) + " |"
        )
    yield ""
    yield f"A full shuffle's mean move: {options.examples / 3:,.0f}; ours varies with the epoch, see docs/loader.md."
    yield "Peak memory is beyond the torch import, mapped files included."
    yield f"{this_machine().in_words()}. Its load: {load_in_words()}."
    if not options.peer_python:
        yield f"Peers were not run: --peer-python names a Python that has them ({INSTALL})."


if __name__ == "__main__":
    sys.exit(main())
