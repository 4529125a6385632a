"""Everything a run holds, put together once: from a config and a data set to a model that stands where it left off."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from loader import Loader
from manifests import storage
from manifests.code_version import code_version
from manifests.manifest import Dataset
from manifests.yaml_config import ConfigError, as_plain
from trainer import announce, compatibility, rng
from trainer.attention import choices
from trainer.checkpoint import Checkpoints, Saved
from trainer.config import MeshConfig, TrainConfig
from trainer.evaluate import ValidationSet, evaluate
from trainer.facts import StepFacts
from trainer.families import try_family
from trainer.hardware import device_name, peak_flops
from trainer.model import (
    ModelPlan,
    build_model,
    choose_cross_entropy,
    fill,
    num_parameters,
    plan_model,
    use_cross_entropy,
)
from trainer.observer import Observer, open_observer
from trainer.optimizer import make_optimizer
from trainer.output_lock import OutputLock
from trainer.parallel import Ranks, make_mesh, shard_model
from trainer.plan.cluster import Cluster, Cut
from trainer.plan.mesh import choose_replicas
from trainer.plan.shape import Shape, shape_of
from trainer.progress import Progress
from trainer.schedule import Schedule, scaled_rate, warmup_examples
from trainer.signals import EXIT_RESUME_ME, StopSignal
from trainer.stream import StepStream, batch_digest
from trainer.update_rules import update_rule
from trainer.watchdog import Watchdog

# A first try must make many steps even of a small corpus; a real run states its batch.
_DEFAULT_GLOBAL_BATCH = 8
# A write that takes longer is stuck. The reference case's 112 GB take 5 minutes at 0.4 GB/s.
LONGEST_WRITE_MINUTES = 60.0
# How long a run that fails waits for its threads to leave the output folder.
_GOODBYE_S = 5.0


@dataclass(kw_only=True)
class Run:
    """The parts of a run; `progress` is where it stands. unvalidated: a step whose validation a signal cut short."""

    config: TrainConfig
    dataset: Dataset
    ranks: Ranks
    output: Path
    plan: ModelPlan
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    loader: Loader
    stream: StepStream
    validation: ValidationSet
    checkpoints: Checkpoints
    watchdog: Watchdog
    observer: Observer
    flops_per_token: float
    peak_flops: float | None
    lock: OutputLock
    facts: dict[str, Any]
    num_steps: int
    global_batch: int
    progress: Progress
    unvalidated: StepFacts | None
    say: Callable[[str], None]

    @property
    def tokens_in_batch(self) -> int:
        return self.global_batch * self.dataset.manifest.example.seq_len

    def digest(self, examples: list[tuple[int, int]]) -> str:
        shards = self.dataset.manifest.splits["train"].shards
        return batch_digest(examples, [shard.sha256 for shard in shards])

    def _validates_after(self, step: int) -> bool:
        every = self.config.validation.every_steps
        return bool(self.validation.num_examples) and (
            step == self.num_steps or (every is not None and step % every == 0)
        )

    def conclude(self, facts: StepFacts, stop: StopSignal) -> bool:
        """Collective: validate where it is the step's turn, and write its row and line.

        False where a signal cut the validation short: the row is then still owed, the checkpoint made here says so, and
        the resumed run pays it first, so that its metrics are those of a run that was never stopped.
        """
        self.unvalidated = None
        if self._validates_after(facts.step):
            with self.observer.spending("evaluation"):
                validation = evaluate(self.model, self.validation, self.ranks, lambda: self._is_asked(stop))
            if validation is None:
                self.unvalidated = facts
                self.save(must=True)
                return False
            facts = replace(facts, validation=validation)
        self.observer.concluded(facts)
        return True

    def _is_asked(self, stop: StopSignal) -> bool:
        self.watchdog.beat()
        return stop.asked

    def stopped(self, stop: StopSignal) -> int:
        """Collective: the exit code of a run that was asked to stop and has begun to save, once that is done."""
        if not self.finish_saving():
            return 1
        self.observer.ended(stop.name or "a signal")
        self.say(
            f"stopped by {stop.name or 'a signal'} after step {self.progress.step}; the same command resumes there"
        )
        return EXIT_RESUME_ME

    def finish_saving(self) -> bool:
        """Collective: wait for the last save and its copy; whether it is durable here."""
        self.watchdog.beat(extra_minutes=LONGEST_WRITE_MINUTES)
        with self.observer.spending("save"):
            is_saved = self.checkpoints.finish()
            self.checkpoints.finish_copies(self.watchdog.beat)
        return is_saved

    def close(self) -> None:
        self.watchdog.rest()
        self.loader.close()
        # A thread that still writes there holds the lock until the process ends.
        if self.checkpoints.let_go(_GOODBYE_S):
            self.observer.close()
            self.lock.release()

    def save(self, *, must: bool) -> None:
        """Collective: begin a checkpoint of where the run stands, its metrics made durable first."""
        if must:  # it waits for the one in flight
            self.watchdog.beat(extra_minutes=LONGEST_WRITE_MINUTES)
        with self.observer.spending("save"):
            owed = None if self.unvalidated is None else asdict(self.unvalidated)
            state = Saved(progress=self.progress, loader=self.loader.state_dict(), facts=self.facts, unvalidated=owed)
            self.checkpoints.save(self.model, self.optimizer, state, must=must, before_rename=self.observer.sync)


def prepare(config: TrainConfig, dataset: Dataset, ranks: Ranks, watchdog: Watchdog) -> Run:
    """Collective. Builds or resumes; says on rank 0 what it did. Raises UserError where the request cannot be met."""
    say = _speaker(ranks)
    watchdog.enter("opening the output folder and the data set")
    _make_deterministic(ranks.device)
    output = _output_folder(config, dataset)
    lock = OutputLock(output)
    mark = ranks.decide(lock.acquire)
    ranks.all_or_none(lambda: lock.look(mark, ranks.rank))
    update_rule(config.optimizer)  # refused before the model is built
    plan = plan_model(config.model, dataset.manifest)
    loader = _make_loader(config, dataset, ranks)
    global_batch = loader.state_dict()["global_batch"]
    config = replace(config, global_batch=global_batch)
    checkpoints = Checkpoints(output / "checkpoints", config.checkpoint, ranks, say, time.monotonic)
    facts = _facts(config, dataset, ranks, plan)
    found = checkpoints.find(watchdog.enter)
    saved, folder = found if found is not None else (None, None)
    notes = compatibility.check(saved.facts, facts) if saved is not None else []
    if saved is not None:
        loader.load_state_dict(saved.loader)
    num_steps = config.steps if config.steps is not None else loader.steps_per_epoch

    announce.data(say, dataset)
    watchdog.enter("trying the architecture")
    family = ranks.decide(lambda: try_family(plan, choices(config.attention, ranks.device), ranks.device))
    watchdog.enter("building the model")
    model = build_model(plan, attention=family.attention)
    shape = shape_of(model)
    mesh = make_mesh(_choose_mesh(config, shape, dataset, ranks, say), ranks)
    say(f"model: {num_parameters(model):,} parameters, {plan.words}")
    announce.architecture(say, plan.config, family)
    use_cross_entropy(model, choose_cross_entropy(config.cross_entropy, plain_head=family.plain_head))
    shard_model(
        model,
        mesh,
        config.precision,
        offload=config.mesh.offload,
        recompute=config.recompute,
        compiled=config.compile,
    )
    if found is None:
        watchdog.enter("filling the weights")
        fill(model, plan, seed=config.seed)
    model.train()
    optimizer = make_optimizer(model, config.optimizer)
    rng.seed_all(config.seed, 0, ranks.rank)
    if found is not None:
        watchdog.enter("loading the checkpoint")
        checkpoints.load(found, model, optimizer, seed=config.seed)
    progress = (saved.progress if saved is not None else Progress()).in_precision(config.precision)
    announce.start(say, folder, progress, notes)
    announce.batch(say, config, loader, dataset, ranks, num_steps)

    return Run(
        config=config,
        dataset=dataset,
        ranks=ranks,
        output=output,
        plan=plan,
        model=model,
        optimizer=optimizer,
        schedule=_make_schedule(config, global_batch, num_steps, say),
        loader=loader,
        stream=StepStream(loader),
        validation=ValidationSet(dataset=dataset, micro_batch=config.micro_batch),
        checkpoints=checkpoints,
        watchdog=watchdog,
        flops_per_token=shape.flops_per_token(dataset.manifest.example.seq_len),
        peak_flops=_peak_of_all(ranks, config.precision),
        observer=open_observer(config, output, facts, progress, ranks, num_steps, say),
        lock=lock,
        facts=facts,
        num_steps=num_steps,
        global_batch=global_batch,
        progress=progress,
        unvalidated=StepFacts(**saved.unvalidated) if saved is not None and saved.unvalidated is not None else None,
        say=say,
    )


def _speaker(ranks: Ranks) -> Callable[[str], None]:
    """Prints a line on rank 0 and nothing elsewhere; the loader's notes go the same way."""

    def say(line: str) -> None:
        if ranks.is_first:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    notes = logging.getLogger("loader")
    notes.setLevel(logging.INFO if ranks.is_first else logging.WARNING)
    if not notes.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        notes.addHandler(handler)
        notes.propagate = False
    return say


