"""Bad shards, bad disks, killed ranks: a clear error or the same batches, and nothing left behind."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from loader import Loader
from loader.cache import FullDiskError, ShardCache
from loader.early import EarlyRows, _hash
from loader.rows import ShardError
from loader.shards import LocalShard
from manifests import ExampleFormat, storage
from manifests.shard import TOKENS_OFFSET
from tests.datasets import EOS
from tests.loader.loader_datasets import EXAMPLE, epoch_of, named, numbered_dataset, write_dataset
from tests.s3_server import UnreliableS3, client

Write = Callable[..., str]
ONE = ("input_ids",)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [flipped, lambda path: path.unlink(), lambda path: os.truncate(path, 1024)])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_bad_local_shard_is_masked_in_place_where_asked(tmp_path: Path, harm: object, num_workers: int) -> None:
    manifest = numbered_dataset(tmp_path, (5, 6, 4))
    whole = epoch_of(Loader(manifest, global_batch=3))
    harm(tmp_path / "shards/train/v1-000001.tar")  # type: ignore[operator]  # one of the three above
    loader = Loader(manifest, global_batch=3, bad_shards="mask", verify_local=True, num_workers=num_workers)
    masked = 0
    for expected, batch in zip(whole, loader, strict=True):
        for row, (shard, example) in enumerate(expected):
            if shard == 1:
                masked += 1
                assert batch["labels"][row].tolist() == [-100] * 8
                assert batch["input_ids"][row].tolist() == [EOS] * 8
            else:
                assert named(batch["input_ids"][row, :1].tolist()) == [(shard, example)]
        loader.advance()
    assert loader.metrics()["masked_rows"] == masked == 6
    loader.close()


def test_a_flipped_byte_of_a_local_shard_is_an_error_where_local_shards_are_verified(tmp_path: Path) -> None:
    manifest = numbered_dataset(tmp_path, (5, 6))
    flipped(tmp_path / "shards/train/v1-000001.tar")
    loader = Loader(manifest, global_batch=1, verify_local=True)
    with pytest.raises(ShardError, match=r"shard shards/train/v1-000001.tar at .* has sha256 .*, the manifest says"):
        epoch_of(loader)
    loader.close()


def test_a_bad_shard_in_storage_is_masked_in_place_where_asked(
    on_s3: Write, s3_root: str, cache_dir: Path, unequal: str
) -> None:
    whole = epoch_of(Loader(unequal, global_batch=3))
    manifest = on_s3()
    key = "data/shards/train/v1-000004.tar"
    data = client().get_object(Bucket=s3_root.removeprefix("s3://"), Key=key)["Body"].read()
    client().put_object(Bucket=s3_root.removeprefix("s3://"), Key=key, Body=data[:-1] + b"x")
    loader = Loader(manifest, global_batch=3, cache_dir=cache_dir, bad_shards="mask")
    assert epoch_of(loader) == [[row for row in step if row[0] != 4] for step in whole]
    assert loader.counters.masked_rows == 9
    loader.close()
    assert list(cache_dir.iterdir()) == []


LARGE = ExampleFormat(seq_len=65_536, dtype="uint32", packing="concat")


@pytest.fixture(scope="module")
def large_rows() -> list[np.ndarray]:
    """Two shards of 20 examples, 5 MB each: large enough that their first rows come by themselves."""
    rows = [np.full((20, LARGE.seq_len), 7, dtype="<u4") for _ in range(2)]
    for shard, of in enumerate(rows):
        of[:, 0] = 10 + shard * 1000 + np.arange(20)
    return rows


def test_the_first_rows_do_not_wait_for_their_shards(
    large_rows: list[np.ndarray], s3_root: str, unreliable_s3: UnreliableS3, cache_dir: Path, tmp_path: Path
) -> None:
    local = Loader(write_dataset(str(tmp_path), large_rows, example=LARGE), global_batch=2, columns=ONE)
    loader = Loader(
        write_dataset(f"{s3_root}/data", large_rows, example=LARGE), global_batch=2, columns=ONE, cache_dir=cache_dir
    )
    assert epoch_of(loader) == epoch_of(local)
    assert 1 <= loader.counters.early_rows <= 40
    assert loader.counters.shards_fetched == 2
    assert loader.counters.bytes_fetched == 2 * LARGE.shard_num_bytes(20)
    loader.close()


def test_shards_come_ahead_of_need_where_other_sources_give_the_first_rows(
    large_rows: list[np.ndarray], s3_root: str, cache_dir: Path, tmp_path: Path
) -> None:
    remote = write_dataset(f"{s3_root}/data", large_rows, example=LARGE)
    # Windows of two steps, of which the first ten hold no row of the other source.
    local = write_dataset(str(tmp_path), [large_rows[0][at : at + 2] for at in range(0, 20, 2)] * 3, example=LARGE)
    loader = Loader(
        {remote: 0.05, local: 0.95}, global_batch=2, columns=ONE, cache_dir=cache_dir, num_ahead=0, ranks_per_node=1
    )
    next(iter(loader))
    end = time.monotonic() + 60
    while loader.counters.shards_fetched < 2 and time.monotonic() < end:
        time.sleep(0.02)
    assert (loader.counters.shards_fetched, loader.counters.early_rows) == (2, 0)
    loader.close()


@pytest.mark.parametrize("fault", ["503", "cut", "stall", "flip"])
def test_faults_on_the_way_change_no_early_row(
    large_rows: list[np.ndarray],
    s3_root: str,
    unreliable_s3: UnreliableS3,
    cache_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    either_way: None,
    fault: str,
) -> None:
    monkeypatch.setenv("SHARDMILL_S3_READ_TIMEOUT_S", "0.2")
    local = Loader(write_dataset(str(tmp_path), large_rows, example=LARGE), global_batch=2, columns=ONE)
    manifest = write_dataset(f"{s3_root}/data", large_rows, example=LARGE)
    loader = Loader(manifest, global_batch=2, columns=ONE, cache_dir=cache_dir)
    unreliable_s3.fail(fault, "GET", path_part=".tar", times=2)
    assert epoch_of(loader) == epoch_of(local)
    assert unreliable_s3.num_faults == 4
    assert loader.counters.early_rows >= 1
    loader.close()


def test_rows_that_come_early_while_their_shard_arrives_are_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered_dataset(tmp_path, (5,))
    [path] = (tmp_path / "shards/train").iterdir()
    shard = LocalShard(name="x", path=str(path), num_bytes=path.stat().st_size, num_examples=5, is_cached=True)
    rows = EarlyRows(EXAMPLE, lambda _: str(path))
    rows.read({0: [0]}, {0: "x"})
    arriving = iter([shard])

    def hash_while_the_shard_arrives(row: bytes) -> bytes:
        for arrived in arriving:
            rows.check(0, arrived)
        return _hash(row)

    monkeypatch.setattr("loader.early._hash", hash_while_the_shard_arrives)
    rows.read({0: [1]}, {0: "x"})
    data = path.read_bytes()
    at = EXAMPLE.stride + TOKENS_OFFSET
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ShardError, match="example 1 of shard x was read from storage before its shard"):
        rows.check(0, shard)


def test_forked_workers_read_their_first_rows_beside_a_parent_that_reads(
    large_rows: list[np.ndarray], s3_root: str, cache_dir: Path
) -> None:
    manifest = write_dataset(f"{s3_root}/data", large_rows, example=LARGE)
    loader = Loader(manifest, global_batch=2, columns=ONE, cache_dir=cache_dir)
    first = large_rows[0][0].tobytes()
    for batch in DataLoader(loader.dataset(), batch_size=None, num_workers=2, timeout=60):
        assert named(batch["input_ids"][:, 0].tolist()) == loader.global_batch_examples()
        loader.advance()
        # Over a connection that the workers have inherited.
        assert storage.read_bytes(f"{s3_root}/data/shards/train/v1-000000.tar", TOKENS_OFFSET, len(first)) == first
    assert loader.epoch == 1


def test_a_row_that_was_not_its_shards_is_an_error_once_the_shard_is_there(
    large_rows: list[np.ndarray], s3_root: str, cache_dir: Path
) -> None:
    manifest = write_dataset(f"{s3_root}/data", large_rows, example=LARGE)
    key, bucket = "data/shards/train/v1-000000.tar", s3_root.removeprefix("s3://")
    good = client().get_object(Bucket=bucket, Key=key)["Body"].read()
    bad = good.replace(np.uint32(7).tobytes(), np.uint32(8).tobytes())
    client().put_object(Bucket=bucket, Key=key, Body=bad)
    loader = Loader(manifest, global_batch=2, columns=ONE, cache_dir=cache_dir)
    batches = iter(loader)
    with pytest.raises(ShardError, match=r"v1-000000.tar .* is not what the manifest says, twice"):
        list(batches)
    loader.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False).returncode:
        pytest.skip("a small disk takes the right to mount one")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_waited_out(small_disk: Path, on_s3: Write, unequal: str) -> None:
    other = small_disk / "another job's"
    other.write_bytes(bytes(60_000))
    manifest = on_s3((6,) * 8)
    loader = Loader(manifest, global_batch=2, cache_dir=small_disk / "cache")
    batches = iter(loader)

    def make_room() -> None:
        while not loader.counters.full_disk_waits:
            pass
        other.unlink()

    thread = threading.Thread(target=make_room)
    thread.start()
    assert len(list(batches)) == 24
    thread.join()
    assert loader.counters.full_disk_waits >= 1
    loader.close()


def test_a_disk_without_room_is_named_before_anything_is_downloaded(small_disk: Path) -> None:
    def must_not_download() -> Iterator[bytes]:
        raise AssertionError("there is no room")

    with pytest.raises(FullDiskError, match=r"cache_dir .* without room for a shard of 1000000 bytes; free some"):
        ShardCache(small_disk / "cache").obtain("0" * 64, 1_000_000, must_not_download, wait=lambda _: False)
    assert list((small_disk / "cache").iterdir()) == []


RANK = """
import json, sys
from loader import Loader
manifest, cache, state, steps = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
loader = Loader(manifest, global_batch=3, columns=("input_ids",), cache_dir=cache, num_workers=int(sys.argv[5]))
if state:
    loader.load_state_dict(state)
