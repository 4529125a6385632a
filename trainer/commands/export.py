"""`python -m trainer export RUN`: a checkpoint as a Hugging Face folder, by one process."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from manifests.errors import UserError
from manifests.manifest import load
from trainer import checkpoint_files as files
from trainer.checkpoint import Saved
from trainer.config import ModelConfig
from trainer.export import write_model
from trainer.model import plan_model, skeleton
from trainer.parallel import materialize


def export(run: Path, *, step: int | None, target: Path | None, manifest: str | None) -> tuple[int, Path]:
    """Write what the run would have written after `step`, None: after its newest whole checkpoint; (step, folder).

    manifest: of the data set, whose tokenizer goes along; None: where the run read it. Raises UserError where there is
    no such checkpoint, it is damaged, or the data set is another one.
    """
    found = _newest(run) if step is None else _checked(run, step)
    folder = files.folder_of(run / "checkpoints", found)
    if target is None:
        target = run / ("final" if step is None else f"export-{step}")
    facts = Saved.from_json(json.loads((folder / files.STATE_NAME).read_text(encoding="utf-8")), folder).facts
    dataset = load(manifest or facts["manifest_url"])
    if dataset.manifest.digest != facts["manifest"]["digest"]:
        raise UserError(
            f"--manifest: {dataset.url} has digest {dataset.manifest.digest} and step-{found} was trained on"
            f" {facts['manifest']['digest']}; give that version"
        )
    plan = plan_model(ModelConfig(config=facts["model"]), dataset.manifest)
    model = skeleton(plan)
    materialize(model, torch.device("cpu"), {})
    weights = get_model_state_dict(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # just so: one process
        load_sharded({"model": weights}, checkpoint_id=folder, no_dist=True)
    write_model(weights, plan, dataset, target)
    return found, target


def _checked(run: Path, step: int) -> int:
    root = run / "checkpoints"
    if step not in files.steps_in(root):
        there = ", ".join(map(str, files.steps_in(root))) or "none"
        raise UserError(f"--step: {root} has no step-{step}; there are: {there}")
    reason = files.fault(files.folder_of(root, step), thorough=True)
    if reason is not None:
        raise UserError(f"--step: step-{step} under {root} is damaged: {reason}; give another")
    return step


def _newest(run: Path) -> int:
    root = run / "checkpoints"
    for step in reversed(files.steps_in(root)):
        if files.fault(files.folder_of(root, step), thorough=True) is None:
            return step
    raise UserError(f"{run}: no whole checkpoint under {root}; give the output folder of a run that has saved")
