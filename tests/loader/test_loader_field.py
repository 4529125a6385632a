"""What users of comparable loaders suffered from: sixteen acceptance tests, on 40 shards of unequal size.

Here are those that need all 40 shards, many ranks or a very large manifest. The others stand with what they are of:

    3  a prefetching DataLoader's state        test_the_state_beside_a_prefetching_dataloader_is_the_consumers
    4  around an epoch's end                   test_resuming_around_an_epochs_end_goes_on_at_the_next_ones_head
    7  another shard, another path             test_a_changed_shard_is_named, test_equal_shards_under_another_name_...
    9  fewer examples than ranks               test_a_set_smaller_than_the_world_is_read_once_without_a_hang
    11 a cache too small, and just large enough
                                               test_a_limit_below_the_need_is_refused_at_once_and_the_named_one_...
    12 storage that fails                      test_loader_storage_faults.py
    13 kill -9, two jobs                       test_a_killed_rank_goes_on_beside_another_job_and_nothing_is_left
    16 columns of packed documents             test_loader_columns.py, and the logits in test_trainer_model.py
"""

import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from loader import Loader
from loader.mixture import blocks_of, order_of
from loader.order import OrderError, RunShape
from loader.position import PositionError
from manifests import Dataset, ShardEntry, Split, load
from tests.datasets import manifest_of, write_split
from tests.loader.loader_datasets import (
    EXAMPLE,
    Batch,
    epoch_of,
    global_steps,
    named,
    numbered_dataset,
    numbered_rows,
    steps_of,
)
from tests.loader.resident_memory import resident_bytes

