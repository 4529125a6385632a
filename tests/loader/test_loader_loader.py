"""The Loader end to end, on real shards: equal sequences on any topology, exact resume, clear refusals."""

import itertools
import logging
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import webdataset

from loader import Loader
from loader.rows import ShardError
from manifests import ExampleFormat, UserError, load
from tests.datasets import EOS
from tests.loader.loader_datasets import (
    SEQ_LEN,
    Batch,
    global_steps,
    named,
    numbered_dataset,
    steps_of,
    write_dataset,
)

# 78 examples in batches of 6: epochs of 13 steps, so 15 steps reach into the second.
OPTIONS = {"global_batch": 6, "seed": 11, "columns": ("input_ids",)}
NUM_STEPS = 15


@pytest.fixture(scope="module")
def unbroken(unequal: str) -> list[Batch]:
    loader = Loader(unequal, **OPTIONS)
    batches = []
    for _ in range(NUM_STEPS):
        batches.append(loader.global_batch_examples())
        loader.advance()
    return batches


def test_workers_make_bit_equal_columns(unequal: str) -> None:
    here, there = (list(Loader(unequal, global_batch=6, num_workers=workers)) for workers in (0, 2))
    assert len(here) == len(there) == 13
    for left, right in zip(here, there, strict=True):
        assert left.keys() == right.keys() == {"input_ids", "labels", "position_ids", "document_ids"}
        assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("done", [12, 13, 14, 26])
def test_resuming_around_an_epochs_end_goes_on_at_the_next_ones_head(unequal: str, done: int) -> None:
    loader = Loader(unequal, **OPTIONS)
    expected = steps_of(loader, done + 14)[done:]
    before = Loader(unequal, **OPTIONS)
    steps_of(before, done)
    after = Loader(unequal, **OPTIONS)
    after.load_state_dict(before.state_dict())
    assert steps_of(after, 14) == expected


def test_the_state_counts_what_was_advanced_over_not_what_was_prefetched(unequal: str) -> None:
    loader = Loader(unequal, num_workers=2, **OPTIONS)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
        loader.advance()
    assert loader.state_dict()["examples_consumed"] == 18
    loader.close()


def test_a_loaded_state_takes_effect_at_the_next_iteration_whatever_ran_before(
    unequal: str, unbroken: list[Batch]
) -> None:
    loader = Loader(unequal, **OPTIONS)
    head = loader.state_dict()
    assert steps_of(loader, 4) == unbroken[:4]
    running = iter(loader)
    next(running)
    loader.load_state_dict(head)
    assert steps_of(loader, 2) == unbroken[:2]
    assert next(running, None) is None  # the iteration before was ended by the new one


def test_without_advance_an_iteration_begins_at_the_same_place(unequal: str, unbroken: list[Batch]) -> None:
    loader = Loader(unequal, **OPTIONS)
    for _ in range(2):
        first = next(iter(loader))
        assert named(first["input_ids"][:, 0].tolist()) == unbroken[0]


@pytest.mark.parametrize(("world_size", "micro_batch"), [(4, 1), (4, 4), (5, 2), (8, 3)])
def test_all_ranks_give_equally_many_batches_of_one_shape(unequal: str, world_size: int, micro_batch: int) -> None:
    counts = set()
    for rank in range(world_size):
        loader = Loader(unequal, global_batch=6, rank=rank, world_size=world_size, micro_batch=micro_batch)
        batches = list(loader)
        counts.add(len(batches))
        assert len(batches) == loader.micro_batches_per_step * loader.steps_per_epoch
        assert {tuple(batch["labels"].shape) for batch in batches} == {(micro_batch, SEQ_LEN)}
    assert len(counts) == 1


def test_filler_rows_are_masked(unequal: str) -> None:
    # 6 lanes on 4 ranks: ranks 0 and 2 own one lane, 1 and 3 own two; rank 0 fills its second row.
    batch = next(iter(Loader(unequal, global_batch=6, rank=0, world_size=4)))
    assert batch["input_ids"][1].tolist() == [EOS] * SEQ_LEN
    assert batch["labels"][1].tolist() == [-100] * SEQ_LEN
    assert batch["document_ids"][1].tolist() == [-1] * SEQ_LEN


def test_a_set_smaller_than_the_world_is_read_once_without_a_hang(tmp_path: Path) -> None:
    manifest = numbered_dataset(tmp_path, (2, 1, 2))
    assert [len(step) for step in global_steps(manifest, 4, 2, global_batch=4, micro_batch=2)] == [4, 4]
    assert [len(step) for step in global_steps(manifest, 4, 5, global_batch=1)] == [1] * 5
    assert sorted(itertools.chain(*global_steps(manifest, 4, 5, global_batch=1))) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (2, 1),
    ]


def test_ranks_read_disjoint_shards_where_the_world_divides_the_lanes(tmp_path: Path) -> None:
    manifest = numbered_dataset(tmp_path, (6,) * 12)
    shards_of = []
    for rank in range(4):
        loader = Loader(manifest, global_batch=8, rank=rank, world_size=4, seed=2)
        shards_of.append({shard for step in steps_of(loader, loader.steps_per_epoch) for shard, _ in step})
    assert sorted(itertools.chain(*shards_of)) == list(range(12))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_only_the_columns_asked_for_are_made_in_the_dtype_asked_for(unequal: str, dtype: torch.dtype) -> None:
    batch = next(iter(Loader(unequal, global_batch=2, columns=("labels", "document_ids"), dtype=dtype)))
    assert {name: tensor.dtype for name, tensor in batch.items()} == {"labels": dtype, "document_ids": dtype}


