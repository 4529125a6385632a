"""Shards from object storage: fetched once, in time, within the limit."""

import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from loader import Loader
from loader.cache import CacheError
from loader.fetch import Fetcher, Use
from tests.loader.loader_datasets import epoch_of, named, numbered_dataset
from tests.s3_server import UnreliableS3

Write = Callable[..., str]


def shard_requests(unreliable: UnreliableS3) -> list[int]:
    """The shard numbers of the requests for shard bodies, as often as they were made."""
    numbers = []
    for (method, path), times in unreliable.num_requests.items():
        found = re.search(r"v1-(\d{6})\.tar", path)
        if method == "GET" and found is not None:
            numbers += [int(found.group(1))] * times
    return sorted(numbers)


def cached_bytes(cache_dir: Path) -> int:
    total = 0
    for path in cache_dir.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # deleted between the listing and the question
            total += path.stat().st_size
    return total


@pytest.mark.parametrize("num_workers", [0, 2])
def test_s3_and_local_shards_give_the_same_batches_over_two_epochs(
    unequal: str, on_s3: Write, cache_dir: Path, num_workers: int
) -> None:
    local = Loader(unequal, global_batch=3, lanes=3)
    remote = Loader(on_s3(), global_batch=3, lanes=3, cache_dir=cache_dir, num_workers=num_workers)
    for _ in range(2):
        assert epoch_of(remote) == epoch_of(local)
    remote.close()
    assert list(cache_dir.iterdir()) == []


def test_a_shard_left_from_a_use_that_is_over_is_not_given_before_its_next_use_is_claimed(
    on_s3: Write, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Fetcher.__init__.__kwdefaults__, "num_threads", 0)  # what they do is done here, in order
    loader = Loader(on_s3(), global_batch=3, lanes=3, cache_dir=cache_dir)
    [fetcher] = loader._feed._files_from((0,))
    shard, use = 4, Use(shard=4, first_window=0, last_window=0)
    assert fetcher._claim(use) is True
    fetcher._fetch(use)
    assert fetcher.ready([shard], 0) is not None
    assert fetcher.ready([shard], 1) is None  # any thread may delete it now
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(fetcher.rows_of({shard: [0]}, 1)))
    waiting.start()
    assert fetcher._claim(Use(shard=shard, first_window=1, last_window=1)) is False  # it is here
    waiting.join(60)
    assert found == [{shard: fetcher._ready[shard]}]
    loader.close()


def test_a_rank_fetches_each_of_its_shards_once_an_epoch_and_no_other(
    on_s3: Write, unreliable_s3: UnreliableS3, cache_dir: Path
) -> None:
    manifest = on_s3()
    loader = Loader(manifest, global_batch=4, rank=1, world_size=2, cache_dir=cache_dir)
    read = {shard for step in epoch_of(loader) for shard, _ in step}
    loader.close()
    found = shard_requests(unreliable_s3)
    assert set(found) >= read
    assert len(read) == 8
    # One window of the next epoch may have been begun; each of its two lanes reaches into three shards at most.
    assert len(found) <= len(read) + 2 * 3


def test_resuming_late_reads_no_more_than_starting(on_s3: Write, unreliable_s3: UnreliableS3, cache_dir: Path) -> None:
    manifest = on_s3((6,) * 20)
    counts = []
    for done in (0, 54):  # of 60 steps
        loader = Loader(manifest, global_batch=2, cache_dir=cache_dir)
        loader.load_state_dict(loader.state_dict() | {"examples_consumed": 2 * done})
        needed = loader.global_batch_examples()
        before = len(shard_requests(unreliable_s3))
        assert named(next(iter(loader))["input_ids"][:, 0].tolist()) == needed
        loader.close()
        counts.append(len(shard_requests(unreliable_s3)) - before)
    # Two lanes, the open window and the next one, four downloads at once: two or three shards for each lane and window.
    assert max(counts) <= 2 * 2 * 3
    assert abs(counts[0] - counts[1]) <= 2