# 2 to 24 examples a shard, 514 in all: an epoch of 85 steps of 6, four examples left over.
SIZES = tuple(2 + 13 * number % 23 for number in range(40))
OPTIONS = {"global_batch": 6, "seed": 11, "columns": ("input_ids",)}
STEPS = sum(SIZES) // 6
# The step at which the epochs of the very large set are entered.
MIDDLE = 100_000


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The manifest of a local data set of 40 shards."""
    return numbered_dataset(tmp_path_factory.mktemp("forty"), SIZES)


@pytest.fixture(scope="module")
def unbroken(forty: str) -> list[Batch]:
    """Three epochs of global batches, by arithmetic alone."""
    loader = Loader(forty, **OPTIONS)
    batches = []
    for _ in range(3 * STEPS):
        batches.append(loader.global_batch_examples())
        loader.advance()
    return batches


# 1: streaming PR#476, torchtitan#811
@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_the_global_batches_are_the_same_on_any_number_of_ranks_and_workers(
    forty: str, unbroken: list[Batch], world_size: int, num_workers: int
) -> None:
    state = Loader(forty, **OPTIONS).state_dict() | {"examples_consumed": 6 * (STEPS - 4)}
    # Into the second epoch.
    found = global_steps(forty, world_size, 8, state, micro_batch=2, num_workers=num_workers, **OPTIONS)
    assert found == unbroken[STEPS - 4 : STEPS + 4]


# 2: streaming PR#301, composer PR#2409, Megatron-Bridge PR#5637
def test_resuming_on_other_world_sizes_gives_the_literal_rest_and_every_example_once(
    forty: str, unbroken: list[Batch]
) -> None:
    found: list[Batch] = []
    state = None
    for world_size, num_steps in ((4, 20), (2, 17), (3, 30), (4, STEPS - 67)):
        found += global_steps(forty, world_size, num_steps, state, micro_batch=2, **OPTIONS)
        loader = Loader(forty, **OPTIONS)
        for _ in range(len(found)):
            loader.advance()
        state = loader.state_dict()
    assert found == unbroken[:STEPS]
    assert len(set(itertools.chain(*found))) == 6 * STEPS


# 5: OLMo#650, accelerate#2016, open-instruct PR#681
def test_after_a_resumption_in_the_second_epoch_the_third_is_whole(forty: str, unbroken: list[Batch]) -> None:
    loader = Loader(forty, **OPTIONS)
    loader.load_state_dict(loader.state_dict() | {"epoch": 1, "examples_consumed": 6 * 40})
    found = steps_of(loader, 2 * STEPS - 40)
    assert found == unbroken[STEPS + 40 :]
    assert (loader.epoch, loader.examples_consumed) == (3, 0)
    assert len(set(itertools.chain(*found[-STEPS:]))) == 6 * STEPS


# 6: data#1520
@pytest.mark.parametrize("done", [10, STEPS * 9 // 10])
def test_a_resumption_asks_for_the_shards_of_its_windows_alone(
    on_s3: Callable[..., str], cache_dir: Path, done: int
) -> None:
    manifest = on_s3(SIZES)
    needed = sorted(entry.num_bytes for entry in load(manifest).manifest.splits["train"].shards)
    loader = Loader(manifest, cache_dir=cache_dir, **OPTIONS)
    loader.load_state_dict(loader.state_dict() | {"examples_consumed": 6 * done})
    expected = loader.global_batch_examples()
    assert named(next(iter(loader))["input_ids"][:, 0].tolist()) == expected
    loader.close()
    # Six lanes, the open window and what fits beside it: nothing of the epoch before is read again.
    assert loader.counters.bytes_fetched <= sum(needed[-6 * 2 * 3 :])
    assert loader.counters.batches == 1


# 8: gpt-neox#984, OLMo-core PR#332
def test_nothing_but_data_seed_batch_lanes_and_window_changes_the_order(
    forty: str, unbroken: list[Batch], tmp_path: Path
) -> None:
    logging.getLogger("loader").setLevel(logging.DEBUG)
    for options in (
        {"num_workers": 2},
        {"num_ahead": 0},
        {"micro_batch": 4},
        {"columns": ("labels", "input_ids"), "dtype": torch.int32},
        {"cache_dir": tmp_path, "cache_bytes": 10**9, "verify_local": True, "bad_shards": "mask"},
    ):
        loader = Loader(forty, **OPTIONS | options)
        assert steps_of(loader, 12) == unbroken[:12], options
        loader.close()
    logging.getLogger("loader").setLevel(logging.NOTSET)
    larger = Loader(forty, **OPTIONS | {"global_batch": 12, "lanes": 6})
    larger.load_state_dict(Loader(forty, **OPTIONS).state_dict() | {"examples_consumed": 18})
    assert {row for step in steps_of(larger, 2) for row in step} == {row for step in unbroken[3:7] for row in step}
    with pytest.raises(PositionError, match="global_batch is 8 here, not a multiple of the 6 lanes"):
        Loader(forty, **OPTIONS | {"global_batch": 8}).load_state_dict(Loader(forty, **OPTIONS).state_dict())
    with pytest.raises(OrderError, match="global batch of 8 examples is not a multiple of the 6 lanes"):
        Loader(forty, **OPTIONS | {"global_batch": 8, "lanes": 6})


# 10: torchtitan#1618, parcae#12
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
def test_all_ranks_end_an_epoch_at_the_same_step(forty: str, world_size: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="loader"):
        loaders = [Loader(forty, rank=rank, world_size=world_size, **OPTIONS) for rank in range(world_size)]
        counts = [len(list(loader)) for loader in loaders]
    assert counts == [STEPS] * world_size
    [message] = [record.getMessage() for record in caplog.records if record.name.startswith("loader")]
    assert message == "epoch 0: 85 steps of 6 examples; 4 of 514 examples of train are left over, others in every epoch"


# 14: litData PR#846
def test_a_rank_that_runs_ahead_takes_no_shard_from_one_that_lags(
    on_s3: Callable[..., str], unbroken: list[Batch], cache_dir: Path
) -> None:
    manifest = on_s3(SIZES)
    slow, fast = (Loader(manifest, rank=rank, world_size=2, cache_dir=cache_dir, **OPTIONS) for rank in range(2))
    behind = iter(slow)
    first = named(next(behind)["input_ids"][:, 0].tolist())
    ahead = epoch_of(fast)
    fast.close()
    rest = [named(batch["input_ids"][:, 0].tolist()) for batch in behind]
    slow.close()
    # Ranks 0 and 1 of two meet in one shard at most, and here they do.
    assert [[*mine, *theirs] for mine, theirs in zip([first, *rest], ahead, strict=True)] == unbroken[:STEPS]
    assert list(cache_dir.iterdir()) == []


# 15: pytorch#20433
@pytest.mark.parametrize("num_workers", [0, 2])
def test_memory_is_flat_over_20_epochs_of_a_million_shards(million: Dataset, num_workers: int) -> None:
    loader = Loader(million, global_batch=4, num_workers=num_workers, columns=("input_ids",))
    after = []
    for epoch in range(20):
        loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "examples_consumed": 4 * MIDDLE})
        batches = iter(loader)
        assert len(list(itertools.islice(batches, 10))) == 10
        after.append(resident_bytes())
    loader.close()
    # An epoch's order over a million shards comes and goes, 64 MB of it.
    assert max(after[10:]) <= 1.05 * max(after[:10])


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A manifest of a million shards of one example: one file under every name that the test opens."""
    root = tmp_path_factory.mktemp("million")
    [entry] = write_split(str(root), [numbered_rows(0, 1)], example=EXAMPLE, folder="one").shards
    entries = [
        ShardEntry(**vars(entry) | {"path": f"shards/v1-{number:06d}.tar", "sha256": f"{number:064x}"})
        for number in range(1_000_000)
    ]
    manifest = manifest_of({"train": Split.of(entries, seq_len=EXAMPLE.seq_len)}, example=EXAMPLE)
    (root / "shards").mkdir()
    shape = RunShape(global_batch=4, num_lanes=4, window_shards=1, seed=0)
    order = order_of([np.ones(len(entries), dtype=np.int64)], [], shape)
    for epoch in range(20):
        for block in blocks_of(order, range(4), epoch, 4 * MIDDLE, 20):
            for shard in block.shards.tolist():
                (root / entries[shard].path).hardlink_to(root / entry.path)
    return Dataset(manifest=manifest, root=str(root), url=f"{root}/manifests/v1.json")
