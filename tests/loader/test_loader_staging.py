"""Host batches in turn, batches ahead, and what is counted as held: all but the copy itself needs no device."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import loader.loader
from loader import Loader
from loader.batches import BatchMaker
from loader.staging import Batch, HostRing
from loader.workers import batches_in_flight
from tests.loader.loader_datasets import numbered_dataset


class Event:
    """A copy's end; `waited` lists, in order, which were waited for."""

    def __init__(self, number: int, waited: list[int]) -> None:
        self.number, self.waited = number, waited

    def synchronize(self) -> None:
        self.waited.append(self.number)


def test_a_host_batch_is_filled_again_only_after_the_copy_made_of_it() -> None:
    waited: list[int] = []
    made: list[Batch] = []

    def allocate() -> Batch:
        made.append({"input_ids": torch.zeros(1, 2)})
        return made[-1]

    ring = HostRing(allocate, num_batches=2)
    seen = []
    for number in range(5):
        seen.append((ring.take()["input_ids"].data_ptr(), list(waited)))
        ring.read_until(Event(number, waited))
    first, second = (batch["input_ids"].data_ptr() for batch in made)
    assert seen == [(first, []), (second, []), (first, [0]), (second, [0, 1]), (first, [0, 1, 2])]


class Recorded(deque):
    """The batches in flight, the most of them at once, and an event that says when so many are."""

    most, counted, all_in_flight = 0, 0, threading.Event()

    def append(self, item: object) -> None:
        super().append(item)
        Recorded.most = max(Recorded.most, len(self))
        if len(self) == Recorded.counted:
            Recorded.all_in_flight.set()


@pytest.fixture
def staged_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches take the way of pinned ones, in memory that is not."""

    def plain(self: BatchMaker, num_rows: int) -> Batch:
        shape = (num_rows, self._example.seq_len)
        return {name: torch.empty(shape, dtype=self._dtype) for name in self._columns}

    monkeypatch.setattr(BatchMaker, "_pinned", plain)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize("making", [{"num_ahead": 0}, {"num_ahead": 3}, {"num_workers": 1}, {"num_workers": 3}])
def test_what_is_held_is_what_the_budget_counts(
    unequal: str,
    monkeypatch: pytest.MonkeyPatch,
    staged_without_a_device: None,
    making: dict[str, int],
    is_staged: bool,
) -> None:
    expected = [batch["labels"].clone() for batch in Loader(unequal, global_batch=2)]
    counted = batches_in_flight(making.get("num_workers", 0), making.get("num_ahead", 4), is_staged=is_staged)
    Recorded.most, Recorded.counted, Recorded.all_in_flight = 0, counted, threading.Event()
    monkeypatch.setattr(loader.loader, "deque", Recorded)
    run = Loader(unequal, global_batch=2, pin_memory=is_staged, columns=("labels", "cumulative_lengths"), **making)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda self: self)
    found = []
    for batch in run:
        assert Recorded.all_in_flight.wait(60)  # while the consumer holds its first batch
        found.append(batch["labels"].clone())
    assert len(found) == 39
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert Recorded.most == counted == run._here.num_in_flight


@pytest.mark.parametrize("making", [{"num_ahead": 0}, {"num_ahead": 4}, {"num_workers": 2}])
def test_the_least_cache_is_enough_for_staged_batches(
    on_s3: Callable[..., str],
    tmp_path: Path,
    cache_dir: Path,
    staged_without_a_device: None,
    making: dict[str, int],
) -> None:
    options = {"global_batch": 4, "columns": ("input_ids",)}
    sizes = (1,) * 48
    needed = Loader(on_s3(sizes), pin_memory=True, cache_dir=cache_dir, **options, **making)._feed.budget.node_needed
    tight = Loader(on_s3(sizes), pin_memory=True, cache_dir=cache_dir, cache_bytes=needed, **options, **making)
    calm = Loader(numbered_dataset(tmp_path / "local", sizes), **options)
    for one, other in zip(tight, calm, strict=True):
        assert torch.equal(one["input_ids"], other["input_ids"])
    tight.close()
