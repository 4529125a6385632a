"""Saving beside the training: how long the training is held, and whether host memory stays flat over many saves.

    python benchmarks/checkpoint.py [--saves 50] [--megabytes 96] [--save]

Each way is a process of its own, one rank, and saves the same state (weights and two moments in fp32) `--saves` times,
computing between saves until the write is over, as a training does:

    shardmill             trainer/checkpoint.py: staged, then written, hashed, listed, renamed and rotated in a thread
    shardmill, waiting    the same, each save waited for: what a save costs that is not beside the training
    torch async_save      torch.distributed.checkpoint.async_save with its defaults; no hashes, no list, no rotation
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.machine import load_in_words, save, this_machine

WAYS = ("shardmill", "shardmill, waiting", "torch async_save")
# weights, exp_avg, exp_avg_sq in fp32
_BYTES_PER_VALUE = 12
_KEEP = 3


def main() -> int:
    options = _options()
    if options.way is not None:
        sys.stdout.write(json.dumps(_measure(options.way, options.saves, options.megabytes)) + "\n")
        return 0
    measured = {}
    for way in WAYS:
        command = [sys.executable, __file__, "--way", way, "--saves", str(options.saves)]
        done = subprocess.run(
            [*command, "--megabytes", str(options.megabytes)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        measured[way] = json.loads(done.stdout)
    machine = this_machine()
    text = _report(measured, options, machine.in_words())
    sys.stdout.write(text)
    if options.save:
        path = save("checkpoint", machine, text, {"saves": options.saves, "mb": options.megabytes, "ways": measured})
        sys.stdout.write(f"kept in {path}\n")
    return 0


def _measure(way: str, num_saves: int, megabytes: int) -> dict[str, Any]:
    """Of one way, in this process: held and whole seconds a save, resident bytes after each, CPU seconds of all."""
    from trainer.parallel import process_group

    with process_group() as ranks, tempfile.TemporaryDirectory(prefix="shardmill-checkpoint-") as folder:
        begin, is_over = _saver(way, Path(folder), ranks, int(megabytes * 1e6 / _BYTES_PER_VALUE))
        held, whole, resident = [], [], []
        cpu = time.process_time()
        for number in range(1, num_saves + 1):
            started = time.perf_counter()
            begin(number)
            held.append(time.perf_counter() - started)
            while not is_over():
                _compute()
            whole.append(time.perf_counter() - started)
            resident.append(_resident_bytes())
        cpu = time.process_time() - cpu
    return {"held_s": held, "whole_s": whole, "resident_bytes": resident, "cpu_s": cpu}


def _saver(way: str, folder: Path, ranks: Any, num_values: int) -> tuple[Callable[[int], None], Callable[[], bool]]:
    """(begin save number N, whether it is over)."""
    from tests.trainer.checkpoint_trial import Trial

    trial = Trial(folder, ranks, keep=_KEEP, num_values=num_values)
    if way == "torch async_save":
        return _torch_saver(trial, folder)

    def begin(number: int) -> None:
        trial.save_as_it_is(number)
        if way == "shardmill, waiting":
            assert trial.finish()

    return begin, lambda: trial.checkpoints.let_go(0.0)


def _torch_saver(trial: Any, folder: Path) -> tuple[Callable[[int], None], Callable[[], bool]]:
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import async_save

    flights: list[Any] = []

    def begin(number: int) -> None:
        weights, moments = get_state_dict(trial.model, trial.optimizer)
        flights.append(async_save({"model": weights, "optimizer": moments}, checkpoint_id=folder / str(number)))
        # Not in what is measured: torch has no rotation, and the disk is not endless.
        shutil.rmtree(folder / str(number - _KEEP), ignore_errors=True)

    return begin, lambda: bool(flights[-1].done())


def _compute() -> None:
    """A few milliseconds of what a step does on a CPU."""
    import torch

    left = torch.ones(256, 256)
    for _ in range(4):
        left = left @ left * 1e-3


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _report(measured: dict[str, dict[str, Any]], options: argparse.Namespace, machine: str) -> str:
    lines = [
        "# Saving beside the training",
        "",
        f"{machine}; load {load_in_words()}. {options.saves} saves of {options.megabytes} MB, one rank, one disk.",
        "",
        "| | training held, median | worst | save until over, median | of it held | CPU s a save |"
        f" resident after save 5 | after save {options.saves} | growth |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for way, found in measured.items():
        held, whole = statistics.median(found["held_s"]), statistics.median(found["whole_s"])
        early, late = found["resident_bytes"][4], found["resident_bytes"][-1]
        lines.append(
            f"| {way} | {held * 1e3:.0f} ms | {max(found['held_s']) * 1e3:.0f} ms | {whole * 1e3:.0f} ms"
            f" | {held / whole:.1%} | {found['cpu_s'] / options.saves:.2f}"
            f" | {early / 1e6:.0f} MB | {late / 1e6:.0f} MB | {late / early - 1:+.1%} |"
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=50)
    parser.add_argument("--megabytes", type=int, default=96, help="of weights and moments")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    parser.add_argument("--way", choices=WAYS, help="measure this one here, and print JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