for batch, _ in zip(loader, range(steps)):
    loader.advance()
    print(json.dumps([batch["input_ids"][:, 0].tolist(), loader.state_dict()]), flush=True)
"""


def rank(
    manifest: str, cache_dir: Path, state: object = None, steps: int = 99, workers: int = 0
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RANK, manifest, str(cache_dir), json.dumps(state), str(steps), str(workers)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_rank_goes_on_beside_another_job_and_nothing_is_left(
    on_s3: Write, unequal: str, cache_dir: Path, workers: int
) -> None:
    manifest = on_s3()
    expected = epoch_of(Loader(unequal, global_batch=3))
    other = rank(manifest, cache_dir)
    first = rank(manifest, cache_dir, workers=workers)
    assert first.stdout is not None
    lines = [json.loads(first.stdout.readline()) for _ in range(4)]
    assert not [path for pid in family_of(first.pid) for path in named_memory(pid)]
    first.send_signal(signal.SIGKILL)
    # Not communicate(), which passes over what readline() has read ahead.
    lines += [json.loads(line) for line in first.stdout]
    first.wait()
    again = rank(manifest, cache_dir, state=lines[-1][1], workers=workers)
    lines += [json.loads(line) for line in again.communicate(timeout=60)[0].splitlines()]
    assert [named(tokens) for tokens, _ in lines] == expected
    others = [json.loads(line) for line in other.communicate(timeout=60)[0].splitlines()]
    assert [named(tokens) for tokens, _ in others] == expected
    # What the killed rank held is swept at the next start; here the last to leave had swept before it was killed.
    ShardCache(cache_dir).sweep(keep=())
    assert list(cache_dir.iterdir()) == []


def family_of(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [pid, *map(int, children.split())]


def named_memory(pid: int) -> list[str]:
    """What a process maps of /dev/shm, where a kill would leave it."""
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    return [line for line in maps.splitlines() if "/dev/shm" in line]


def test_a_worker_that_is_killed_is_named(unequal: str) -> None:
    script = (
        "import multiprocessing, os, signal, sys\n"
        "from loader import Loader\n"
        "batches = iter(Loader(sys.argv[1], global_batch=1, num_workers=2))\n"
        "next(batches)\n"
        "[os.kill(child.pid, signal.SIGKILL) for child in multiprocessing.active_children()]\n"
        "try:\n    list(batches)\nexcept ValueError as error:\n    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, unequal], capture_output=True, text=True, timeout=60, check=True
    )
    assert "loader worker " in ended.stdout
    assert "ended with exit code -9" in ended.stdout


def test_ranks_of_a_node_divide_its_cache_and_never_exceed_it(on_s3: Write, unequal: str, cache_dir: Path) -> None:
    manifest = on_s3()
    options = {"global_batch": 4, "world_size": 2, "cache_dir": cache_dir}
    with pytest.raises(ValueError, match=r"give cache_bytes=(\d+) or more") as refusal:
        Loader(manifest, rank=0, cache_bytes=1, **options)
    limit = int(str(refusal.value).split("give cache_bytes=")[1].split()[0])
    with pytest.raises(ValueError, match=f"give cache_bytes={limit} or more"):
        Loader(manifest, rank=1, cache_bytes=limit - 1, **options)
    loaders = [Loader(manifest, rank=number, cache_bytes=limit, **options) for number in range(2)]
    found, most = [], 0
    for batches in itertools.zip_longest(*loaders):
        found.append([row for batch in batches for row in named(batch["input_ids"][:, 0].tolist())])
        with_sizes = [path.stat().st_size for path in list(cache_dir.iterdir()) if path.exists()]
        most = max(most, sum(with_sizes))
        for loader in loaders:
            loader.advance()
    for loader in loaders:
        loader.close()
    assert found == epoch_of(Loader(unequal, global_batch=4))
    assert 0 < most <= limit
    # One of two nodes needs its own rank's part alone.
    Loader(manifest, rank=0, cache_bytes=limit - 1, ranks_per_node=1, **options).close()
