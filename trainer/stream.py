"""The loader as a stream of steps: the micro-batches of one rank, and the digest of the global batch they belong to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from loader import Loader
from manifests.canonical import fingerprint
from trainer.loss import count_labels


@dataclass(frozen=True, kw_only=True)
class StepData:
    """One step's data. All but examples, which are the whole global batch's, is this rank's.

    examples: (shard number in the manifest, example number in the shard), in the order of order.md. fetched_bytes: that
    came from storage since the step before.
    """

    micro_batches: list[dict[str, torch.Tensor]]
    num_labels: int
    examples: list[tuple[int, int]]
    wait_s: float
    fetched_bytes: int


class StepStream:
    """Steps from the loader's position on, through epoch ends, for ever. The caller advances the loader after each."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._batches = self._forever()
        self._fetched_before = 0

    def _forever(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            yield from self._loader

    def next(self) -> StepData:
        started = time.perf_counter()
        examples = self._loader.global_batch_examples()
        micro_batches = [next(self._batches) for _ in range(self._loader.micro_batches_per_step)]
        wait_s = time.perf_counter() - started
        num_labels = sum(count_labels(batch["labels"]) for batch in micro_batches)
        fetched = self._loader.counters.bytes_fetched
        fetched_bytes, self._fetched_before = fetched - self._fetched_before, fetched
        return StepData(
            micro_batches=micro_batches,
            num_labels=num_labels,
            examples=examples,
            wait_s=wait_s,
            fetched_bytes=fetched_bytes,
        )


def batch_digest(examples: Sequence[tuple[int, int]], shard_sha256: Sequence[str]) -> str:
    """Fingerprint of a global batch: its examples as [sha256 of the shard, number in it], in order.

    Free of paths, of the number of ranks and of how the batch was cut, so two runs can be compared by it.
    """
    return fingerprint([[shard_sha256[shard], index] for shard, index in examples])
