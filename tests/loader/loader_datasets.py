"""Tiny data sets for the loader's tests: real shards and a real manifest, every token telling where it lies."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loader import Loader
from manifests import ExampleFormat, Split
from tests.datasets import EOS, write_manifest, write_split

SEQ_LEN = 8
EXAMPLE = ExampleFormat(seq_len=SEQ_LEN, dtype="uint32", packing="concat")
# Token 0 of example i of shard s is s * 1000 + i + 10: a batch's first column says which examples it holds.
SHARD_STEP = 1000
FIRST_ID = 10


def numbered_rows(shard: int, num_examples: int, seq_len: int = SEQ_LEN) -> np.ndarray:
    """uint32 (num_examples, seq_len): each row's own number, then an EOS in the middle, then its number again."""
    rows = np.full((num_examples, seq_len), FIRST_ID + shard * SHARD_STEP, dtype="<u4")
    rows += np.arange(num_examples, dtype="<u4")[:, None]
    rows[:, seq_len // 2] = EOS
    return rows


def write_dataset(
    root: str,
    shard_rows: Sequence[np.ndarray],
    *,
    example: ExampleFormat = EXAMPLE,
    version: str = "v1",
    folder: str = "shards/train",
    empty_split: bool = False,
) -> str:
    """Writes shards of these rows and their manifest below `root`; returns the manifest's URL."""
    splits = {"train": write_split(root, shard_rows, example=example, folder=folder, version=version)}
    if empty_split:
        splits["validation"] = Split.of([], seq_len=example.seq_len)
    return write_manifest(root, splits, example=example, version=version)


def numbered_dataset(root: Path | str, sizes: Sequence[int], **options: object) -> str:
    """A data set whose shards hold `sizes` numbered examples."""
    rows = [numbered_rows(number, size) for number, size in enumerate(sizes)]
    return write_dataset(str(root), rows, **options)


def named(first_tokens: Sequence[int]) -> list[tuple[int, int]]:
    """(shard, example) of rows by their first token; filler rows, which begin with EOS, are left out."""
    return [divmod(token - FIRST_ID, SHARD_STEP) for token in first_tokens if token != EOS]


def epoch_of(loader: Loader) -> list[list[tuple[int, int]]]:
    """A rank's batches to the end of the epoch, each as its rows' (shard, example); the position goes along."""
    steps = []
    for batch in loader:
        steps.append(named(batch["input_ids"][:, 0].tolist()))
        loader.advance()
    return steps


Batch = list[tuple[int, int]]


def steps_of(loader: Loader, num_steps: int) -> list[Batch]:
    """The next steps of one rank, each its rows' examples; the position advances as a trainer advances it."""
    steps: list[Batch] = []
    while len(steps) < num_steps:
        batches = iter(loader)
        while step := list(itertools.islice(batches, loader.micro_batches_per_step)):
            steps.append([example for batch in step for example in named(batch["input_ids"][:, 0].tolist())])
            loader.advance()
            if len(steps) == num_steps:
                break
    return steps


def global_steps(
    manifest: str, world_size: int, num_steps: int, state: object = None, **options: object
) -> list[Batch]:
    """The global batches: every rank's rows put together in rank order."""
    by_rank = []
    for rank in range(world_size):
        loader = Loader(manifest, rank=rank, world_size=world_size, **options)
        if state is not None:
            loader.load_state_dict(state)
        by_rank.append(steps_of(loader, num_steps))
        loader.close()
    return [[example for rows in step for example in rows] for step in zip(*by_rank, strict=True)]
