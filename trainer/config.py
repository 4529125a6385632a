"""What a run is asked to do: one frozen dataclass a group of keys, checked when made.

Facts of the run (rank, world size, device, where the manifest lies) are not configuration and are not here.
"""

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from manifests.yaml_config import ConfigError, build, read_yaml_file, set_value, setting


def _at_least(name: str, value: float | None, least: float) -> None:
    if value is not None and value < least:
        raise ConfigError(name, f"{value} is below {least}; give {least} or more")


def _fraction(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(name, f"{value} is not a fraction; give a number from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Where the model comes from; with neither key a small Llama-shaped model from random weights."""

    path: str | None = setting("Hugging Face directory to fine-tune (config.json, safetensors)", None)
    config: str | dict[str, Any] | None = setting("random weights: a config.json, or its keys inline", None)

    def __post_init__(self) -> None:
        if self.path is not None and self.config is not None:
            raise ConfigError("path", "stands beside config; give path to fine-tune or config for random weights")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate over consumed examples; schedule.py has the formulas."""

    shape: Literal["cosine", "linear", "constant"] = setting("how the rate falls after warm-up", "cosine")
    warmup_examples: int | None = setting("warm-up in examples; stands before warmup_fraction", None)
    warmup_fraction: float = setting("warm-up as a fraction of all examples of the run", 0.02)
    decay_fraction: float = setting("constant only: fraction at the end that falls to the floor", 0.0)
    floor_fraction: float = setting("the last rate as a fraction of lr", 0.1)
    reference_batch: int | None = setting("the global batch that lr was chosen for", None)
    scaling: Literal["linear", "sqrt", "none"] = setting("how lr follows global_batch / reference_batch", "none")

    def __post_init__(self) -> None:
        _at_least("warmup_examples", self.warmup_examples, 0)
        _at_least("reference_batch", self.reference_batch, 1)
        for name in ("warmup_fraction", "decay_fraction", "floor_fraction"):
            _fraction(name, getattr(self, name))
        if self.decay_fraction and self.shape != "constant":
            raise ConfigError(
                "decay_fraction", f"{self.decay_fraction} needs shape constant, and shape is {self.shape}"
            )
        if self.scaling != "none" and self.reference_batch is None:
            raise ConfigError("scaling", f"{self.scaling} needs reference_batch; give the batch that lr was chosen for")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule; update_rules.py has the table of names."""

    name: str = setting("adamw, lion, or adafactor", "adamw")
    betas: tuple[float, float] | None = setting("decay of moments; null: adamw 0.9 0.95, lion 0.9 0.99", None)
    eps: float | None = setting("adamw: added to the root of the second moment; null: 1e-8", None)
    weight_decay: float = setting("on matrices only: norms and biases are not decayed", 0.1)
    clip_norm: float | None = setting("largest global gradient norm; null never clips", 1.0)
    max_skipped: int = setting("this many non-finite steps in a row stop the run", 10)

    def __post_init__(self) -> None:
        if self.betas is not None and not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ConfigError("betas", f"{list(self.betas)} are no decays; give two numbers from 0 to below 1")
        _at_least("eps", self.eps, 0.0)
        _at_least("weight_decay", self.weight_decay, 0.0)
        _at_least("max_skipped", self.max_skipped, 1)
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise ConfigError("clip_norm", f"{self.clip_norm} would stop all learning; give a positive norm or null")


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Ranks as a grid: replicate x shard. Parameters are split along shard and copied along replicate."""

    replicate: int | None = setting("copies; null: ranks / shard, or what the planner finds room for on CUDA", None)
    shard: int | None = setting("ranks a copy is split over; null: all ranks / replicate", None)
    offload: bool = setting("weights and moments in host memory: fits more, runs slower", False)

    def __post_init__(self) -> None:
        _at_least("replicate", self.replicate, 1)
        _at_least("shard", self.shard, 1)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When to save and what to keep; the last step is always saved."""

    minutes: float | None = setting("save when this long has passed; null: not by time", 25.0)
    steps: int | None = setting("save every so many steps; null: not by steps", None)
    keep: int = setting("valid checkpoints kept", 3)
    remote: str | None = setting("folder or s3://bucket/prefix that gets a copy of each", None)

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1)
        _at_least("keep", self.keep, 1)
        if self.minutes is not None and self.minutes <= 0:
            raise ConfigError("minutes", f"{self.minutes} is not a time; give a positive number or null")
        if self.remote == "":  # it would be the folder the command is run in
            raise ConfigError("remote", "is empty; give a folder or s3://bucket/prefix, or null for none")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Perplexity on the manifest's validation split; always after the last step."""

    every_steps: int | None = setting("also every so many steps; null: only after the last", None)

    def __post_init__(self) -> None:
        _at_least("every_steps", self.every_steps, 1)


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Passed to loader.Loader as they stand."""

    num_workers: int = setting("processes that build batches", 0)
    cache_dir: str | None = setting("where shards from object storage are kept", None)
    cache_bytes: int | None = setting("bound of that cache", None)
    lanes: int | None = setting("lanes of the order; fixed for a run; null: global_batch", None)
    window_shards: int = setting("shuffle window in shards", 1)

    def __post_init__(self) -> None:
        _at_least("num_workers", self.num_workers, 0)
        _at_least("lanes", self.lanes, 1)
        _at_least("window_shards", self.window_shards, 1)


@dataclass(frozen=True, kw_only=True)
class PrometheusConfig:
    """Figures for a monitoring system, from the first rank of each node; nothing is served unless asked for."""

    port: int | None = setting("serve /metrics on this port; null: do not", None)
    host: str = setting("address to serve on; 0.0.0.0 lets other machines read", "127.0.0.1")
    textfile: str | None = setting("rewrite this file each step, for node_exporter; ends in .prom", None)

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port <= 65_535:
            raise ConfigError("port", f"{self.port} is no port; give a number from 1 to 65535, or 0 for any free one")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything `trainer/train.py` can be told, --manifest apart."""

    model: ModelConfig = setting("where the model comes from", ModelConfig)
    output: str | None = setting("folder of the run; null: runs/<name>-<version>", None)
    seed: int = setting("order of the data, random weights, dropout", 0)
    global_batch: int | None = setting("examples a step over all ranks; null: 8, or all if fewer", None)
    micro_batch: int = setting("examples a forward pass on one rank", 1)
    steps: int | None = setting("optimizer steps; null: one epoch", None)
    lr: float = setting("highest learning rate", 3e-4)
    schedule: ScheduleConfig = setting("learning rate over consumed examples", ScheduleConfig)
    optimizer: OptimizerConfig = setting("the update rule", OptimizerConfig)
    hang_minutes: float | None = setting("no step for so long ends the rank with its stacks; null: never", 10.0)
    start_minutes: float | None = setting("the same for one phase before the first step", 30.0)
    precision: Literal["fp32", "bf16", "fp16"] = setting("of compute; master weights and reductions stay fp32", "fp32")
    recompute: Literal["none", "selective", "full"] = setting("activations made again in the backward pass", "none")
    compile: bool = setting("torch.compile, block by block", False)
    attention: Literal["auto", "sdpa", "flex", "eager"] = setting(
        "auto: flex on CUDA, sdpa on CPU, eager where the model has neither", "auto"
    )
    cross_entropy: Literal["auto", "plain", "chunked"] = setting("chunked never holds all logits", "auto")
    mesh: MeshConfig = setting("ranks = replicate x shard", MeshConfig)
    checkpoint: CheckpointConfig = setting("when to save, what to keep", CheckpointConfig)
    validation: ValidationConfig = setting("perplexity on the validation split", ValidationConfig)
    loader: LoaderConfig = setting("how batches are read", LoaderConfig)
    prometheus: PrometheusConfig = setting("figures for a monitoring system", PrometheusConfig)

    def __post_init__(self) -> None:
        _at_least("seed", self.seed, 0)
        _at_least("global_batch", self.global_batch, 1)
        _at_least("micro_batch", self.micro_batch, 1)
        _at_least("steps", self.steps, 1)
        for name in ("hang_minutes", "start_minutes"):
            minutes = getattr(self, name)
            if minutes is not None and minutes <= 0:
                raise ConfigError(name, f"{minutes} is not a time; give a positive number or null")
        if not 0.0 < self.lr < float("inf"):
            raise ConfigError("lr", f"{self.lr} cannot train; give a positive number such as 3e-4")


def load_config(path: Path | None, settings: Sequence[str]) -> TrainConfig:
    """The config file (none: defaults) with `--set` applied. Raises ConfigError, one line, naming the key."""
    values = {} if path is None else read_yaml_file(path)
    for assignment in settings:
        set_value(values, assignment)
    return build(TrainConfig, values)
