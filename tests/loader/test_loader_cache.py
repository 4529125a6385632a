"""The cache: whole files or none, shared by processes, deleted by the last holder, clean after a kill."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loader.cache import CachedShard, CacheError, ChecksumError, ShardCache

DATA = b"a shard's bytes" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()


def obtained(cache: ShardCache, data: bytes = DATA) -> CachedShard:
    shard = cache.obtain(SHA256, len(DATA), lambda: iter([data]), wait=lambda _: False)
    assert shard is not None
    return shard


def must_not_download() -> Iterator[bytes]:
    raise AssertionError("the shard is in the cache already")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_shard_is_downloaded_once_and_deleted_by_its_last_holder(cache_dir: Path) -> None:
    first, second = ShardCache(cache_dir), ShardCache(cache_dir)
    held = obtained(first)
    shared = second.obtain(SHA256, len(DATA), must_not_download, wait=lambda _: False)
    assert shared is not None
    assert shared.path.read_bytes() == DATA
    first.release(held)
    assert names(cache_dir) == [f"{SHA256}.tar"]
    second.release(shared)
    assert names(cache_dir) == []


@pytest.mark.parametrize("data", [b"", DATA[:-1], DATA + b"x", b"X" + DATA[1:]])
def test_other_bytes_than_named_leave_nothing_behind(cache_dir: Path, data: bytes) -> None:
    with pytest.raises(ChecksumError, match=f"the manifest says {len(DATA)} bytes with {SHA256}"):
        obtained(ShardCache(cache_dir), data)
    assert names(cache_dir) == []


def test_a_download_that_breaks_leaves_nothing_behind(cache_dir: Path) -> None:
    def breaks() -> Iterator[bytes]:
        yield DATA[:100]
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        ShardCache(cache_dir).obtain(SHA256, len(DATA), breaks, wait=lambda _: False)
    assert names(cache_dir) == []


def test_a_file_of_another_size_under_the_name_is_replaced(cache_dir: Path) -> None:
    cache = ShardCache(cache_dir)
    (cache_dir / f"{SHA256}.tar").write_bytes(DATA[:7])
    assert obtained(cache).path.read_bytes() == DATA


def test_a_holder_keeps_its_bytes_where_another_user_deletes_the_file(cache_dir: Path) -> None:
    cache = ShardCache(cache_dir)
    held = obtained(cache)
    with held.path.open("rb") as stream:
        held.path.unlink()
        again = obtained(cache)
        assert stream.read() == again.path.read_bytes() == DATA
    cache.release(held)
    assert again.path.read_bytes() == DATA
    cache.release(again)


HOLD = """
import sys
from pathlib import Path
from loader.cache import ShardCache
cache, sha256, num_bytes = ShardCache(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
def pieces():
    yield b"half"
    print("downloading", flush=True)
    sys.stdin.read()
cache.obtain(sha256, num_bytes, pieces, wait=lambda _: False)
print("held", flush=True)
sys.stdin.read()
"""


def holder(cache_dir: Path) -> "subprocess.Popen[str]":
    """Another process that holds, or waits in the middle of downloading, the shard."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(cache_dir), SHA256, str(len(DATA))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() in ("held\n", "downloading\n")
    return process


def killed(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


def test_a_sweep_spares_what_a_living_process_holds_and_takes_what_a_killed_one_held(cache_dir: Path) -> None:
    cache = ShardCache(cache_dir)
    mine = obtained(cache)
    process = holder(cache_dir)
    cache.release(mine)
    cache.sweep(keep=())
    assert names(cache_dir) == [f"{SHA256}.tar"]
    killed(process)
    cache.sweep(keep=[SHA256])
    assert names(cache_dir) == [f"{SHA256}.tar"]
    cache.sweep(keep=())
    assert names(cache_dir) == []


def test_a_download_of_a_killed_process_is_taken_over(cache_dir: Path) -> None:
    cache = ShardCache(cache_dir)
    process = holder(cache_dir)
    assert names(cache_dir) == [f"{SHA256}.part"]
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            killed(process)
        return False

    held = cache.obtain(SHA256, len(DATA), lambda: iter([DATA]), wait=wait)
    assert held is not None
    assert len(waits) == 2
    assert held.path.read_bytes() == DATA
    assert names(cache_dir) == [f"{SHA256}.tar"]


def test_waiting_for_another_process_can_be_given_up(cache_dir: Path) -> None:
    process = holder(cache_dir)
    assert ShardCache(cache_dir).obtain(SHA256, len(DATA), must_not_download, wait=lambda _: True) is None
    killed(process)


def test_a_forked_child_does_not_keep_a_released_shard(cache_dir: Path) -> None:
    cache = ShardCache(cache_dir)
    held = obtained(cache)
    fork = multiprocessing.get_context("fork")
    done = fork.Event()
    child = fork.Process(target=done.wait)  # inherits the lock's descriptor
    child.start()
    cache.release(held)
    assert names(cache_dir) == []
    done.set()
    child.join()


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(CacheError, match=r"cache cannot be made \(File exists\); give another cache_dir"):
        ShardCache(tmp_path / "cache")


def test_a_folder_that_this_user_cannot_write_is_refused() -> None:
    def child() -> None:
        if os.getuid() == 0:
            os.setuid(65_534)
        with pytest.raises(CacheError, match="cache_dir / cannot be written by this user; give another cache_dir"):
            ShardCache(Path("/"))

    forked = multiprocessing.get_context("fork").Process(target=child)
    forked.start()
    forked.join()
    assert forked.exitcode == 0


def test_a_folder_that_was_cleaned_away_is_made_again(cache_dir: Path) -> None:
    cache = ShardCache(cache_dir)
    cache_dir.rmdir()
    cache.release(obtained(cache))
    assert names(cache_dir) == []


# A finished file is trusted by its name and size: after a power cut those must not be there before the bytes are.
def test_a_shards_bytes_are_on_the_disk_before_its_name(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append((names(cache_dir), os.pread(descriptor, len(DATA), 0)))

    monkeypatch.setattr(os, "fsync", fsync)
    cache = ShardCache(cache_dir)
    cache.release(obtained(cache))
    assert synced == [([f"{SHA256}.part"], DATA)]
