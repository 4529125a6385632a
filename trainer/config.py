"""What a run is asked to do: one frozen dataclass a group of keys, checked when made.

Facts of the run (rank, world size, device, where the manifest lies) are not configuration and are not here.
"""

# ruff: noqa: RUF009 - key() is dataclasses.field with a line of explanation

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainer.strict import ConfigError, apply_settings, build, key, read_mapping


def _at_least(name: str, value: float | None, least: float) -> None:
    if value is not None and value < least:
        raise ConfigError(f"{name}: {value} is below {least}; give {least} or more")


def _fraction(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}: {value} is not a fraction; give a number from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Where the model comes from; with neither key a small Llama-shaped model from random weights."""

    path: str | None = key(None, "Hugging Face directory to fine-tune (config.json, safetensors)")
    config: str | dict[str, Any] | None = key(None, "random weights: a config.json, or its keys inline")

    def __post_init__(self) -> None:
        if self.path is not None and self.config is not None:
            raise ConfigError("path: stands beside config; give path to fine-tune or config for random weights")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate over consumed examples; schedule.py has the formulas."""

    shape: Literal["cosine", "linear", "constant"] = key("cosine", "after warm-up: cosine, linear or constant")
    warmup_examples: int | None = key(None, "warm-up in examples; stands before warmup_fraction")
    warmup_fraction: float = key(0.02, "warm-up as a fraction of all examples of the run")
    decay_fraction: float = key(0.0, "constant only: fraction at the end that falls to the floor")
    floor_fraction: float = key(0.1, "the last rate as a fraction of lr")
    reference_batch: int | None = key(None, "the global batch that lr was chosen for")
    scaling: Literal["linear", "sqrt", "none"] = key("none", "how lr follows global_batch / reference_batch")

    def __post_init__(self) -> None:
        _at_least("warmup_examples", self.warmup_examples, 0)
        _at_least("reference_batch", self.reference_batch, 1)
        for name in ("warmup_fraction", "decay_fraction", "floor_fraction"):
            _fraction(name, getattr(self, name))
        if self.decay_fraction and self.shape != "constant":
            raise ConfigError(f"decay_fraction: {self.decay_fraction} needs shape constant, and shape is {self.shape}")
        if self.scaling != "none" and self.reference_batch is None:
            raise ConfigError(f"scaling: {self.scaling} needs reference_batch; give the batch that lr was chosen for")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule; optimizer.py has the table of names."""

    name: str = key("adamw", "adamw")
    betas: tuple[float, float] = key((0.9, 0.95), "decay of the first and second moment")
    eps: float = key(1e-8, "added to the root of the second moment")
    weight_decay: float = key(0.1, "on matrices only: norms and biases are not decayed")
    clip_norm: float | None = key(1.0, "largest global gradient norm; null never clips")
    max_skipped: int = key(10, "this many non-finite steps in a row stop the run")

    def __post_init__(self) -> None:
        _at_least("weight_decay", self.weight_decay, 0.0)
        _at_least("max_skipped", self.max_skipped, 1)
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise ConfigError(f"clip_norm: {self.clip_norm} would stop all learning; give a positive norm or null")


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Ranks as a grid: replicate x shard. Parameters are split along shard and copied along replicate."""

    replicate: int = key(1, "copies of the model (usually nodes)")
    shard: int | None = key(None, "ranks a copy is split over; null: all ranks / replicate")

    def __post_init__(self) -> None:
        _at_least("replicate", self.replicate, 1)
        _at_least("shard", self.shard, 1)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When to save and what to keep; the last step is always saved."""

    minutes: float | None = key(25.0, "save when this long has passed; null: not by time")
    steps: int | None = key(None, "save every so many steps; null: not by steps")
    keep: int = key(3, "valid checkpoints kept")
    remote: str | None = key(None, "folder or s3://bucket/prefix that gets a copy of each")

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1)
        _at_least("keep", self.keep, 1)
        if self.minutes is not None and self.minutes <= 0:
            raise ConfigError(f"minutes: {self.minutes} is not a time; give a positive number or null")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Perplexity on the manifest's validation split; always after the last step."""

    every_steps: int | None = key(None, "also every so many steps; null: only after the last")

    def __post_init__(self) -> None:
        _at_least("every_steps", self.every_steps, 1)


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Passed to loader.Loader as they stand."""

    num_workers: int = key(0, "processes that build batches")
    cache_dir: str | None = key(None, "where shards from object storage are kept")
    cache_bytes: int | None = key(None, "bound of that cache")
    lanes: int | None = key(None, "lanes of the order; fixed for a run; null: global_batch")
    window_shards: int = key(1, "shuffle window in shards")

    def __post_init__(self) -> None:
        _at_least("num_workers", self.num_workers, 0)
        _at_least("lanes", self.lanes, 1)
        _at_least("window_shards", self.window_shards, 1)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything `trainer/train.py` can be told, --manifest apart."""

    model: ModelConfig = key(ModelConfig, "")
    output: str | None = key(None, "folder of the run; null: runs/<name>-<version>")
    seed: int = key(0, "order of the data, random weights, dropout")
    global_batch: int | None = key(None, "examples a step over all ranks; null: 8, or all if fewer")
    micro_batch: int = key(1, "examples a forward pass on one rank")
    steps: int | None = key(None, "optimizer steps; null: one epoch")
    lr: float = key(3e-4, "highest learning rate")
    schedule: ScheduleConfig = key(ScheduleConfig, "")
    optimizer: OptimizerConfig = key(OptimizerConfig, "")
    precision: Literal["fp32", "bf16"] = key("fp32", "of compute; master weights and reductions stay fp32")
    mesh: MeshConfig = key(MeshConfig, "")
    checkpoint: CheckpointConfig = key(CheckpointConfig, "")
    validation: ValidationConfig = key(ValidationConfig, "")
    loader: LoaderConfig = key(LoaderConfig, "")

    def __post_init__(self) -> None:
        _at_least("seed", self.seed, 0)
        _at_least("global_batch", self.global_batch, 1)
        _at_least("micro_batch", self.micro_batch, 1)
        _at_least("steps", self.steps, 1)
        if not 0.0 < self.lr < float("inf"):
            raise ConfigError(f"lr: {self.lr} cannot train; give a positive number such as 3e-4")


def load_config(path: Path | None, settings: Sequence[str]) -> TrainConfig:
    """The config file (none: defaults) with `--set` applied. Raises ConfigError, one line, naming the key."""
    mapping = {} if path is None else read_mapping(path)
    return build(TrainConfig, apply_settings(mapping, settings))
