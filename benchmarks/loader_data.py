"""What the loader's benchmarks share: the data, and processes of ours and of the peers."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import REPOSITORY

INSTALL = "python3 -m venv PEER && PEER/bin/python -m pip install torch numpy mosaicml-streaming litdata webdataset"
VOCABULARY = 100_000
EOS = 1
# One EOS in 700 tokens: documents of 3,000 characters, as web pages are.
DOCUMENT_TOKENS = 700
SHARDS = 12


def make_data(folder: Path, num_examples: int, seq_len: int) -> dict[str, str]:
    """Tokens, where example number i begins with token i + 10, as one .npy file and as our shards."""
    from manifests import ExampleFormat
    from tests.datasets import write_manifest, write_split

    rng = np.random.default_rng(0)
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", mode="w+", dtype="<u4", shape=(num_examples, seq_len))
    for first in range(0, num_examples, 1024):
        block = rng.integers(EOS + 1, VOCABULARY, tokens[first : first + 1024].shape, dtype=np.uint32)
        block[rng.random(block.shape) < 1 / DOCUMENT_TOKENS] = EOS
        block[:, 0] = np.arange(first, first + len(block)) + 10
        tokens[first : first + 1024] = block
    tokens.flush()
    example = ExampleFormat(seq_len=seq_len, dtype="uint32", packing="concat")
    ours = str(folder / "ours")
    split = write_split(ours, np.array_split(tokens, SHARDS), example=example, folder="shards/train")
    manifest = write_manifest(ours, {"train": split}, example=example)
    return {"tokens": str(folder / "tokens.npy"), "manifest": manifest, "shards": str(folder / "ours/shards/train")}


def run_peer(python: str, arguments: list[str], pinned: bool = True) -> Any:
    script = str(REPOSITORY / "benchmarks" / "peers" / "loader_peers.py")
    return run([python, script, *arguments], pinned=pinned)


def run(command: list[str], *, pinned: bool) -> Any:
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