def test_a_limit_below_the_need_is_refused_at_once_and_the_named_one_is_enough_and_kept(
    on_s3: Write, cache_dir: Path
) -> None:
    manifest = on_s3((6,) * 20)
    with pytest.raises(
        CacheError, match=r"cache_bytes is 1000, but the shards that 2 lanes .* take (\d+) bytes"
    ) as refusal:
        Loader(manifest, global_batch=2, cache_dir=cache_dir, cache_bytes=1000)
    found = re.search(r"give cache_bytes=(\d+)", str(refusal.value))
    assert found is not None
    limit = int(found.group(1))
    stop, sizes = threading.Event(), []

    def sample() -> None:
        while not stop.wait(0.001):
            sizes.append(cached_bytes(cache_dir))

    sampler = threading.Thread(target=sample)
    sampler.start()
    loader = Loader(manifest, global_batch=2, cache_dir=cache_dir, cache_bytes=limit)
    epochs = [epoch_of(loader) for _ in range(3)]
    stop.set()
    sampler.join()
    loader.close()
    assert [len(epoch) for epoch in epochs] == [60, 60, 60]
    assert 0 < max(sizes) <= limit


def test_a_cache_that_holds_everything_fetches_everything_once(
    on_s3: Write, unreliable_s3: UnreliableS3, cache_dir: Path
) -> None:
    loader = Loader(on_s3((6,) * 8), global_batch=2, cache_dir=cache_dir, cache_bytes=10**9)
    for _ in range(4):
        epoch_of(loader)
    loader.close()
    assert sorted(shard_requests(unreliable_s3)) == list(range(8))


def test_two_ranks_share_one_cache_folder(unequal: str, on_s3: Write, cache_dir: Path) -> None:
    manifest = on_s3()
    loaders = [Loader(manifest, global_batch=4, rank=rank, world_size=2, cache_dir=cache_dir) for rank in range(2)]
    together = [[*first, *second] for first, second in zip(*map(epoch_of, loaders), strict=True)]
    for loader in loaders:
        loader.close()
    assert together == epoch_of(Loader(unequal, global_batch=4))
    assert list(cache_dir.iterdir()) == []


def test_shards_of_one_name_in_two_data_sets_do_not_meet(on_s3: Write, cache_dir: Path) -> None:
    sizes = {"a": (5, 6), "b": (6, 5)}
    loaders = [Loader(on_s3(sizes[prefix], prefix), global_batch=1, cache_dir=cache_dir) for prefix in ("a", "b")]
    batches = [iter(loader) for loader in loaders]
    for _ in range(11):
        for prefix, batch in zip(sizes, batches, strict=True):
            [(shard, example)] = named(next(batch)["input_ids"][:, 0].tolist())
            assert example < sizes[prefix][shard]
    for loader in loaders:
        loader.close()


def test_a_loader_that_goes_back_fetches_again(unequal: str, on_s3: Write, cache_dir: Path) -> None:
    loader = Loader(on_s3(), global_batch=3, cache_dir=cache_dir)
    head = loader.state_dict()
    first = epoch_of(loader)
    loader.load_state_dict(head)
    assert epoch_of(loader) == first
    loader.close()


def test_local_shards_need_no_cache_folder(tmp_path: Path, cache_dir: Path) -> None:
    loader = Loader(numbered_dataset(tmp_path / "data", (5, 6)), global_batch=1, cache_dir=cache_dir, cache_bytes=0)
    assert len(epoch_of(loader)) == 11
    assert not cache_dir.exists()


def readable_by_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def elsewhere(path: Path) -> None:
    path.symlink_to(path.parent)


@pytest.mark.parametrize("made_by_another", [readable_by_all, elsewhere])
def test_a_default_cache_in_which_others_may_write_is_refused(
    on_s3: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_by_another: Callable[[Path], None]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made_by_another(tmp_path / f"shardmill-cache-{os.getuid()}")
    with pytest.raises(CacheError, match=r"is another user's, or others may write there.*give cache_dir"):
        next(iter(Loader(on_s3((5, 6)), global_batch=1)))


def test_the_default_cache_is_this_users_alone(on_s3: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    loader = Loader(on_s3((5, 6)), global_batch=1)
    next(iter(loader))
    loader.close()
    assert (tmp_path / f"shardmill-cache-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_a_dataloaders_workers_leave_nothing_in_the_cache(on_s3: Write, cache_dir: Path) -> None:
    loader = Loader(on_s3((5, 6, 4)), global_batch=3, cache_dir=cache_dir, columns=("input_ids",))
    for _ in DataLoader(loader.dataset(), batch_size=None, num_workers=2):
        loader.advance()
    assert (loader.epoch, list(cache_dir.iterdir())) == (1, [])