def _make_deterministic(device: torch.device) -> None:
    """The same bits every time. On CUDA an operation that has no deterministic form warns, and the run goes on."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    # It would also fill every torch.empty with NaN: a debugging aid that costs a pass over memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # missing from torch's stubs


def _output_folder(config: TrainConfig, dataset: Dataset) -> Path:
    output = config.output or f"runs/{dataset.manifest.name}-{dataset.manifest.version}"
    if "://" in output:
        raise ConfigError(
            "output", f"{output} is not a folder; give a local or shared one, and checkpoint.remote for copies"
        )
    return Path(output)


def _make_loader(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> Loader:
    split = dataset.manifest.splits.get("train")
    if split is None or split.num_examples == 0:
        raise ConfigError(dataset.url, "its train split holds no examples; build the data set from more text")
    settings = config.loader
    return Loader(
        dataset,
        split="train",
        global_batch=config.global_batch or min(_DEFAULT_GLOBAL_BATCH, split.num_examples),
        rank=ranks.rank,
        world_size=ranks.world_size,
        seed=config.seed,
        micro_batch=config.micro_batch,
        num_workers=settings.num_workers,
        cache_dir=settings.cache_dir,
        cache_bytes=settings.cache_bytes,
        lanes=settings.lanes,
        window_shards=settings.window_shards,
    )


def _make_schedule(config: TrainConfig, global_batch: int, num_steps: int, say: Callable[[str], None]) -> Schedule:
    settings, total = config.schedule, num_steps * global_batch
    peak = scaled_rate(config.lr, batch=global_batch, reference=settings.reference_batch, rule=settings.scaling)
    if peak != config.lr:
        say(
            f"learning rate {config.lr:g} -> {peak:g}: {settings.scaling} rule, batch {global_batch},"
            f" reference batch {settings.reference_batch}"
        )
    return Schedule(
        peak=peak,
        total=total,
        warmup=warmup_examples(total=total, examples=settings.warmup_examples, fraction=settings.warmup_fraction),
        shape=settings.shape,
        floor_fraction=settings.floor_fraction,
        decay_fraction=settings.decay_fraction,
    )


def _facts(config: TrainConfig, dataset: Dataset, ranks: Ranks, plan: ModelPlan) -> dict[str, Any]:
    """What a checkpoint says about the run that wrote it."""
    manifest = dataset.manifest
    return {
        "config": as_plain(config),
        "manifest": {"name": manifest.name, "version": manifest.version, "digest": manifest.digest},
        "manifest_url": storage.absolute(dataset.url),
        "model": plan.architecture,
        "world_size": ranks.world_size,
        "code": ranks.decide(code_version),
    }


def _choose_mesh(
    config: TrainConfig, shape: Shape, dataset: Dataset, ranks: Ranks, say: Callable[[str], None]
) -> MeshConfig:
    """The mesh asked for; where replicate is left open and there are several nodes of GPUs, the planner's."""
    inside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    left_open = config.mesh.replicate is None and config.mesh.shard is None
    if not left_open or ranks.device.type != "cuda" or ranks.world_size == inside:
        return config.mesh
    cluster = Cluster(
        num_nodes=ranks.world_size // inside,
        gpus_per_node=inside,
        gpu_bytes=torch.cuda.get_device_properties(ranks.device).total_memory,
    )
    assert config.global_batch is not None  # prepare has filled it in
    cut = Cut(
        seq_len=dataset.manifest.example.seq_len,
        global_batch=config.global_batch,
        micro_batch=config.micro_batch,
        recompute=config.recompute,
        cross_entropy="plain" if config.cross_entropy == "plain" else "chunked",
        compute_bytes=4 if config.precision == "fp32" else 2,
        optimizer=config.optimizer.name,
    )
    replicas, reason = choose_replicas(shape, cluster, cut)
    say(f"mesh: {replicas} x {ranks.world_size // replicas}: {reason}")
    return replace(config.mesh, replicate=replicas)


def _peak_of_all(ranks: Ranks, precision: str) -> float | None:
    """FLOP/s of all devices together; None where one of them is not in the table."""
    peaks = ranks.gather(peak_flops(device_name(ranks.device), precision))
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if len(known) == len(peaks) else None
