"""`python -m loader bench`: what the loader does on this machine, with this data, now."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loader.commands.check import size


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Seconds are of the wall, but for cpu_s: user and system, of this process and of workers that have ended."""

    num_examples: int
    num_token_bytes: int
    first_batch_s: float
    resume_s: float
    run_s: float
    cpu_s: float
    metrics: dict[str, int | float]


def measured(make_loader: Callable[[], object], *, seconds: float, row_bytes: int) -> Measurement:
    """Iterates for about `seconds`, through epochs; then makes a second loader and resumes at 90 % of an epoch.

    make_loader: gives a fresh Loader. row_bytes: of an example's tokens as stored.
    """
    from loader.loader import Loader  # torch: not before it is needed

    started = time.perf_counter()
    loader = make_loader()
    assert isinstance(loader, Loader)
    batches = iter(loader)  # kept: the end of an iteration is no part of a first batch
    next(batches)
    first_batch_s = time.perf_counter() - started

    loader.dataset()  # has the kernel compiled, where this machine has not yet: once, so no part of a rate
    num_rows, num_batches = loader.counters.rows, 0
    cpu, begun = _cpu_s(), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in loader:
            num_batches += 1
            if num_batches % loader.micro_batches_per_step == 0:
                loader.advance()
            if time.perf_counter() - begun >= seconds:
                break
    run_s = time.perf_counter() - begun
    num_rows = loader.counters.rows - num_rows
    metrics = loader.metrics()
    loader.close()
    cpu_s = _cpu_s() - cpu

    state = loader.state_dict()
    at = loader.steps_per_epoch * 9 // 10 * state["global_batch"]
    started = time.perf_counter()
    resumed = make_loader()
    assert isinstance(resumed, Loader)
    resumed.load_state_dict(state | {"epoch": 0, "examples_consumed": at})
    batches = iter(resumed)
    next(batches)
    resume_s = time.perf_counter() - started
    resumed.close()
    return Measurement(
        num_examples=num_rows,
        num_token_bytes=num_rows * row_bytes,
        first_batch_s=first_batch_s,
        resume_s=resume_s,
        run_s=run_s,
        cpu_s=cpu_s,
        metrics=metrics,
    )


def lines(found: Measurement) -> Iterator[str]:
    """The measurement as a page for a terminal."""
    rate, cpu_rate = found.num_examples / found.run_s, found.num_examples / found.cpu_s
    yield f"  first batch   {found.first_batch_s * 1000:,.0f} ms, the reading of the manifest included"
    yield f"  resume        {found.resume_s * 1000:,.0f} ms at 90 % of an epoch, the manifest already read"
    yield f"  examples      {rate:,.0f} a second, {cpu_rate:,.0f} a second of CPU time"
    yield (
        f"  tokens        {size(int(found.num_token_bytes / found.run_s))} a second as stored, "
        f"{size(int(found.num_token_bytes / found.cpu_s))} a second of CPU time"
    )
    metrics = found.metrics
    yield (
        f"  storage       {size(int(metrics['bytes_fetched']))} in {metrics['shards_fetched']:,} shards, "
        f"{metrics['fetch_gb_per_s']:.2f} GB/s a download, {metrics['cache_hits']:,} found in the cache, "
        f"{metrics['retries']:,} retries"
    )
    yield (
        f"  waits         {metrics['waits']:,}, {metrics['wait_s']:.2f} s in all; "
        f"{metrics['early_rows']:,} rows came early"
    )


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)
