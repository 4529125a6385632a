"""metrics.jsonl holds each step once, whatever was killed; figures keep every bit."""

import json
from pathlib import Path

import pytest

from trainer.facts import StepFacts, ValidationResult
from trainer.journal import Journal, clock_time, read_rows, row, short_number, step_line
from trainer.metrics import METRICS


def facts(step: int, **changes: object) -> StepFacts:
    values = {
        "step": step,
        "loss": 0.1 + 0.2,
        "lr": 1e-3,
        "grad_norm": 0.5,
        "num_tokens": 250,
        "tokens_in_batch": 256,
        "examples_consumed": 8 * step,
        "batch_digest": "sha256:00",
        "seconds": 0.5,
        "data_wait_s": 0.125,
        "applied": True,
        "num_skipped": 0,
    } | changes
    return StepFacts(**values)


def test_a_resumed_journal_drops_later_rows_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path, print, resumed_step=0)
    for step in (1, 2, 3):
        journal.write(facts(step))
    journal.close()
    with path.open("a") as stream:
        stream.write('{"step": 4, "lo')
    resumed = Journal(path, print, resumed_step=2)
    resumed.write(facts(3, loss=7.0))
    resumed.close()
    assert [(values["step"], values["loss"]) for values in read_rows(path)] == [
        (1, 0.30000000000000004),
        (2, 0.30000000000000004),
        (3, 7.0),
    ]


def test_a_line_a_power_cut_left_empty_does_not_keep_the_run_from_going_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path, print, resumed_step=0)
    for step in (1, 2, 3):
        journal.write(facts(step))
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * (len(lines[1]) - 1) + b"\n" + lines[2])
    Journal(path, print, resumed_step=1).close()
    assert [values["step"] for values in read_rows(path)] == [1]


def test_what_is_not_finite_is_null_because_nan_is_not_json() -> None:
    values = row(facts(1, loss=float("nan"), grad_norm=float("inf"), applied=False, num_skipped=1))
    assert (values["loss"], values["grad_norm"], values["skipped"], values["num_skipped"]) == (None, None, True, 1)
    assert json.loads(json.dumps(values, allow_nan=False)) == values


def test_a_row_holds_the_promised_keys_and_the_derived_figures() -> None:
    values = row(facts(3))
    promised = [
        "step",
        "loss",
        "lr",
        "grad_norm",
        "num_tokens",
        "examples_consumed",
        "batch_digest",
        "seconds",
        "data_wait_s",
    ]
    assert list(values)[: len(promised)] == promised
    assert values["tokens_per_s"] == 512.0
    assert values["data_wait_fraction"] == 0.25
    assert "validation_loss" not in values


def test_validation_stands_in_the_row_of_its_step() -> None:
    values = row(facts(3, validation=ValidationResult(loss=2.0, perplexity=7.389, num_tokens=99)))
    assert (values["validation_loss"], values["validation_perplexity"]) == (2.0, 7.389)


def test_the_terminal_line_can_be_read() -> None:
    line = step_line(facts(12, loss=5.4321, grad_norm=0.91, tokens_in_batch=6150), num_steps=300, seconds_left=42.0)
    assert line == "step 12/300  loss 5.4321  lr 1.0e-03  grad 0.91  12.3k tok/s  eta 0:42"


def test_a_skipped_step_says_so() -> None:
    line = step_line(facts(2, loss=float("nan"), applied=False, num_skipped=1), num_steps=3, seconds_left=0.0)
    assert line.endswith("SKIPPED: not finite (1 so far)")


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (42, "0:42"), (61, "1:01"), (3725, "1:02:05")])
def test_times_are_written_as_a_clock_shows_them(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(950, "950"), (12_300, "12.3k"), (4_500_000, "4.5M"), (2e9, "2.0G")])
def test_large_numbers_are_shortened(value: float, text: str) -> None:
    assert short_number(value) == text


def test_every_file_in_metrics_is_in_the_table(repository: Path) -> None:
    names = {path.stem for path in (repository / "trainer" / "metrics").glob("*.py")} - {"__init__"}
    assert names == set(METRICS)


def test_lines_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st\n{"step": 2}\n\x00\x00\n')
    assert read_rows(path) == [{"step": 1}, {"step": 2}]
    assert caplog.messages == [f"{path}: 2 of 4 lines cannot be read and are left out"]
