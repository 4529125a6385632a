"""Validation reads every example once, on any number of ranks, in equally many batches."""

from pathlib import Path

import numpy as np
import pytest
import torch

from manifests import load
from tests.trainer.trainer_datasets import random_rows, write_dataset
from trainer.evaluate import ValidationSet


@pytest.mark.parametrize(("world_size", "micro_batch"), [(1, 1), (1, 4), (2, 3), (3, 2), (5, 2), (12, 1)])
def test_all_ranks_together_see_each_example_once(tmp_path: Path, world_size: int, micro_batch: int) -> None:
    dataset = load(write_dataset(tmp_path, validation=(4, 1, 6)))
    validation = ValidationSet(dataset=dataset, micro_batch=micro_batch)
    by_rank = [list(validation.batches(rank, world_size)) for rank in range(world_size)]
    assert {len(batches) for batches in by_rank} == {-(-11 // (world_size * micro_batch))}
    rows = [
        row
        for batches in zip(*by_rank, strict=True)
        for batch in batches
        for row, labels in zip(batch["input_ids"], batch["labels"], strict=True)
        if (labels != -100).any()
    ]
    written = np.concatenate([random_rows(size, seed=100 + shard) for shard, size in ((0, 4), (1, 1), (2, 6))])
    assert torch.stack(rows).tolist() == written.tolist()


def test_a_manifest_without_validation_has_nothing_to_validate(tmp_path: Path) -> None:
    dataset = load(write_dataset(tmp_path, validation=()))
    validation = ValidationSet(dataset=dataset, micro_batch=2)
    assert validation.num_examples == 0
    assert list(validation.batches(0, 2)) == []
