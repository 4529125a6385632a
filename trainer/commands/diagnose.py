"""python -m trainer diagnose: what limits a run, from the files it left."""

from __future__ import annotations

import json
from pathlib import Path

from manifests.errors import UserError
from trainer.diagnosis import Diagnosis, diagnose
from trainer.goodput import ledger
from trainer.journal import read_rows
from trainer.timeline import read_events


def look(folder: Path) -> Diagnosis:
    """Raises UserError where the run in `folder` has made no step."""
    rows = read_rows(folder / "metrics.jsonl")
    if not rows:
        raise UserError(f"{folder} has no step in metrics.jsonl: give the output folder of a run that has begun")
    measured = folder / "scaling.json"  # written by trainer scaling
    exchange = None
    if measured.exists():
        exchange = json.loads(measured.read_text(encoding="utf-8"))[-1]["exchange_s"]
    return diagnose(rows, ledger(read_events(folder / "timeline.jsonl")).seconds, exchange)
