"""`python -m trainer drill RUN`: does recovery work here, and what does it cost? On the user's own machines and data.

    1. a run of 2 x N steps, in RUN's configuration and from its first weights, saves after N      RUN/drill/whole
    2. new processes start from that checkpoint and make the last N steps again                     RUN/drill/resumed
    3. metrics and tensors of both are compared, bit for bit

RUN itself is only read. What a passed drill wrote is removed; a failed one leaves it to look at.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer import checkpoint_files as files
from trainer.commands.trial import Trial, run_to_end
from trainer.journal import read_rows
from trainer.timeline import read_events

# What both runs must have in common to the last bit; the other figures are times.
_EXACT = ("step", "loss", "lr", "grad_norm", "num_tokens", "examples_consumed", "batch_digest")
_SAVED = re.compile(r"saved .*/step-(\d+) \([\d,.]+ MB in ([\d.]+) s\)")


@dataclass(frozen=True, kw_only=True)
class Drill:
    """num_bytes: of the checkpoint. save_s: until it was durable. stall_s: how long that held the training. restore_s:
    from the start of the new processes to their first step. differing: what was not equal, in words."""

    num_bytes: int
    save_s: float
    stall_s: float
    restore_s: float
    num_rows: int
    num_files: int
    differing: tuple[str, ...]


def drill(run: Path, *, num_steps: int, launch: Sequence[str]) -> Drill:
    """launch: what stands before `trainer/train.py`; empty: torchrun here, with as many ranks as RUN had.

    Raises UserError where RUN is no run, or one of the two runs fails.
    """
    trial = Trial.of(run, "drill", lambda config: _config(config, num_steps))
    folder, command = trial.folder, trial.command(launch)

    whole, resumed = folder / "whole", folder / "resumed"
    lines = run_to_end(command, whole)
    source, target = (files.folder_of(where / "checkpoints", num_steps) for where in (whole, resumed))
    shutil.copytree(source, target, copy_function=os.link)
    shutil.copy(whole / "metrics.jsonl", resumed / "metrics.jsonl")
    run_to_end(command, resumed)

    timeline = {where: read_events(where / "timeline.jsonl") for where in (whole, resumed)}
    return Drill(
        num_bytes=sum(entry.num_bytes for entry in files.read_list(source)),
        save_s=next(float(found[2]) for found in map(_SAVED.match, lines) if found and int(found[1]) == num_steps),
        stall_s=next(event["seconds"] for event in timeline[whole] if event["kind"] == "save"),
        restore_s=timeline[resumed][0]["seconds"],
        num_rows=len(_rows(whole, num_steps)),
        num_files=len(_tensors(whole, 2 * num_steps)),
        differing=differing(whole, resumed, num_steps),
    )


def differing(whole: Path, resumed: Path, num_steps: int) -> tuple[str, ...]:
    """What the last steps of two runs that save after twice `num_steps` do not have in common, in words."""
    rows, other_rows = _rows(whole, num_steps), _rows(resumed, num_steps)
    tensors, other_tensors = _tensors(whole, 2 * num_steps), _tensors(resumed, 2 * num_steps)
    return tuple(
        [f"row of step {step}" for step, row in rows.items() if other_rows.get(step) != row]
        + [f"tensors in {name}" for name, sha256 in tensors.items() if other_tensors.get(name) != sha256]
    )


def _config(config: dict[str, Any], num_steps: int) -> dict[str, Any]:
    checkpoint = {"minutes": None, "steps": num_steps, "keep": 2, "remote": None}
    return {
        **config,
        "steps": 2 * num_steps,
        "checkpoint": {**config["checkpoint"], **checkpoint},
        "validation": {"every_steps": None},
    }


def _rows(output: Path, after: int) -> dict[int, list[Any]]:
    rows = read_rows(output / "metrics.jsonl")
    return {row["step"]: [row[name] for name in _EXACT] for row in rows if row["step"] > after}


def _tensors(output: Path, step: int) -> dict[str, str]:
    """sha256 by file: torch writes the same bytes for the same tensors (its index has a number drawn anew)."""
    entries = files.read_list(files.folder_of(output / "checkpoints", step))
    return {entry.path: entry.sha256 for entry in entries if entry.path.endswith((".distcp", ".pt"))}


def lines(done: Drill, run: Path, num_steps: int) -> Iterator[str]:
    """For a person."""
    mb = done.num_bytes / 1e6
    yield f"drill of {run}: {num_steps} steps, a save, {num_steps} more; new processes made the last {num_steps} again"
    rate = mb / max(done.save_s, 0.1)
    yield f"saved         {mb:,.1f} MB in {done.save_s:.1f} s, {rate:,.0f} MB/s, beside the training"
    yield f"held          {done.stall_s:.2f} s of training for it"
    yield f"restored      {done.restore_s:.1f} s from the start of the processes to the first step"
    what = f"{done.num_rows} rows of metrics, {done.num_files} files of tensors and random states"
    yield f"continuation  {'NOT EQUAL: ' + ', '.join(done.differing) if done.differing else f'bit-equal: {what}'}"
