"""The page about a run: every plot, each restart marked, whatever the run has been through."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.test_trainer_goodput import KILLED_ONCE
from tests.trainer.test_trainer_journal import facts
from trainer.__main__ import main
from trainer.facts import ValidationResult
from trainer.goodput import ledger
from trainer.journal import row
from trainer.plot import Series, nice_ticks, plot, thin
from trainer.report import RunFiles, goodput_by_step, moving_average, render

ROWS = [
    row(facts(1)),
    row(facts(2, loss=float("nan"), applied=False, num_skipped=1)),
    row(facts(3)),
    row(facts(4, validation=ValidationResult(loss=2.0, perplexity=7.389, num_tokens=99))),
]
RUN_FACTS = {
    "manifest": {"name": "tiny", "version": "v1", "digest": "sha256:aa"},
    "world_size": 3,
    "config": {"precision": "bf16", "global_batch": 8},
    "code": {"version": "0.1.0", "git_commit": None},
}


def page(rows: Any = ROWS, events: Any = KILLED_ONCE) -> str:
    return render(RunFiles(name="<support> v1", rows=rows, events=events, facts=RUN_FACTS))


def test_the_page_shows_every_plot_and_marks_the_restart_in_each() -> None:
    text = page()
    titles = re.findall(r"<h3>([^<]+?)\s*<", text)
    assert [title.strip() for title in titles] == [
        "loss (nats a token)",
        "learning rate",
        "gradient norm, before clipping",
        "tokens a second",
        "step time (s)",
        "goodput (share of all time so far)",
    ]
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(drawings) == 6
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert drawing.count('class="mark"') == 1


def test_the_page_says_what_was_lost_and_what_was_skipped() -> None:
    text = page()
    assert "&lt;support&gt; v1" in text
    assert "1 steps were skipped: loss or gradient norm was not finite." in text
    assert "<td>killed</td>" in text
    assert "<td>done</td>" in text
    assert re.search(r"<td>steps made again after a restart</td><td>0:02</td><td>4.0 %</td>", text)
    assert "<b>7.39</b><small>validation loss 2.0000</small>" in text
    assert "<b>12.0%</b><small>of 0:50 since the run was born</small>" in text


def test_the_page_needs_nothing_from_anywhere() -> None:
    assert not re.search(r"<script|<link|<img|url\(|https?://", page())


def test_a_run_without_a_step_has_a_page() -> None:
    text = page(rows=[], events=KILLED_ONCE[:1])
    assert "No step has been made yet." in text
    assert "nothing to show yet" in text


def test_goodput_falls_with_the_restart_and_counts_kept_steps_only() -> None:
    # Productive 1.5 s a step: steps 1, 2 of the first attempt, 3, 4 of the second; born at 100.
    assert goodput_by_step(ledger(KILLED_ONCE), [{"step": number, "data_wait_s": 0.5} for number in (1, 2, 3, 4)]) == [
        (1.0, 1.5 / 12),
        (2.0, 3.0 / 14),
        (3.0, 4.5 / 38),
        (4.0, 6.0 / 40),
    ]


def test_a_moving_average_is_of_the_last_fiftieth_of_the_steps() -> None:
    points = [(float(number), float(number % 2)) for number in range(100)]
    assert moving_average(points)[:3] == [(0.0, 0.0), (1.0, 0.5), (2.0, 0.5)]
    assert moving_average(points)[-1] == (99.0, 0.5)


def test_round_numbers_stand_at_the_axis() -> None:
    assert nice_ticks(4.31, 4.58) == [4.3, 4.4, 4.5, 4.6]
    assert nice_ticks(0.0, 1.0) == [0.0, 0.5, 1.0]
    assert nice_ticks(0.0, 3e-4) == [0.0, 1e-4, 2e-4, 3e-4]


@given(low=st.floats(-1e6, 1e6), size=st.floats(0, 1e6))
def test_the_axis_holds_what_is_drawn(low: float, size: float) -> None:
    ticks = nice_ticks(low, low + size)
    assert 2 <= len(ticks) <= 9
    tolerance = 1e-6 * (abs(low) + size + 1e-6)
    assert ticks[0] <= low + tolerance
    assert ticks[-1] >= low + size - tolerance


def test_many_steps_make_a_small_picture_that_keeps_the_spike() -> None:
    points = [(float(step), 9.0 if step == 50_123 else 1.0) for step in range(100_000)]
    kept = thin(points, 0.0, 99_999.0)
    assert len(kept) <= 900
    assert (50_123.0, 9.0) in kept
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)
    assert len(plot([Series(name="loss", points=points)])) < 30_000


def test_the_command_writes_the_page_and_refuses_what_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"python -m trainer: {tmp_path} holds no timeline.jsonl: give the output folder of a run\n"
    )
    (tmp_path / "timeline.jsonl").write_text("".join(json.dumps(event) + "\n" for event in KILLED_ONCE))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(values) + "\n" for values in ROWS))
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert "loss (nats a token)" in (tmp_path / "report.html").read_text()
