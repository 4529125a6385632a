"""Batches made ahead, in reused memory, in other people's loops; counters; memory that stays flat."""

import gc
import itertools
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from loader import Loader
from loader.buffers import Buffers
from manifests import UserError
from tests.loader.loader_datasets import numbered_dataset
from tests.loader.resident_memory import resident_bytes

KINDS = [{"num_ahead": 0}, {"num_ahead": 3}, {"num_workers": 2}]


@pytest.mark.parametrize("kind", KINDS)
def test_kept_batches_stay_what_they_were(unequal: str, kind: dict[str, int]) -> None:
    loader = Loader(unequal, global_batch=6, **kind)
    kept, copies = [], []
    for batch in loader:
        kept.append({name: tensor[1:] for name, tensor in batch.items()})  # a view keeps the memory too
        copies.append({name: tensor.clone() for name, tensor in kept[-1].items()})
    assert all(torch.equal(one[name], other[name]) for one, other in zip(kept, copies, strict=True) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_used_again_once_a_batch_is_let_go(unequal: str, kind: dict[str, int]) -> None:
    addresses = {batch["labels"].data_ptr() for batch in Loader(unequal, global_batch=1, **kind)}
    assert 1 <= len(addresses) <= 10  # of 78 batches


def test_a_slot_is_free_again_when_none_of_its_arrays_is_left() -> None:
    buffers = Buffers(("a", "b"), 1, 2, torch.zeros(0, dtype=torch.int32).numpy().dtype)
    slot = buffers.take()
    lent = {name: torch.from_numpy(array) for name, array in buffers.lent(slot).items()}
    other = buffers.take()
    assert other != slot
    view = lent.pop("b")[0].numpy()[1:]
    del lent
    assert buffers.take() not in (slot, other)
    del view
    assert buffers.take() == slot


def test_an_iteration_nobody_holds_ends_its_thread(unequal: str) -> None:
    loader = Loader(unequal, global_batch=1)
    batches = iter(loader)
    next(batches)
    alive = weakref.ref(loader)
    assert any(thread.name == "batches" for thread in threading.enumerate())
    del batches, loader
    gc.collect()
    assert not any(thread.name == "batches" for thread in threading.enumerate())
    assert alive() is None


def test_an_error_of_the_thread_is_raised_where_batches_are_taken(tmp_path: Path) -> None:
    loader = Loader(numbered_dataset(tmp_path, (5, 6)), global_batch=1)
    for path in (tmp_path / "shards/train").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="is missing at"):
        next(iter(loader))


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_a_torch_dataloader_around_the_dataset_gives_the_same_batches(unequal: str, num_workers: int) -> None:
    expected = [batch["labels"].clone() for batch in Loader(unequal, global_batch=6)]
    loader = Loader(unequal, global_batch=6)
    found = []
    for batch in DataLoader(loader.dataset(), batch_size=None, num_workers=num_workers):
        found.append(batch["labels"])
        loader.advance()
    assert len(found) == 13
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert (loader.epoch, loader.examples_consumed) == (1, 0)


def test_workers_that_outlive_an_epoch_and_so_the_position_are_refused(unequal: str) -> None:
    loader = Loader(unequal, global_batch=6, columns=("input_ids",))
    batches = DataLoader(loader.dataset(), batch_size=None, num_workers=1, persistent_workers=True)
    for _ in batches:
        loader.advance()
    with pytest.raises(UserError, match="give persistent_workers=False"):
        next(iter(batches))


PREFETCHING = """
import sys
from torch.utils.data import DataLoader
from loader import Loader
loader = Loader(sys.argv[1], global_batch=2)
batches = iter(DataLoader(loader.dataset(), batch_size=None, num_workers=2, prefetch_factor=4))
for _ in range(5):
    next(batches)
    loader.advance()
print(loader.state_dict()["examples_consumed"])
"""


def test_the_state_beside_a_prefetching_dataloader_is_the_consumers(unequal: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREFETCHING, unequal], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "10\n"