def test_uint16_and_best_fit_padding_are_read(tmp_path: Path) -> None:
    example = ExampleFormat(seq_len=6, dtype="uint16", packing="best_fit")
    rows = np.array([[5, 6, EOS, 7, EOS, 65_535]] * 3, dtype="<u2")
    batch = next(iter(Loader(write_dataset(str(tmp_path), [rows], example=example), global_batch=1)))
    assert {name: tensor[0].tolist() for name, tensor in batch.items()} == {
        "input_ids": [5, 6, EOS, 7, EOS, EOS],
        "labels": [6, EOS, -100, EOS, -100, -100],
        "position_ids": [0, 1, 2, 0, 1, 0],
        "document_ids": [0, 0, 0, 1, 1, -1],
    }


def test_webdataset_reads_the_same_tokens_from_a_shard(unequal: str) -> None:
    dataset = load(unequal)
    rows = [
        row["tokens.npy"]
        for entry in dataset.manifest.splits["train"].shards
        for row in webdataset.WebDataset(dataset.resolve(entry.path), shardshuffle=False).decode()
    ]
    theirs = {tuple(row.tolist()) for row in rows}
    ours = {tuple(row) for batch in Loader(unequal, global_batch=6) for row in batch["input_ids"].tolist()}
    assert ours == theirs
    assert len(ours) == 78


def test_what_is_left_over_is_logged_by_rank_0(unequal: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="loader"):
        next(iter(Loader(unequal, global_batch=8)))
        next(iter(Loader(unequal, global_batch=8, rank=1, world_size=2)))
    assert [record.getMessage() for record in caplog.records] == [
        "epoch 0: 9 steps of 8 examples; 6 of 78 examples of train are left over, others in every epoch"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "test"}, "there is no split 'test' in .*; it has train, validation"),
        ({"split": "validation"}, "the split 'validation' of .* has 0 shards"),
        ({"global_batch": 79}, "holds 78 examples in 12 shards, fewer than one global batch of 79"),
        ({"rank": 2, "world_size": 2}, "rank is 2 of world_size 2"),
        ({"micro_batch": 0}, "micro_batch is 0; give 1 row or more"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"lanes": 4}, "global batch of 6 examples is not a multiple of the 4 lanes"),
        (
            {"columns": ("input_ids", "attention_mask")},
            "give one or more of input_ids, labels, position_ids, document_ids",
        ),
        ({"columns": ()}, "give one or more of"),
        ({"dtype": torch.int16}, "dtype is torch.int16; batches are made as torch.int64 or torch.int32"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(tmp_path: Path, options: dict[str, object], message: str) -> None:
    manifest = numbered_dataset(tmp_path, (7, 3, 12, 5, 9, 1, 8, 11, 4, 10, 6, 2), empty_split=True)
    with pytest.raises(UserError, match=message) as refusal:
        Loader(manifest, **{"global_batch": 6} | options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "shard shards/train/v1-000001.tar is missing at"),
        (lambda path: os.truncate(path, 1024), "v1-000001.tar at .* has 1024 bytes, the manifest says"),
        (lambda path: os.truncate(path, 0), "shard shards/train/v1-000001.tar at .* is empty"),
    ],
)
def test_a_broken_local_shard_is_named(tmp_path: Path, harm: object, message: str, num_workers: int) -> None:
    loader = Loader(numbered_dataset(tmp_path, (5, 6)), global_batch=1, num_workers=num_workers)
    harm(tmp_path / "shards/train/v1-000001.tar")  # type: ignore[operator]  # one of the three above
    with pytest.raises(ShardError, match=message) as refusal:
        list(loader)
    assert "\n" not in str(refusal.value)


SCRIPT = """
import multiprocessing, sys
from loader import Loader
batches = iter(Loader(sys.argv[1], global_batch=2, num_workers=2))
next(batches), next(batches)
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
if sys.stdin.readline():
    print(len(list(batches)))
"""


def started(manifest: str) -> tuple["subprocess.Popen[str]", list[int]]:
    """A program that has taken two of 39 batches, and its workers. It goes on at a line of input, ends without one."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, manifest], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    return process, workers


def test_a_program_that_ends_in_mid_iteration_ends_with_its_workers(unequal: str) -> None:
    process, workers = started(unequal)
    process.communicate("", timeout=60)
    assert process.returncode == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_workers_go_on_after_a_sigterm_to_the_group(unequal: str) -> None:
    process, workers = started(unequal)
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    output, _ = process.communicate("go on\n", timeout=60)
    assert (process.returncode, output) == (0, "37\n")


def test_memory_maps_are_given_up_with_their_windows(tmp_path: Path) -> None:
    loader = Loader(numbered_dataset(tmp_path, (4,) * 30), global_batch=1)
    most = 0
    for _ in loader:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        most = max(most, maps.count(str(tmp_path)))
    assert 1 <= most <= 4  # two windows of at most two shards each


def test_tar_lists_a_shard(unequal: str) -> None:
    dataset = load(unequal)
    with tarfile.open(dataset.resolve(dataset.manifest.splits["train"].shards[1].path)) as archive:
        assert archive.getnames() == [f"v1-000001-{number:08d}.tokens.npy" for number in range(3)]
