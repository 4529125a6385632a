"""The lines a run says before its first step: data, where it goes on, and how a step is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import PretrainedConfig

from loader import Loader
from manifests.manifest import Dataset
from trainer.config import TrainConfig
from trainer.families import Family
from trainer.parallel import Ranks
from trainer.progress import Progress
from trainer.router_loss import balance_words


def data(say: Callable[[str], None], dataset: Dataset) -> None:
    manifest = dataset.manifest
    digest, seq_len = manifest.digest[:19], manifest.example.seq_len
    splits = ", ".join(f"{name} {split.num_examples:,}" for name, split in sorted(manifest.splits.items()))
    say(f"data: {manifest.name} {manifest.version} ({digest}), examples of {seq_len} tokens: {splits}")
    validation = manifest.splits.get("validation")
    if validation is None or not validation.num_examples:
        say("validation: skipped, the manifest has no validation examples")


def architecture(say: Callable[[str], None], config: PretrainedConfig, family: Family) -> None:
    costs = ", heads x seq_len x seq_len scores a row and layer" if family.attention == "eager" else ""
    reason = f" (not {family.passed_over})" if family.passed_over is not None else ""
    say(f"attention: {family.attention}{costs}{reason}")
    words = balance_words(config)
    if words is not None:
        say(words)


def left_out(say: Callable[[str], None], names: list[str]) -> None:
    if names:
        say(
            f"note: {len(names):,} tensors of model.path are no part of transformers' model, the first {names[0]}: they"
            " are not trained and not in the exported model"
        )


def start(say: Callable[[str], None], folder: Path | None, progress: Progress, notes: list[str]) -> None:
    if folder is None:
        say("starting from step 0")
        return
    say(f"resumed from {folder}: step {progress.step}, {progress.examples_consumed:,} examples consumed")
    for note in notes:
        say(note)


def batch(
    say: Callable[[str], None], config: TrainConfig, loader: Loader, dataset: Dataset, ranks: Ranks, num_steps: int
) -> None:
    seq_len, rows = dataset.manifest.example.seq_len, loader.rows_per_step * ranks.world_size
    filler = rows - loader.state_dict()["global_batch"]
    say(
        f"tokens per step: {ranks.world_size} ranks x micro-batch {config.micro_batch} x accumulation"
        f" {loader.micro_batches_per_step} x seq_len {seq_len} = {rows * seq_len:,}"
        + (
            f" ({filler} of the {rows} rows are filler: give ranks x micro_batch that divides global_batch)"
            if filler
            else ""
        )
    )
    say(
        f"steps: {num_steps:,} of {loader.steps_per_epoch:,} an epoch, on {ranks.world_size} x {ranks.device.type},"
        f" {config.precision}"
    )
