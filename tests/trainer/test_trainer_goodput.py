"""Every second of a run is booked once, over all its attempts."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.goodput import Attempt, Seconds, ledger
from trainer.timeline import Timeline, process_age_s, read_events


def event(kind: str, at: float, seconds: float, **values: Any) -> dict[str, Any]:
    return {"kind": kind, "at": at, "seconds": seconds, **values}


def step(number: int, at: float, seconds: float = 2.0, wait: float = 0.5) -> dict[str, Any]:
    return event("step", at, seconds, step=number, data_wait_s=wait)


# Born at 100, saved after step 2, killed in step 4; born again at 130 on fewer ranks, went on from step 2, done at 150.
KILLED_ONCE = [
    event("start", 110, 10, step=0, world_size=4),
    step(1, 112),
    step(2, 114),
    event("save", 115, 1),
    step(3, 117),
    event("start", 136, 6, step=2, world_size=3),
    step(3, 138),
    step(4, 140),
    event("evaluation", 143, 3),
    event("save", 144, 1),
    event("end", 150, 0, reason="done"),
]


def test_each_second_of_a_killed_and_resumed_run_is_booked_once() -> None:
    seconds = ledger(KILLED_ONCE).seconds
    assert seconds == Seconds(
        productive=6.0, start=16.0, data_wait=2.0, save=2.0, repeated=2.0, evaluation=3.0, down=13.0, other=6.0
    )
    assert seconds.total == 50.0
    assert seconds.goodput == 0.12


def test_the_attempts_say_what_was_lost_and_how_they_ended() -> None:
    assert ledger(KILLED_ONCE).attempts == (
        Attempt(born_at=100, ended_at=117, first_step=0, last_step=3, steps_lost=1, world_size=4, ended="killed"),
        Attempt(born_at=130, ended_at=150, first_step=2, last_step=4, steps_lost=0, world_size=3, ended="done"),
    )


def test_an_attempt_without_an_end_may_be_alive() -> None:
    assert ledger(KILLED_ONCE[:5]).attempts[0].ended == "running, or killed"


def test_a_run_that_never_began_has_no_seconds() -> None:
    assert ledger([]).seconds == Seconds()
    assert ledger([]).seconds.goodput == 0.0


def test_a_clock_set_back_between_attempts_makes_no_negative_time() -> None:
    events = [event("start", 110, 10, step=0, world_size=1), event("start", 100, 5, step=0, world_size=1)]
    assert ledger(events).seconds.down == 0.0


def test_a_line_that_a_kill_cut_short_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "timeline.jsonl"
    first = Timeline(path, print, clock=lambda: 110.0)
    first.note("start", seconds=10.0, step=0, world_size=1)
    first.close()
    with path.open("a") as stream:
        stream.write('{"kind": "st')
    said: list[str] = []
    second = Timeline(path, said.append, clock=lambda: 120.0)
    second.note("start", seconds=1.0, step=0, world_size=1)
    second.close()
    assert said == [f"warning: the last line of {path} was cut short by a kill: its seconds count as down"]
    assert read_events(path) == [
        event("start", 110.0, 10.0, step=0, world_size=1),
        event("start", 120.0, 1.0, step=0, world_size=1),
    ]
    assert [json.loads(line)["at"] for line in path.read_text().splitlines() if line.endswith("}")] == [110.0, 120.0]


def test_the_age_of_this_process_counts_from_its_start() -> None:
    first, second = process_age_s(), process_age_s()
    assert 0.0 < first <= second
    assert second == pytest.approx(first, abs=60)
