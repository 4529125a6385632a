"""Does the epoch fit the deadline, what would, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """tokens: of the train split. tokens_per_s: of the whole cluster, what is lost to failures and saves taken off.

    share: of the epoch seen by the deadline, at most 1. gpus_needed: at the same efficiency. loader_bytes_per_s: a
    node's.
    """

    tokens: float
    steps: int
    tokens_per_s: float
    seconds: float
    deadline: float
    share: float
    gpus_needed: int
    loader_bytes_per_s: float

    @property
    def fits(self) -> bool:
        return self.seconds <= self.deadline


def plan_epoch(
    *,
    tokens: float,
    tokens_per_step: int,
    step_seconds: float,
    lost_fraction: float,
    deadline: float,
    num_gpus: int,
    num_nodes: int,
    token_bytes: int,
) -> Epoch:
    """token_bytes: of one token in a shard (2 or 4). deadline: seconds."""
    rate = tokens_per_step / step_seconds * (1 - lost_fraction)
    seconds = tokens / rate
    return Epoch(
        tokens=tokens,
        steps=int(tokens // tokens_per_step),
        tokens_per_s=rate,
        seconds=seconds,
        deadline=deadline,
        share=min(1.0, deadline / seconds),
        gpus_needed=math.ceil(num_gpus * seconds / deadline),
        loader_bytes_per_s=tokens_per_step / step_seconds * token_bytes / num_nodes,
    )


@dataclass(frozen=True, kw_only=True)
class Prices:
    """In one currency: of a GPU hour, of a GB (10**9 bytes) stored a month, of a GB that leaves the storage."""

    gpu_hour: float = 2.5
    gb_month: float = 0.023
    gb_traffic: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Bill:
    gpu_hours: float
    gpus: float
    storage: float
    traffic: float

    @property
    def total(self) -> float:
        return self.gpus + self.storage + self.traffic


def bill(*, num_gpus: int, seconds: float, stored_bytes: float, read_bytes: float, prices: Prices) -> Bill:
    """For `seconds` of the cluster with `stored_bytes` kept meanwhile and `read_bytes` fetched."""
    hours = num_gpus * seconds / 3600
    return Bill(
        gpu_hours=hours,
        gpus=hours * prices.gpu_hour,
        storage=stored_bytes / 1e9 * prices.gb_month * seconds / (30 * DAY),
        traffic=read_bytes / 1e9 * prices.gb_traffic,
    )
