"""`python -m trainer checkpoints RUN`: each checkpoint of a run, here and in its remote, read and verified."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manifests import storage
from manifests.errors import UserError
from trainer import checkpoint_files as files
from trainer import remote

WHOLE, DAMAGED, MISSING, UNFINISHED = "whole", "DAMAGED", "missing", "unfinished"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One step of a run, or the unfinished folder of one.

    here, copy: WHOLE, DAMAGED, MISSING or, here only, UNFINISHED; copy is None where the run has no remote. faults: in
    words, one a place. saved_at: seconds since 1970, of the list; None, as the counts, without one here.
    """

    name: str
    step: int
    here: str
    copy: str | None
    faults: tuple[str, ...] = ()
    saved_at: float | None = None
    world_size: int | None = None
    examples_consumed: int | None = None
    num_files: int | None = None
    num_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """All of a run's checkpoints, oldest first. remote_fault: why the copies could not be listed."""

    run: str
    remote: str | None
    checkpoints: tuple[Checkpoint, ...]
    remote_fault: str | None = None

    @property
    def newest(self) -> Checkpoint | None:
        """Where the run would go on."""
        whole = [found for found in self.checkpoints if WHOLE in (found.here, found.copy)]
        return whole[-1] if whole else None

    @property
    def holds(self) -> bool:
        """There is a checkpoint to go on from, and nothing is damaged or out of sight."""
        damaged = any(DAMAGED in (found.here, found.copy) for found in self.checkpoints)
        return self.newest is not None and not damaged and self.remote_fault is None


def look(run: Path, *, quick: bool, copies: bool) -> Found:
    """Read every checkpoint under `run`, an <output> of the trainer. Raises UserError where that is none.

    quick: sizes only. copies: every byte of the copies is read too; else their sizes are compared.
    """
    facts_path = run / "run.json"
    if not facts_path.is_file():
        raise UserError(f"{run}: no run.json in it; give the output folder of a run")
    where = json.loads(facts_path.read_text(encoding="utf-8"))["config"]["checkpoint"]["remote"]
    where = None if where is None else storage.absolute(where)
    root = run / "checkpoints"
    here = files.steps_in(root)
    try:
        there, remote_fault = ([] if where is None else remote.steps_in(where)), None
    except (OSError, UserError) as error:
        there, remote_fault = [], str(error)
    found = [
        _look_at(root, step, where, here=step in here, there=step in there, quick=quick, copies=copies)
        for step in sorted({*here, *there})
    ]
    for path in sorted(root.glob("step-*.tmp")):
        step = int(path.name.split("-")[1].split(".")[0])
        found.append(Checkpoint(name=path.name, step=step, here=UNFINISHED, copy=None))
    return Found(run=str(run), remote=where, checkpoints=tuple(found), remote_fault=remote_fault)


def _look_at(
    root: Path, step: int, where: str | None, *, here: bool, there: bool, quick: bool, copies: bool
) -> Checkpoint:
    folder, faults, known = files.folder_of(root, step), [], dict[str, Any]()
    is_whole = is_copy_whole = False
    if here:
        fault = files.fault(folder, thorough=not quick) or _fault_of_content(folder, step)
        is_whole = fault is None
        if fault is None:
            known = _known(folder)
        else:
            faults.append(f"step-{step}: {fault}")
    if there:
        assert where is not None
        fault = remote.fault(where, step, thorough=copies)
        is_copy_whole = fault is None
        if fault is not None:
            faults.append(f"copy of step-{step}: {fault}")
    return Checkpoint(
        name=folder.name,
        step=step,
        here=_state(here, is_whole),
        copy=None if where is None else _state(there, is_copy_whole),
        faults=tuple(faults),
        **known,
    )


def _state(there: bool, whole: bool) -> str:
    return MISSING if not there else WHOLE if whole else DAMAGED


def _fault_of_content(folder: Path, step: int) -> str | None:
    """What a list that verifies may still lack: a rank's file, the index, its own step."""
    state = json.loads((folder / files.STATE_NAME).read_text(encoding="utf-8"))
    listed = {entry.path for entry in files.read_list(folder)}
    world_size = state["facts"]["world_size"]
    missing = {files.TENSORS_NAME, *map(files.rng_name, range(world_size))} - listed
    if missing:
        return f"{', '.join(sorted(missing))} is not in its list, and {world_size} ranks saved it"
    if state["progress"]["step"] != step:
        return f"{files.STATE_NAME} is of step {state['progress']['step']}"
    return None


def _known(folder: Path) -> dict[str, Any]:
    state = json.loads((folder / files.STATE_NAME).read_text(encoding="utf-8"))
    entries = files.read_list(folder)
    return {
        "saved_at": (folder / files.LIST_NAME).stat().st_mtime,
        "world_size": state["facts"]["world_size"],
        "examples_consumed": state["progress"]["examples_consumed"],
        "num_files": len(entries),
        "num_bytes": sum(entry.num_bytes for entry in entries),
    }


def to_json(found: Found) -> dict[str, Any]:
    newest = found.newest
    return {**asdict(found), "newest": None if newest is None else newest.step, "holds": found.holds}


def lines(found: Found, now: float | None = None) -> Iterator[str]:
    """For a person. now: seconds since 1970, for the ages."""
    if not found.checkpoints:
        yield f"{found.run}: no checkpoint yet"
    else:
        newest = found.newest
        yield f"{found.run}: " + (f"goes on from {newest.name}" if newest else "no checkpoint is whole")
        yield ""
        yield from _table(
            [_cells(item, found.remote, time.time() if now is None else now) for item in found.checkpoints],
            found.remote,
        )
        faults = [fault for item in found.checkpoints for fault in item.faults]
        yield from ["", *faults] if faults else []
    if found.remote_fault is not None:
        yield f"copies in {found.remote} cannot be listed: {found.remote_fault}"


def _table(rows: Sequence[Sequence[str]], where: str | None) -> Iterator[str]:
    head = ["checkpoint", "saved (UTC)", "age", "ranks", "examples", "files", "MB", "here"]
    if where is not None:
        head.append(f"copy in {where}")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    numbers = {2, 3, 4, 5, 6}
    for row in [head, *rows]:
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _cells(item: Checkpoint, where: str | None, now: float) -> list[str]:
    saved, age = "-", "-"
    if item.saved_at is not None:
        saved = time.strftime("%Y-%m-%d %H:%M", time.gmtime(item.saved_at))
        age = _age(now - item.saved_at)
    counts = [item.world_size, item.examples_consumed, item.num_files]
    size = "-" if item.num_bytes is None else f"{item.num_bytes / 1e6:,.1f}"
    cells = [item.name, saved, age, *("-" if count is None else f"{count:,}" for count in counts), size, item.here]
    return cells if where is None else [*cells, item.copy or "-"]


def _age(seconds: float) -> str:
    """59 -> 59 s, 90 -> 1 min, 7200 -> 2 h, 172800 -> 2 d: whole units, as one says it."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"
