"""A slow run is explained: the step in parts, one sentence about what limits it, and what more ranks bring."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from manifests.errors import UserError
from trainer.__main__ import main
from trainer.commands.scaling import compare, lines, read_baseline
from trainer.diagnosis import diagnose, verdict
from trainer.diagnosis import lines as diagnosis_lines
from trainer.goodput import Seconds
from trainer.phases import PhaseClock


def rows(**changes: float) -> list[dict[str, Any]]:
    values = {
        "seconds": 1.0,
        "slowest_data_wait_s": 0.01,
        "forward_s": 0.3,
        "backward_s": 0.6,
        "update_s": 0.05,
    } | changes
    return [{"step": step, **values} for step in range(1, 101)]


CALM = Seconds(productive=100.0, start=5.0)


def test_the_step_is_split_and_the_parts_add_up() -> None:
    found = diagnose(rows(), Seconds(productive=95.0, save=2.0, evaluation=3.0))
    assert found.data_wait + found.forward + found.backward + found.update + found.rest == pytest.approx(1.0)
    assert found.rest == pytest.approx(0.04)
    assert (found.save, found.evaluation) == (0.02, 0.03)
    text = list(diagnosis_lines(found))
    assert text[0] == "the last 100 steps: 1 s each, p50 1, p95 1"
    assert text[3] == "  backward, exchange in it            0.6000 s   60.0%  " + "#" * 24
    assert "  exchange is not told apart: python -m trainer scaling RUN measures it" in text


@pytest.mark.parametrize(
    ("changes", "spent", "exchange", "limit"),
    [
        ({"slowest_data_wait_s": 0.2}, CALM, None, "Data limits it"),
        ({}, Seconds(productive=80.0, repeated=10.0, down=10.0), None, "Restarts limit it"),
        ({}, Seconds(productive=100.0, save=10.0), None, "Checkpoints limit it"),
        ({}, CALM, 0.3, "Exchange limits it"),
        ({"update_s": 0.4}, CALM, None, "The update limits it"),
        ({}, CALM, 0.1, "Arithmetic limits it"),
    ],
)
def test_one_sentence_says_what_limits_the_run(
    changes: dict[str, float], spent: Seconds, exchange: float | None, limit: str
) -> None:
    assert verdict(diagnose(rows(**changes), spent, exchange)).startswith(limit)


def test_data_comes_first_where_several_things_are_slow() -> None:
    slow = diagnose(rows(slowest_data_wait_s=0.2), Seconds(productive=50.0, save=20.0, down=30.0), 0.5)
    assert verdict(slow).startswith("Data limits it")


def test_steps_of_very_unequal_length_point_to_a_slow_rank() -> None:
    uneven = rows()
    for row in uneven[::10]:
        row["seconds"] = 3.0
    assert verdict(diagnose(uneven, CALM)).startswith("Uneven steps limit it")


def test_efficiency_is_t1_over_n_tn_and_exchange_is_what_arithmetic_does_not_explain() -> None:
    def trial(seconds: float, forward: float, backward: float) -> list[dict[str, Any]]:
        return rows(seconds=seconds, forward_s=forward, backward_s=backward)

    one, two, four = compare({1: trial(1.0, 0.3, 0.6), 2: trial(0.55, 0.2, 0.3), 4: trial(0.4, 0.15, 0.2)})
    assert (one.efficiency, one.exchange_s) == (1.0, 0.0)
    assert two.efficiency == pytest.approx(1.0 / 1.1)
    assert two.exchange_s == pytest.approx(0.5 - 0.45)
    assert four.efficiency == pytest.approx(1.0 / 1.6)
    assert four.exchange_s == pytest.approx(0.35 - 0.225)
    assert list(lines([one, two, four]))[2].split() == ["2", "0.5500", "0.0100", "0.5000", "0.0500", "0.0500", "0.909"]


def test_efficiency_against_a_stored_baseline_is_t1_of_then_over_n_tn_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "scaling.json"
    then = compare({2: rows(seconds=0.5, forward_s=0.2, backward_s=0.2), 1: rows(seconds=0.8)})
    stored.write_text(json.dumps([asdict(one) for one in then]))
    (eight,) = compare({8: rows(seconds=0.2)}, read_baseline(stored))
    assert eight.efficiency == pytest.approx(0.8 / (8 * 0.2))
    stored.write_text("{}")
    with pytest.raises(UserError, match=r"is no scaling\.json"):
        read_baseline(stored)
    with pytest.raises(UserError, match=r"is no scaling\.json"):
        read_baseline(tmp_path / "none.json")


def test_the_clock_books_each_span_under_its_phase() -> None:
    clock = PhaseClock(torch.device("cpu"))
    for phase in ("forward", "backward", "forward", "backward", "update"):
        clock.ends(phase)
    read = clock.read()
    assert min(read.forward, read.backward, read.update) > 0.0
    assert read.forward + read.backward + read.update < 1.0


def test_a_run_without_a_step_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("diagnose", "scaling"):
        assert main([command, str(tmp_path)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"python -m trainer: {tmp_path} has no step in metrics.jsonl")
    assert second.startswith(f"python -m trainer: {tmp_path}: no run.json in it")
