"""python -m trainer report: the files of a run -> one HTML page."""

from __future__ import annotations

import json
from pathlib import Path

from manifests.errors import UserError
from trainer.journal import read_rows
from trainer.report import RunFiles, render
from trainer.timeline import read_events


def write(folder: Path, target: Path | None) -> Path:
    """The page about the run in `folder`; where it was written. Raises UserError where there is no run."""
    if not (folder / "timeline.jsonl").exists():
        raise UserError(f"{folder} holds no timeline.jsonl: give the output folder of a run")
    facts = folder / "run.json"
    run = RunFiles(
        name=folder.resolve().name,
        rows=read_rows(folder / "metrics.jsonl"),
        events=read_events(folder / "timeline.jsonl"),
        facts=json.loads(facts.read_text(encoding="utf-8")) if facts.exists() else {},
    )
    target = folder / "report.html" if target is None else target
    target.write_text(render(run), encoding="utf-8")
    return target
