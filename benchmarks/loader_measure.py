"""One loader's measurement, the same for us and for peers. Needs torch and numpy alone: the peers' Python runs it too.

Two epochs by the clock and by CPU time, of which the second counts; the order of a third; first batch; resume.
"""

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


def measure(
    make: Callable[[], Any],
    batches: Callable[[Any], Iterator[Any]],
    resumed: Callable[[int], Iterator[Any]],
    options: dict[str, Any],
) -> dict[str, float]:
    """make: a fresh loader. batches: an epoch of tensors of it. resumed: the batches from a step on.

    options: batch. Rates are examples a second.
    """
    import torch

    torch.set_num_threads(1)
    before = memory()
    started = time.perf_counter()
    loader = make()
    epoch = batches(loader)
    next(epoch)
    first_batch_s = time.perf_counter() - started
    for _ in epoch:
        pass

    # Workers are counted when they have ended: with the epoch, whose iterator is dropped here.
    del epoch
    cpu, wall, num_examples = cpu_seconds(), time.perf_counter(), 0
    for batch in batches(loader):
        num_examples += len(batch)
    del batch
    wall_s, cpu_s = time.perf_counter() - wall, cpu_seconds() - cpu
    peak = memory()

    # Example number i begins with token i + 10.
    places = np.concatenate([batch[:, 0].numpy().copy() for batch in batches(loader)]) - 10
    moved = np.abs(places - np.arange(len(places))).mean()
    del loader
    result = {
        "examples_per_s": num_examples / wall_s,
        "examples_per_cpu_s": num_examples / cpu_s,
        "first_batch_s": first_batch_s,
        "peak_mb": (peak["VmHWM"] - before["VmRSS"]) / 1e3,
        "anonymous_mb": (peak["RssAnon"] - before["RssAnon"]) / 1e3,
        "mean_move": float(moved),
        "distinct": len(np.unique(places)),
    }
    started = time.perf_counter()
    rest = resumed(len(places) * 9 // 10 // options["batch"])
    next(rest)
    # A peer whose state must first be made by iterating says when its own start began.
    result["resume_s"] = time.perf_counter() - getattr(resumed, "started", started)
    return result


def memory() -> dict[str, int]:
    """VmRSS, VmHWM and RssAnon of this process, kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: int(found[name].split()[0]) for name in ("VmRSS", "VmHWM", "RssAnon")}


def cpu_seconds() -> float:
    """User and system time of this process, its threads and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)
