"""metrics.jsonl: one object a step, each step once, whatever was killed and resumed; and the terminal's line about it.

    {"step": 12, "loss": 5.43, "lr": 0.001, "grad_norm": 0.91, "num_tokens": 4087, "examples_consumed": 96,
     "batch_digest": "sha256:...", "seconds": 0.33, "data_wait_s": 0.001, "skipped": false, "num_skipped": 0,
     ... the metrics of metrics/ that have something to tell about the step}

Figures that are not finite are null: NaN is not JSON.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.append import AppendedLines
from trainer.facts import StepFacts
from trainer.metrics import METRICS

logger = logging.getLogger(__name__)


def row(facts: StepFacts) -> dict[str, Any]:
    """The object that stands for a step. Floats keep full precision: reading them back gives the same bits."""
    values: dict[str, Any] = {
        "step": facts.step,
        "loss": facts.loss,
        "lr": facts.lr,
        "grad_norm": facts.grad_norm,
        "num_tokens": facts.num_tokens,
        "examples_consumed": facts.examples_consumed,
        "batch_digest": facts.batch_digest,
        "seconds": facts.seconds,
        "data_wait_s": facts.data_wait_s,
        "slowest_data_wait_s": facts.slowest_data_wait_s,
        "forward_s": facts.forward_s,
        "backward_s": facts.backward_s,
        "update_s": facts.update_s,
        "skipped": not facts.applied,
        "num_skipped": facts.num_skipped,
    }
    derived = {name: measure(facts) for name, measure in METRICS.items()}
    values |= {name: value for name, value in derived.items() if value is not None}
    return {name: _finite(value) for name, value in values.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file. Lines that a kill or a power cut left unreadable are left out and counted."""
    if not path.exists():
        return []
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    lines = complete.splitlines()
    rows = [values for line in lines if (values := _row_in(line)) is not None]
    if len(rows) < len(lines):
        logger.warning("%s: %d of %d lines cannot be read and are left out", path, len(lines) - len(rows), len(lines))
    return rows


def _row_in(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


class Journal:
    """The open metrics file of a run; one process writes it."""

    def __init__(self, path: Path, say: Callable[[str], None], *, resumed_step: int) -> None:
        """Keeps the rows up to `resumed_step` and drops later ones, which will be made again.

        Cut in place, not rewritten: a full disk has room for that. A line that a power cut left unreadable among those
        kept stays, and readers pass over it.
        """
        if path.exists():
            os.truncate(path, _end_of(path, resumed_step))
        self._lines = AppendedLines(path, say)

    def write(self, facts: StepFacts) -> None:
        self._lines.write(json.dumps(row(facts), allow_nan=False))

    def sync(self) -> None:
        """Make the rows as durable as the checkpoint that is about to be written. Raises OSError on a full disk."""
        self._lines.sync()

    def close(self) -> None:
        self._lines.close()


def _end_of(path: Path, step: int) -> int:
    """Bytes up to the end of the last whole row of a step that is `step` or earlier."""
    position = end = 0
    for line in path.read_bytes().splitlines(keepends=True):
        position += len(line)
        values = _row_in(line) if line.endswith(b"\n") else None
        if values is not None and values["step"] <= step:
            end = position
    return end


def step_line(facts: StepFacts, *, num_steps: int, seconds_left: float) -> str:
    """`step 12/300  loss 5.4321  lr 1.0e-03  grad 0.91  12.3k tok/s  eta 0:42`, and the validation's result if any."""
    parts = [
        f"step {facts.step}/{num_steps}",
        f"loss {facts.loss:.4f}",
        f"lr {facts.lr:.1e}",
        f"grad {facts.grad_norm:.2f}",
        f"{short_number(facts.tokens_in_batch / facts.seconds)} tok/s",
        f"eta {clock_time(seconds_left)}",
    ]
    if not facts.applied:
        parts.append(f"SKIPPED: not finite ({facts.num_skipped} so far)")
    if facts.validation is not None:
        parts.append(f"validation loss {facts.validation.loss:.4f} perplexity {facts.validation.perplexity:.2f}")
    return "  ".join(parts)


def short_number(value: float) -> str:
    """950 -> 950, 12300 -> 12.3k, 4500000 -> 4.5M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.1f}{name}"
    return f"{value:.0f}"


def clock_time(seconds: float) -> str:
    """42 -> 0:42, 3725 -> 1:02:05."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
