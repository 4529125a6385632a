"""Perplexity over every example of the validation split, weighted by tokens: the same examples every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from loader.columns import COLUMNS, fill_columns
from manifests import storage
from manifests.manifest import Dataset
from manifests.shard import TOKENS_OFFSET, ExampleFormat
from trainer.facts import ValidationResult
from trainer.loss import count_labels
from trainer.model import loss_sum_of
from trainer.parallel import Ranks


@dataclass(frozen=True, kw_only=True)
class ValidationSet:
    """The validation split in the manifest's order. The loader's order leaves a rest out; here nothing is left."""

    dataset: Dataset
    micro_batch: int

    @property
    def num_examples(self) -> int:
        split = self.dataset.manifest.splits.get("validation")
        return 0 if split is None else split.num_examples

    def batches(self, rank: int, world_size: int) -> Iterator[dict[str, torch.Tensor]]:
        """This rank's batches, equally many on every rank: the last ones are filled with rows that have no label."""
        stride = world_size * self.micro_batch
        for first in range(rank * self.micro_batch, math.ceil(self.num_examples / stride) * stride, stride):
            yield self._batch(first, min(first + self.micro_batch, self.num_examples))

    def _batch(self, first: int, end: int) -> dict[str, torch.Tensor]:
        manifest = self.dataset.manifest
        shape = (self.micro_batch, manifest.example.seq_len)
        batch = {name: torch.empty(shape, dtype=torch.int64) for name in COLUMNS}
        fill_columns(
            self._rows(first, end),
            self.micro_batch,
            {name: column.numpy() for name, column in batch.items()},
            eos_id=manifest.tokenizer.eos_id,
            padding_id=manifest.example.padding_id,
        )
        return batch

    def _rows(self, first: int, end: int) -> np.ndarray:
        """(end - first, seq_len) tokens of examples first .. end - 1; none where the range is empty."""
        manifest, start = self.dataset.manifest, 0
        parts = [np.empty((0, manifest.example.seq_len), dtype=manifest.example.numpy_dtype)]
        for shard in manifest.splits["validation"].shards:
            low, high = max(first - start, 0), min(end - start, shard.num_examples)
            if low < high:
                parts.append(_read_examples(self.dataset.resolve(shard.path), low, high, manifest.example))
            start += shard.num_examples
        return np.concatenate(parts)


def _read_examples(url: str, low: int, high: int, example: ExampleFormat) -> np.ndarray:
    """Examples low .. high - 1 of a shard by one ranged read: the stride says where they are."""
    raw = storage.read_bytes(url, low * example.stride, (high - low) * example.stride)
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(high - low, example.stride)
    tokens = rows[:, TOKENS_OFFSET : TOKENS_OFFSET + example.seq_len * example.itemsize]
    return np.ascontiguousarray(tokens).view(example.numpy_dtype)


def evaluate(
    model: nn.Module, validation: ValidationSet, ranks: Ranks, stop_asked: Callable[[], bool]
) -> ValidationResult | None:
    """Collective. None where some rank was asked to stop meanwhile: the grace time belongs to the checkpoint."""
    was_training = model.training
    model.eval()
    try:
        sums = _sums(model, validation, ranks, stop_asked)
    finally:
        model.train(was_training)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                # A forward without a backward leaves the root's weights gathered; the optimizer works on the shards.
                module.reshard()
    if sums is None:
        return None
    dist.all_reduce(sums)
    loss_sum, num_tokens = float(sums[0]), int(sums[1])
    loss = loss_sum / max(1, num_tokens)
    # exp overflows above 709; a model that bad is as good as none.
    return ValidationResult(loss=loss, perplexity=math.exp(min(loss, 700.0)), num_tokens=num_tokens)


@torch.no_grad()
def _sums(
    model: nn.Module, validation: ValidationSet, ranks: Ranks, stop_asked: Callable[[], bool]
) -> torch.Tensor | None:
    """float64 [sum of losses, labelled tokens] of this rank; float64 counts exactly up to 2^53."""
    sums = torch.zeros(2, dtype=torch.float64, device=ranks.device)
    for batch in validation.batches(ranks.rank, ranks.world_size):
        if ranks.sum([stop_asked()])[0]:
            return None
        on_device = {name: column.to(ranks.device, non_blocking=True) for name, column in batch.items()}
        sums[0] += loss_sum_of(model, on_device)
        sums[1] += count_labels(batch["labels"])
    return sums