def test_counters_say_what_was_done(unequal: str, on_s3: Callable[..., str], cache_dir: Path) -> None:
    loader = Loader(on_s3(), global_batch=6, cache_dir=cache_dir)
    for _ in loader:
        loader.advance()
    metrics = loader.metrics()
    loader.close()
    assert (metrics["batches"], metrics["rows"], metrics["epoch"], metrics["examples_consumed"]) == (13, 78, 1, 0)
    assert metrics["shards_fetched"] >= 12
    assert metrics["fetch_gb_per_s"] > 0
    assert metrics["masked_rows"] == metrics["retries"] == metrics["full_disk_waits"] == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a machine without CUDA says")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pin_memory": True}, "pin_memory is True, but torch finds no CUDA here"),
        ({"device": "cuda"}, "device is cuda, but torch finds no CUDA here"),
        ({"device": "gpu"}, "device is 'gpu': "),
        ({"bad_shards": "skip"}, "bad_shards is 'skip'; give 'error' or 'mask'"),
        ({"ranks_per_node": 0}, "ranks_per_node is 0; give 1 or more"),
        ({"num_ahead": -1}, "num_ahead is -1; give 0 or more"),
        ({"rank": "0"}, "rank is '0'; give a whole number"),
        ({"num_workers": 1.5}, "num_workers is 1.5; give a whole number"),
        ({"num_ahead": True}, "num_ahead is True; give a whole number"),
        ({"cache_bytes": "1e9"}, "cache_bytes is '1e9'; give a whole number"),
        ({"seed": "0"}, "seed is '0'; give a whole number of at least 0"),
    ],
)
def test_what_cannot_be_had_is_refused(unequal: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Loader(unequal, global_batch=6, **options)


def test_an_environment_without_a_number_of_ranks_is_refused(unequal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "two")
    with pytest.raises(UserError, match="LOCAL_WORLD_SIZE is 'two'; set it to the number of ranks on a node"):
        Loader(unequal, global_batch=6)
    assert Loader(unequal, global_batch=6, ranks_per_node=1).epoch == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_on_a_device_are_those_on_the_host(unequal: str, num_workers: int) -> None:
    host = [{name: tensor.clone() for name, tensor in batch.items()} for batch in Loader(unequal, global_batch=6)]
    pinned = list(Loader(unequal, global_batch=6, pin_memory=True, num_workers=num_workers))
    there = list(Loader(unequal, global_batch=6, device="cuda", num_workers=num_workers))
    assert all(tensor.is_pinned() for batch in pinned for tensor in batch.values())
    for one, two, three in zip(host, pinned, there, strict=True):
        assert all(torch.equal(one[name], two[name]) and torch.equal(one[name], three[name].cpu()) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_cumulative_lengths_are_where_documents_begin(unequal: str, kind: dict[str, int]) -> None:
    # A row is a document of 5 tokens and the head of one of 3; the batch after the last lane's is filler.
    columns = ("cumulative_lengths", "input_ids")
    loader = Loader(unequal, global_batch=6, rank=0, world_size=4, columns=columns, **kind)
    for batch in loader:
        assert tuple(batch) == columns
        assert batch["cumulative_lengths"].tolist() == [0, 5, 8, 16]
        assert batch["cumulative_lengths"].dtype == torch.int32
    with_documents = next(iter(Loader(unequal, global_batch=2, columns=("document_ids", "cumulative_lengths"))))
    assert with_documents["cumulative_lengths"].tolist() == [0, 5, 8, 13, 16]
    assert with_documents["document_ids"].shape == (2, 8)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_memory_is_flat_over_20_epochs(tmp_path: Path, num_workers: int) -> None:
    loader = Loader(numbered_dataset(tmp_path, (1,) * 600), global_batch=4, num_workers=num_workers)
    after = []
    for _ in range(20):
        for number, _ in enumerate(itertools.chain(loader)):
            if number == 100:
                after.append(resident_bytes())
            loader.advance()
    assert loader.epoch == 20
    # The first epochs fill the caches of the allocator.
    assert max(after[4:]) <= 1.05 * after[4]
