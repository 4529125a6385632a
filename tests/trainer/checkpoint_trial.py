"""A model of one matrix whose every value is the step, and its checkpoints: enough to see what a save wrote."""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from trainer import checkpoint_write
from trainer.checkpoint import Checkpoints, Saved
from trainer.config import CheckpointConfig, MeshConfig, OptimizerConfig
from trainer.optimizer import make_optimizer
from trainer.parallel import Ranks, make_mesh, process_group, shard_model
from trainer.progress import Progress

KEEP = 2


class Trial:
    """Saves by hand; `said` is what the checkpoints had to say."""

    def __init__(
        self, output: Path, ranks: Ranks, *, remote: Path | str | None = None, keep: int = KEEP, num_values: int = 8
    ) -> None:
        self.root, self.said = output / "checkpoints", list[str]()
        self.model = nn.Linear(num_values, 1, bias=False)
        shard_model(self.model, make_mesh(MeshConfig(), ranks), "fp32")
        self.optimizer = make_optimizer(self.model, OptimizerConfig())
        config = CheckpointConfig(keep=keep, remote=None if remote is None else str(remote))
        self.checkpoints = Checkpoints(self.root, config, ranks, self.said.append, time.monotonic)
        self._world_size = ranks.world_size

    def set_all(self, value: float) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(value)
                for moment in ("exp_avg", "exp_avg_sq"):
                    self.optimizer.state[parameter][moment].fill_(value)

    def save(self, step: int, *, must: bool = True, before_rename: Callable[[], None] = lambda: None) -> None:
        self.set_all(step)
        self.save_as_it_is(step, must=must, before_rename=before_rename)

    def save_as_it_is(self, step: int, *, must: bool = True, before_rename: Callable[[], None] = lambda: None) -> None:
        state = Saved(progress=Progress(step=step), loader={}, facts={"world_size": self._world_size}, unvalidated=None)
        self.checkpoints.save(self.model, self.optimizer, state, must=must, before_rename=before_rename)

    def finish(self) -> bool:
        is_saved = self.checkpoints.finish()
        self.checkpoints.finish_copies(lambda: None)
        return is_saved

    def resume(self) -> int | None:
        """The step gone on from, after a look at the values it brought; None where there was none."""
        found = self.checkpoints.find()
        if found is None:
            return None
        self.set_all(-1.0)
        self.checkpoints.load(found, self.model, self.optimizer, seed=0)
        step = found[0].progress.step
        for parameter in self.model.parameters():
            for tensor in (parameter, *(self.optimizer.state[parameter][name] for name in ("exp_avg", "exp_avg_sq"))):
                assert tensor.full_tensor().unique().tolist() == [step]
        return step


def values_of(folder: Path, num_values: int = 8) -> dict[str, list[float]]:
    """The distinct values a checkpoint of a Trial holds, read without a process group."""
    names = {
        "weights": "model.weight",
        "exp_avg": "optimizer.state.weight.exp_avg",
        "exp_avg_sq": "optimizer.state.weight.exp_avg_sq",
    }
    state = {key: torch.full((1, num_values), -1.0) for key in names.values()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # just so
        load_sharded(state, checkpoint_id=folder, no_dist=True)
    return {name: state[key].unique().tolist() for name, key in names.items()}


def save_up_to(arguments: list[str]) -> int:
    """For forked_ranks: go on from what is there, or from 0, and save every ten steps up to the given one."""
    output, last_step = Path(arguments[0]), int(arguments[1])
    with process_group() as ranks:
        trial = Trial(output, ranks, remote=output / "remote")
        for step in range((trial.resume() or 0) + 10, last_step + 10, 10):
            trial.save(step)
            assert trial.finish()
    return 0


def save_many(arguments: list[str]) -> int:
    """For forked_ranks: save 24 MB 20 times, and print the process's resident bytes after the 5th and the last."""
    with process_group() as ranks:
        trial = Trial(Path(arguments[0]), ranks, num_values=2_000_000)
        for step in range(1, 21):
            trial.save_as_it_is(step)
            assert trial.finish()
            if step in (5, 20):
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                sys.stdout.write(f"{pages * resource.getpagesize()}\n")
    return 0


def save_where_rank_1_fails_once(arguments: list[str]) -> int:
    """For forked_ranks: step 20 is refused by rank 1's disk alone, 10 and 30 are not."""
    with process_group() as ranks:
        trial = Trial(Path(arguments[0]), ranks)
        for step in (10, 20, 30):
            with pytest.MonkeyPatch.context() as patched:
                if (step, ranks.rank) == (20, 1):
                    patched.setattr(checkpoint_write, "_write_rng", _full_disk)
                trial.save(step)
                assert trial.finish() == (step != 20)
                expected = "warning: step-20 was not saved: rank 1: OSError: [Errno 28] No space left on device"
                assert trial.said[-1].startswith(expected) == (step == 20), trial.said
    return 0


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")
