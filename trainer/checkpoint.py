"""Save and resume a run: sharded weights and moments (Torch Distributed Checkpoint), and everything beside them.

    step-N/*.distcp, .metadata   model and optimizer; load onto any number of ranks
    step-N/rng-R.pt              random state of rank R
    step-N/state.json            progress, loader position, config, data set, code
    step-N/files.json            written last (checkpoint_files.py)

A save holds the training while its state is copied into host memory, and no longer:

    training     ──step──step──┤stage├──step──step──step──step──step──
    checkpoint_write.py              └─ write, hash, list, rename, rotate ─┐     one in flight
    copier.py                                                              └─ copy to checkpoint.remote

torch's own async_save covers the first two. We take its staging and its `save`, in a thread of ours: hashing, listing
and renaming belong to the same flight and to the same exchange between ranks, and one thread and one stager for the
whole run keep host memory flat (pytorch#170163).

<output> must be one folder for all ranks: a shared file system where there are several nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from manifests import storage
from manifests.errors import UserError
from manifests.yaml_config import ConfigError
from trainer import checkpoint_files as files
from trainer import checkpoint_write, remote, rng
from trainer.background import Background
from trainer.checkpoint_write import StagedSave
from trainer.config import CheckpointConfig
from trainer.copier import Copier
from trainer.parallel import Ranks
from trainer.progress import Progress

FORMAT = "shardmill-checkpoint/1"
# How long a start waits for the remote to say what it holds. Its own retries against a store that accepts and never
# answers would take eight minutes; the supervisor's next start is the better retry.
_REMOTE_LOOK_S = 60.0
# A copy that takes longer at the end of a run is said to be what is being waited for.
_QUIET_COPY_S = 10


class OutOfReachError(RuntimeError):
    """The remote copies could not be looked at and there is no checkpoint here: whether the run is new is not known."""


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
        """root: <output>/checkpoints. say: prints a line, from any thread. clock: seconds, monotonic."""
        self._root, self._config, self._ranks, self._say, self._clock = root, config, ranks, say, clock
        self._ranks_beside = ranks.beside()
        self._writer = Background("checkpoint write")
        self._stager = _make_stager(ranks.device)
        self._remote = None if config.remote is None else storage.absolute(config.remote)
        self._copier = None
        if self._remote is not None and ranks.is_first:
            self._copier = Copier(root, self._remote, config.keep, say)
        self._last_time = clock()
        self._last_step: int | None = None
        self._num_skipped = 0

    @property
    def is_due_by_time(self) -> bool:
        """Whether this rank's clock says so; the loop follows rank 0's. Held back while a save is in flight."""
        if self._config.minutes is None or self._writer.busy:
            return False
        return self._clock() - self._last_time >= 60 * self._config.minutes

    def is_due_by_steps(self, step: int) -> bool:
        return self._config.steps is not None and step % self._config.steps == 0

    def find(self, entering: Callable[[str], None] = lambda _: None) -> tuple[Saved, Path] | None:
        """The newest valid checkpoint, local or remote, and its folder; None for a fresh run. Clears debris.

        A remote out of reach costs one line where a local one is valid. entering: called with each phase's name. Raises
        OutOfReachError where none is valid here and the remote cannot be looked at, ConfigError where checkpoints
        exist and none verifies: starting over would hide the loss.
        """
        entering("looking for checkpoints")
        here, there, unseen = self._ranks.decide(self._candidates)
        if unseen is not None and here:
            self._say(f"warning: {self._remote} was not looked at: {unseen}; only the checkpoints here are considered")
        for step in sorted({*here, *there}, reverse=True):
            entering(f"taking checkpoint step-{step}")
            if (step in here and self._is_valid(step)) or (step in there and self._is_fetched(step)):
                folder = files.folder_of(self._root, step)
                self._last_step = step
                if self._copier is not None and step not in there:
                    self._copier.copy(step)
                return self._read_state(folder), folder
        if unseen is not None:
            raise OutOfReachError(
                f"no valid checkpoint under {self._root}, and {self._remote} was not looked at: {unseen};"
                " run again when it answers, or unset checkpoint.remote to start from the beginning"
            )
        if here or there:
            raise ConfigError(
                "output",
                f"no checkpoint of {', '.join(f'step-{step}' for step in sorted({*here, *there}))} under {self._root}"
                f"{'' if self._remote is None else f' and {self._remote}'} is valid;"
                " move the folder away to start from the beginning",
            )
        return None

    def _read_state(self, folder: Path) -> Saved:
        text = self._ranks.decide(lambda: (folder / files.STATE_NAME).read_text(encoding="utf-8"))
        return Saved.from_json(json.loads(text), folder)

    def _candidates(self) -> tuple[list[int], list[int], str | None]:
        """Steps with a local folder, steps with a whole remote copy, and why the remote could not be looked at."""
        self._root.mkdir(parents=True, exist_ok=True)
        files.clear_debris(self._root)
        here = files.steps_in(self._root)
        where, found = self._remote, list[int]()
        if where is None:
            return here, found, None
        self._say(f"looking for checkpoints at {where}")
        look = Background("checkpoint look")  # a dead mount or endpoint holds its thread, not the start
        look.start(lambda: found.extend(remote.steps_in(where)))
        if not look.wait(_REMOTE_LOOK_S):
            return here, [], f"no answer within {_REMOTE_LOOK_S:g} s"
        if isinstance(look.failure, OSError | UserError):
            return here, [], str(look.failure)
        if look.failure is not None:
            raise look.failure
        return here, found, None

    def _is_valid(self, step: int) -> bool:
        """Each rank hashes its share of the files, so that 112 GB do not wait for one of them."""
        folder, ranks = files.folder_of(self._root, step), self._ranks
        reason = ranks.share(files.fault(folder, thorough=False) if ranks.is_first else None)
        if reason is None:
            mine = files.read_list(folder)[ranks.rank :: ranks.world_size]
            faults = ranks.gather([files.fault_of_file(folder, entry, thorough=True) for entry in mine])
            reason = next((found for part in faults for found in part if found is not None), None)
        if reason is not None:
            self._say(f"checkpoint step-{step} is not valid: {reason}; looking at older ones")
        return reason is None

    def _is_fetched(self, step: int) -> bool:
        """Whether rank 0 brought the remote copy of `step` here, whole."""
        where = self._remote
        assert where is not None
        self._say(f"fetching checkpoint step-{step} from {where}")
        reason = self._ranks.decide(lambda: remote.fetch(where, step, self._root))
        if reason is not None:
            self._say(f"the copy of step-{step} at {where} is not valid: {reason}")
        return reason is None

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
            rng.restore(torch.load(folder / files.rng_name(self._ranks.rank), weights_only=True))
        else:
            rng.seed_all(seed, saved.progress.step, self._ranks.rank)

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: Saved,
        *,
        must: bool,
        before_rename: Callable[[], None],
    ) -> None:
        """Stage <root>/step-N and have it written beside the training; durable after `finish`.

        While an earlier save is in flight this one is skipped and counted, or, where it `must` be, waits for it. A step
        already saved is left alone. before_rename: called on rank 0 in the writing thread.
        """
        step, started = state.progress.step, self._clock()
        if self._last_step == step and not (must and self._has_failed()):
            return
        if self._ranks.share(self._writer.busy and not must):
            self._num_skipped += 1
            self._say(
                f"checkpoint step-{step} skipped: step-{self._last_step} is still being written"
                f" ({self._num_skipped} skipped so far)"
            )
            return
        # Rank 0's part of a write ends last; another rank's thread is here at its very last line.
        self._writer.wait()
        weights, moments = get_state_dict(model, optimizer)
        staged = StagedSave(
            step=step,
            tensors=self._stager.stage({"model": weights, "optimizer": moments}),  # type: ignore[arg-type]  # a Future only when asked for one
            rng=rng.capture(),
            state=state.to_json(),
        )
        self._writer.start(lambda: self._write(staged, started, before_rename))
        self._last_step, self._last_time = step, started

    def _write(self, staged: StagedSave, started: float, before_rename: Callable[[], None]) -> None:
        """In the writing thread, on every rank."""
        try:
            num_bytes = checkpoint_write.write(self._root, staged, self._ranks_beside, before_rename)
        except RuntimeError as error:  # RankError, and what torch raises where a rank is gone
            self._say(f"warning: step-{staged.step} was not saved: {error}; earlier checkpoints stand")
            raise
        folder = files.folder_of(self._root, staged.step)
        self._say(f"saved {folder} ({num_bytes / 1e6:,.1f} MB in {self._clock() - started:.1f} s)")
        if self._ranks.is_first:
            self._rotate(staged.step)
            if self._copier is not None:
                self._copier.copy(staged.step)

    def _rotate(self, newest: int) -> None:
        spare = self._copier.copying if self._copier else None
        try:
            files.rotate(self._root, self._config.keep, newest=newest, spare=spare)
        except OSError as error:
            self._say(f"warning: older checkpoints were not removed: {error}")

    def _has_failed(self) -> bool:
        """Whether the last save failed on any rank. It is in flight nowhere afterwards."""
        self._writer.wait()
        return bool(self._ranks.sum([self._writer.failure is not None])[0])

    def finish(self) -> bool:
        """Wait for the save in flight, if any; whether the last one became durable."""
        return not self._has_failed()

    def finish_copies(self, alive: Callable[[], None]) -> None:
        """Wait until the remote holds what it was promised; `alive` is called every second or so meanwhile."""
        waited_s = 0
        while self._ranks.sum([self._copier is not None and not self._copier.wait(1.0)])[0]:
            alive()
            waited_s += 1
            if waited_s == _QUIET_COPY_S:
                self._say(f"waiting for the last copy to {self._remote}")

    def let_go(self, timeout_s: float) -> bool:
        """Not collective. Whether no thread of ours works in the folder any more, after at most `timeout_s` seconds."""
        return self._writer.wait(timeout_s) and (self._copier is None or self._copier.wait(timeout_s))


def _make_stager(device: torch.device) -> DefaultStager:
    """Copies shards into host memory that it keeps for the next save; pinned where a GPU copies into it."""
    cuda = device.type == "cuda"
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=cuda, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=cuda
        )
    )
