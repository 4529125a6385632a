"""The goodput ledger: every second since a run was born, by what it was spent on. Pure: timeline events -> numbers.

    born                                   killed        ready again                       now
      | start | steps, saves, evaluations |  down  | start | repeated steps | steps ...     |

Goodput is the share of productive steps: made once, waiting for data not included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Where the time went; the fields add up to the time since the run was born.

    repeated: steps that an attempt lost and a later one made again. down: between the last sign of an attempt and the
    birth of the next, the unfinished step of a killed one included. other: the rest, such as the final export.
    """

    productive: float = 0.0
    start: float = 0.0
    data_wait: float = 0.0
    save: float = 0.0
    repeated: float = 0.0
    evaluation: float = 0.0
    down: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def goodput(self) -> float:
        """Productive share of the whole; 0 for a run without a second."""
        return self.productive / self.total if self.total else 0.0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of the command. Wall-clock seconds; steps_lost: made here and made again later."""

    born_at: float
    ended_at: float
    first_step: int
    last_step: int
    steps_lost: int
    world_size: int
    ended: str


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """kept_steps: (step, wall clock, seconds) of the steps that were made for good, in order."""

    seconds: Seconds
    attempts: tuple[Attempt, ...]
    kept_steps: tuple[tuple[int, float, float], ...]


def ledger(events: Sequence[Mapping[str, Any]]) -> Ledger:
    """Events as timeline.py writes them, in order."""
    attempts = _split(events)
    sums = {field.name: 0.0 for field in fields(Seconds)}
    told, kept_steps = [], []
    for number, attempt in enumerate(attempts):
        following = attempts[number + 1] if number + 1 < len(attempts) else None
        kept_up_to = following[0]["step"] if following is not None else float("inf")
        steps = [event for event in attempt if event["kind"] == "step"]
        sums["start"] += attempt[0]["seconds"]
        for event in steps:
            if event["step"] > kept_up_to:
                sums["repeated"] += event["seconds"]
            else:
                sums["data_wait"] += event["data_wait_s"]
                sums["productive"] += event["seconds"] - event["data_wait_s"]
                kept_steps.append((event["step"], event["at"], event["seconds"]))
        for kind in ("save", "evaluation"):
            sums[kind] += sum(event["seconds"] for event in attempt if event["kind"] == kind)
        if following is not None:
            # Clocks of two nodes differ, and are set: a gap below nothing is nothing.
            sums["down"] += max(0.0, _born(following) - attempt[-1]["at"])
        first_step = attempt[0]["step"]
        told.append(
            Attempt(
                born_at=_born(attempt),
                ended_at=attempt[-1]["at"],
                first_step=first_step,
                last_step=max([first_step, *(event["step"] for event in steps)]),
                steps_lost=sum(event["step"] > kept_up_to for event in steps),
                world_size=attempt[0]["world_size"],
                ended=_ending(attempt, is_last=following is None),
            )
        )
    if attempts:
        whole = attempts[-1][-1]["at"] - _born(attempts[0])
        sums["other"] = max(0.0, whole - sum(sums.values()))
    return Ledger(seconds=Seconds(**sums), attempts=tuple(told), kept_steps=tuple(kept_steps))


def _split(events: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """One list an attempt, each beginning with its start."""
    attempts: list[list[Mapping[str, Any]]] = []
    for event in events:
        if event["kind"] == "start":
            attempts.append([])
        if attempts:
            attempts[-1].append(event)
    return attempts


def _born(attempt: Sequence[Mapping[str, Any]]) -> float:
    return float(attempt[0]["at"] - attempt[0]["seconds"])


def _ending(attempt: Sequence[Mapping[str, Any]], *, is_last: bool) -> str:
    last = attempt[-1]
    if last["kind"] == "end":
        return str(last["reason"])
    return "running, or killed" if is_last else "killed"
