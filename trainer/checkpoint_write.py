"""The part of a save that runs beside the training: staged tensors -> a whole folder under its final name.

    state.json -> *.distcp, .metadata -> rng-R.pt -> files.json -> rename -> rotation      each ended by all ranks

A rank that fails at one of these (a full disk, say) makes all ranks give the save up together, the unfinished folder is
removed, and the checkpoints there were before stay.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainer import checkpoint_files as files
from trainer.parallel import RankError, Ranks


@dataclass(frozen=True, kw_only=True)
class StagedSave:
    """All that a save writes, out of the training's reach.

    tensors: model and optimizer in host memory, this rank's shards. rng: this rank's. state: for state.json.
    """

    step: int
    tensors: dict[str, Any]
    rng: dict[str, Any]
    state: dict[str, Any]


def write(root: Path, staged: StagedSave, ranks: Ranks, before_rename: Callable[[], None]) -> int:
    """Collective. Write <root>/step-N whole; its size in bytes. before_rename: what must be durable first, on rank 0.

    Raises RankError on all ranks where some rank failed; nothing of the save is left then.
    """
    unfinished = files.unfinished_folder_of(root, staged.step)
    try:
        ranks.together(lambda: _begin(unfinished, staged.state) if ranks.is_first else None)
        _write_tensors(unfinished, staged.tensors, ranks)
        ranks.together(lambda: _write_rng(unfinished / files.rng_name(ranks.rank), staged.rng))
        entries = _list(unfinished, ranks)
        ranks.together(lambda: _publish(root, staged.step, entries, before_rename) if ranks.is_first else None)
    except RankError:
        if ranks.is_first:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return sum(entry.num_bytes for entry in entries)


def _begin(unfinished: Path, state: dict[str, Any]) -> None:
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / files.STATE_NAME).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")


def _write_tensors(unfinished: Path, tensors: dict[str, Any], ranks: Ranks) -> None:
    try:
        save_sharded(tensors, checkpoint_id=unfinished, process_group=ranks.group)
    except CheckpointException as error:  # on all ranks, with what each met
        reasons = [f"rank {rank}: {type(met).__name__}: {met}" for rank, (met, _) in sorted(error.failures.items())]
        raise RankError("; ".join(reasons)) from error


def _write_rng(path: Path, state: dict[str, Any]) -> None:
    with path.open("wb") as stream:
        torch.save(state, stream)


def _list(unfinished: Path, ranks: Ranks) -> list[files.FileEntry]:
    """Every file with size and sha256. Each rank reads what it wrote itself, out of its node's page cache."""
    parts = ranks.together(lambda: [files.hash_file(unfinished, name) for name in _written_by(ranks.rank, unfinished)])
    return [entry for part in parts for entry in part]


def _written_by(rank: int, unfinished: Path) -> list[str]:
    """torch names a rank's tensors __<rank>_<number>.distcp; a rank whose shards another one writes has none."""
    of_all = [files.STATE_NAME, files.TENSORS_NAME] if rank == 0 else []
    return [*of_all, files.rng_name(rank), *sorted(path.name for path in unfinished.glob(f"__{rank}_*.distcp"))]


def _publish(root: Path, step: int, entries: list[files.FileEntry], before_rename: Callable[[], None]) -> None:
    unfinished = files.unfinished_folder_of(root, step)
    unlisted = set(files.files_in(unfinished)) - {entry.path for entry in entries}
    assert not unlisted, f"{sorted(unlisted)} would not be in the list of {unfinished}"
    files.write_list(unfinished, entries)
    reason = files.fault(unfinished, thorough=False)
    if reason is not None:  # another rank wrote it elsewhere
        raise OSError(f"{reason}; is {root} one folder for all ranks?")
    before_rename()
    files.publish(root, step)
