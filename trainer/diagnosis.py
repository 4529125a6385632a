"""Which part of a run limits it, and what to try first. Pure: rows, the ledger and a scaling measurement in, words out.

    step = waiting for data (the slowest rank's) + forward + backward + update + rest
    beside the steps: checkpoints, validation, restarts

The order of the remedies is a practitioner's: data, restarts and saves, exchange, batch, arithmetic. Exchanges hide
inside forward and backward; only the same step on one rank tells them apart (python -m trainer scaling).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.goodput import Seconds
from trainer.observer import quantile

# The newest steps: what limits the run now.
RECENT = 500


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Seconds a step, means over the newest steps but for p50 and p95. exchange: None where it was not measured.

    save, evaluation: spread over all steps. lost: share of all time that steps made again and pauses between attempts
    took.
    """

    num_steps: int
    seconds: float
    p50: float
    p95: float
    data_wait: float
    forward: float
    backward: float
    update: float
    exchange: float | None
    save: float
    evaluation: float
    lost: float

    @property
    def rest(self) -> float:
        """Logging, the digest of the batch, and what the ranks wait for each other between the phases."""
        return max(0.0, self.seconds - self.data_wait - self.forward - self.backward - self.update)


def diagnose(rows: Sequence[Mapping[str, Any]], spent: Seconds, exchange: float | None = None) -> Diagnosis:
    """rows: of metrics.jsonl, at least one. exchange: seconds a step, from scaling.py."""
    recent = rows[-RECENT:]
    seconds = [float(row["seconds"]) for row in recent]

    def mean(key: str) -> float:
        return sum(float(row.get(key, 0.0)) for row in recent) / len(recent)

    return Diagnosis(
        num_steps=len(recent),
        seconds=mean("seconds"),
        p50=quantile(seconds, 0.5),
        p95=quantile(seconds, 0.95),
        data_wait=mean("slowest_data_wait_s"),
        forward=mean("forward_s"),
        backward=mean("backward_s"),
        update=mean("update_s"),
        exchange=exchange,
        save=spent.save / len(rows),
        evaluation=spent.evaluation / len(rows),
        lost=(spent.repeated + spent.down) / spent.total if spent.total else 0.0,
    )


def verdict(found: Diagnosis) -> str:
    """One sentence: what limits the run, and what to try first."""
    if found.data_wait > 0.05 * found.seconds:
        return (
            "Data limits it: raise loader.num_workers, give loader.cache_bytes room, look at the storage's throttling;"
            " where one rank waits longer than the others, its shards come from a slower disk or node."
        )
    if found.lost > 0.15:
        return (
            "Restarts limit it: save more often (python -m trainer.plan says how often), and find what kills the ranks."
        )
    if found.save > 0.05 * found.seconds:
        return "Checkpoints limit it: save less often, or to a faster file system."
    if found.p95 > 1.5 * found.p50:
        return (
            "Uneven steps limit it: one step in twenty takes over 1.5 times the usual one. Look for a rank that is"
            " slower (another job, a hot GPU) and for storage that stalls."
        )
    if found.exchange is not None and found.exchange > 0.15 * found.seconds:
        return (
            "Exchange limits it: keep a copy inside a node (mesh.shard: ranks of a node), then a larger micro_batch or"
            " global_batch, so that more arithmetic stands behind each gather and each reduction."
        )
    if found.update > 0.2 * (found.forward + found.backward):
        return (
            "The update limits it: a larger global_batch makes fewer of them; with mesh.offload it runs on the host,"
            " so turn that off where the memory allows it."
        )
    return (
        "Arithmetic limits it, which is as it should be: a larger micro_batch while memory lasts, compile: true,"
        " recompute: selective rather than full, precision: bf16."
    )


def lines(found: Diagnosis) -> Iterator[str]:
    """For a person."""
    yield f"the last {found.num_steps} steps: {found.seconds:.3g} s each, p50 {found.p50:.3g}, p95 {found.p95:.3g}"
    parts = [
        ("waiting for data, slowest rank", found.data_wait),
        ("forward, exchange in it", found.forward),
        ("backward, exchange in it", found.backward),
        ("update", found.update),
        ("rest", found.rest),
    ]
    for words, seconds in parts:
        share = seconds / found.seconds
        yield f"  {words:32}{seconds:10.4f} s {share:7.1%}  {'#' * round(40 * share)}"
    if found.exchange is None:
        yield "  exchange is not told apart: python -m trainer scaling RUN measures it"
    else:
        yield f"  of these exchange {found.exchange:27.4f} s {found.exchange / found.seconds:7.1%}"
    yield "beside the steps, a step"
    yield f"  {'held by checkpoints':32}{found.save:10.4f} s {found.save / found.seconds:7.1%}"
    yield f"  {'validation':32}{found.evaluation:10.4f} s {found.evaluation / found.seconds:7.1%}"
    yield f"steps made again and time between attempts: {found.lost:.1%} of all time"
    yield verdict(found)
