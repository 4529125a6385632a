"""Save and resume a run: sharded weights and moments (Torch Distributed Checkpoint), and everything beside them.

    step-N/*.distcp, .metadata   model and optimizer; load onto any number of ranks
    step-N/rng-R.pt              random state of rank R
    step-N/state.json            progress, loader position, config, data set, code
    step-N/files.json            written last (checkpoint_files.py)

<output> must be one folder for all ranks: a shared file system where there are several nodes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from manifests import storage
from manifests.errors import UserError
from manifests.yaml_config import ConfigError
from trainer import checkpoint_files as files
from trainer import remote, rng
from trainer.config import CheckpointConfig
from trainer.parallel import Ranks
from trainer.progress import Progress

FORMAT = "shardmill-checkpoint/1"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a checkpoint says beside its tensors: state.json, but for its format.

    loader: the position. facts: what compatibility.check compares. unvalidated: a step whose row is still owed.
    """

    progress: Progress
    loader: dict[str, Any]
    facts: dict[str, Any]
    unvalidated: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: dict[str, Any], where: Path) -> Saved:
        if value["format"] != FORMAT:
            raise ConfigError(
                str(where), f"its format is {value['format']}; this program reads {FORMAT}, use the other"
            )
        names = ("loader", "facts", "unvalidated")
        return cls(progress=Progress.from_json(value["progress"]), **{name: value[name] for name in names})


class Checkpoints:
    """The checkpoints of one run. Every method is collective: all ranks call it together."""

    def __init__(
        self, root: Path, config: CheckpointConfig, ranks: Ranks, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """root: <output>/checkpoints. say: prints a line. clock: seconds, monotonic."""
        self._root, self._config, self._ranks, self._say, self._clock = root, config, ranks, say, clock
        self._remote = None if config.remote is None else storage.absolute(config.remote)
        self._last_time = clock()
        self._last_step: int | None = None

    @property
    def is_due_by_time(self) -> bool:
        """Whether this rank's clock says so; the loop follows rank 0's."""
        return self._config.minutes is not None and self._clock() - self._last_time >= 60 * self._config.minutes

    def is_due_by_steps(self, step: int) -> bool:
        return self._config.steps is not None and step % self._config.steps == 0

    def find(self) -> tuple[Saved, Path] | None:
        """The newest valid checkpoint, local or remote, and its folder; None for a fresh run. Clears debris.

        Raises ConfigError where checkpoints exist and none verifies: starting over would hide the loss.
        """
        step = self._ranks.decide(self._choose)
        if step is None:
            return None
        folder = files.folder_of(self._root, step)
        state = json.loads(self._ranks.decide(lambda: (folder / "state.json").read_text(encoding="utf-8")))
        self._last_step = step
        return Saved.from_json(state, folder), folder

    def _choose(self) -> int | None:
        self._root.mkdir(parents=True, exist_ok=True)
        files.clear_debris(self._root)
        step = files.newest_valid(self._root, self._say)
        if self._remote is not None:
            copied = remote.newest(self._remote)
            if copied is not None and (step is None or copied > step):
                self._say(f"fetching checkpoint step-{copied} from {self._remote}")
                if remote.fetch(self._remote, copied, self._root, self._say):
                    step = copied
        if step is None and files.steps_in(self._root):
            raise ConfigError(
                str(self._root),
                f"none of its {len(files.steps_in(self._root))} checkpoints is valid; restore one, or"
                " move the folder away to start from the beginning",
            )
        return step

    def load(self, found: tuple[Saved, Path], model: nn.Module, optimizer: torch.optim.Optimizer, *, seed: int) -> None:
        """Weights, moments and random state of what `find` found into this run; hyperparameters stay as configured now.

        On another number of ranks the random state is derived from (seed, step, rank).
        """
        saved, folder = found
        settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        weights, moments = get_state_dict(model, optimizer)
        state: dict[str, Any] = {"model": weights, "optimizer": moments}
        load_sharded(state, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        for group, setting in zip(optimizer.param_groups, settings, strict=True):
            group.update(setting)
        if saved.facts["world_size"] == self._ranks.world_size:
            rng.restore(torch.load(folder / f"rng-{self._ranks.rank}.pt", weights_only=True))
        else:
            rng.seed_all(seed, saved.progress.step, self._ranks.rank)

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: Saved) -> None:
        """Write <root>/step-N whole, rotate, replicate; returns when it is durable. A step already saved is left alone.

        Cost: the training waits for the write; the copy to `remote` too.
        """
        step = state.progress.step
        if self._last_step == step:
            return
        started = self._clock()
        unfinished = files.unfinished_folder_of(self._root, step)
        if self._ranks.is_first:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            (unfinished / "state.json").write_text(json.dumps(state.to_json(), indent=2) + "\n", encoding="utf-8")
        torch.distributed.barrier()
        weights, moments = get_state_dict(model, optimizer)
        save_sharded({"model": weights, "optimizer": moments}, checkpoint_id=unfinished)
        torch.save(rng.capture(), unfinished / f"rng-{self._ranks.rank}.pt")
        torch.distributed.barrier()
        self._finish(unfinished, step, started)
        self._last_step, self._last_time = step, self._clock()

    def _finish(self, unfinished: Path, step: int, started: float) -> None:
        """List (each rank hashes its part), rename, rotate, replicate."""
        names = self._ranks.decide(lambda: files.files_in(unfinished))
        mine = [files.hash_file(unfinished, name) for name in names[self._ranks.rank :: self._ranks.world_size]]
        entries = [entry for part in self._ranks.gather(mine) for entry in part]
        if self._ranks.is_first:
            files.write_list(unfinished, entries)
            folder = files.publish(self._root, step)
            files.rotate(self._root, self._config.keep)
            num_bytes = sum(entry.num_bytes for entry in entries)
            self._say(f"saved {folder} ({num_bytes / 1e6:,.1f} MB in {self._clock() - started:.1f} s)")
            if self._remote is not None:
                self._replicate(folder, step, self._remote)
        torch.distributed.barrier()

    def _replicate(self, folder: Path, step: int, where: str) -> None:
        """A store out of reach must not stop the training: the local copy stands, the next save tries again."""
        try:
            remote.replicate(folder, step, where, self._config.keep)
        except (OSError, UserError) as error:
            self._say(f"warning: step-{step} was not copied to {where}: {error}; the next save tries again")
