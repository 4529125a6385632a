"""How large a checkpoint is, what writing it takes, and how often to write one so that the least is lost.

    lost share = stall / T            the steps held while state is copied
               + (T / 2 + write) / M  after a failure: half an interval on average, and what was not yet written whole
               + restart / M

T interval, M mean time between failures. Young 1974, "A first order approximation to the optimum checkpoint interval";
Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", equation 37.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainer.plan.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Seconds, bytes, bytes a second. best_interval: of least loss that leaves time to write one before the next."""

    checkpoint_bytes: float
    stall: float
    write: float
    restart: float
    mean_time_between_failures: float
    best_interval: float

    def lost_fraction(self, interval: float) -> float:
        """Of all time, at a checkpoint every `interval` seconds."""
        again = (interval / 2 + self.write + self.restart) / self.mean_time_between_failures
        return self.stall / interval + again

    def mean_bandwidth(self, interval: float) -> float:
        return self.checkpoint_bytes / interval


def young_interval(cost: float, mean_time_between_failures: float) -> float:
    """Seconds. Worked example: cost 10 s, a failure a day: sqrt(2 x 10 x 86,400) = 1,315 s."""
    return math.sqrt(2 * cost * mean_time_between_failures)


def daly_interval(cost: float, mean_time_between_failures: float) -> float:
    """Seconds; Young's with the next terms, and never above the time between failures."""
    if cost >= 2 * mean_time_between_failures:
        return mean_time_between_failures
    ratio = cost / (2 * mean_time_between_failures)
    first = young_interval(cost, mean_time_between_failures)
    return first * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def checkpoint_bytes(shape: Shape, optimizer: str) -> float:
    """fp32 values and the optimizer's state; gradients are not kept."""
    return float(4 * shape.num_parameters + shape.state[optimizer].total)


def plan_saving(
    num_bytes: float,
    *,
    stall: float,
    write_bytes_per_s: float,
    restart: float,
    failures_per_day: float,
) -> Saving:
    """num_bytes: of a checkpoint. stall: seconds a save holds the steps, as measured (timeline.jsonl, "save")."""
    between = 86_400 / failures_per_day
    write = num_bytes / write_bytes_per_s
    return Saving(
        checkpoint_bytes=num_bytes,
        stall=stall,
        write=write,
        restart=restart,
        mean_time_between_failures=between,
        best_interval=max(write, daly_interval(stall, between)),
    )
