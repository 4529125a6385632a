"""Storage that fails: asked again with growing waits, caught by length and hash, named in errors; batches unchanged."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loader import Loader, download
from loader.rows import ShardError
from manifests import storage
from manifests.objects import AccessError, StorageError
from tests.loader.loader_datasets import epoch_of, named
from tests.s3_server import UnreliableS3, client

Write = Callable[..., str]


@pytest.mark.parametrize("fault", ["503", "break", "cut", "refuse", "stall", "flip", "expired"])
def test_faults_on_the_way_change_no_batch(
    unequal: str,
    on_s3: Write,
    unreliable_s3: UnreliableS3,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    either_way: None,
    fault: str,
) -> None:
    monkeypatch.setenv("SHARDMILL_S3_READ_TIMEOUT_S", "0.2")
    manifest = on_s3()
    loader = Loader(manifest, global_batch=3, cache_dir=cache_dir)
    # A new client costs a tenth of a second: two shards show it.
    unreliable_s3.fail(fault, "GET", path_part="v1-00001" if fault == "expired" else ".tar", times=1)
    assert epoch_of(loader) == epoch_of(Loader(unequal, global_batch=3))
    loader.close()
    assert unreliable_s3.num_faults >= (2 if fault == "expired" else 12)
    assert list(cache_dir.iterdir()) == []


def overwritten(s3_root: str, key: str) -> bytes:
    """Flips a byte of an object; returns what it was."""
    bucket = s3_root.removeprefix("s3://")
    store = client()
    data: bytes = store.get_object(Bucket=bucket, Key=key)["Body"].read()
    store.put_object(Bucket=bucket, Key=key, Body=data[:700] + bytes([data[700] ^ 1]) + data[701:])
    return data


KEY = "data/shards/train/v1-000001.tar"


def test_a_wrong_checksum_that_stays_is_an_error_naming_the_shard(on_s3: Write, s3_root: str, cache_dir: Path) -> None:
    loader = Loader(on_s3((5, 6)), global_batch=1, cache_dir=cache_dir)
    overwritten(s3_root, KEY)
    with pytest.raises(
        ShardError, match=r"shard shards/train/v1-000001.tar at s3://.* is not what the manifest says, twice"
    ):
        epoch_of(loader)
    loader.close()
    assert list(cache_dir.iterdir()) == []


def test_a_wrong_checksum_that_goes_away_costs_one_more_download(on_s3: Write, s3_root: str, cache_dir: Path) -> None:
    loader = Loader(on_s3((5, 6)), global_batch=1, cache_dir=cache_dir)
    data = overwritten(s3_root, KEY)
    warnings = []

    class MendAtTheWarning(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())
            client().put_object(Bucket=s3_root.removeprefix("s3://"), Key=KEY, Body=data)

    handler = MendAtTheWarning(level=logging.WARNING)
    logging.getLogger("loader.download").addHandler(handler)
    try:
        assert len(epoch_of(loader)) == 11
    finally:
        logging.getLogger("loader.download").removeHandler(handler)
        loader.close()
    [warning] = warnings
    assert warning.startswith("shard shards/train/v1-000001.tar: ")
    assert warning.endswith("downloading it again")


def test_a_missing_shard_is_an_error_of_the_iteration(on_s3: Write, s3_root: str, cache_dir: Path) -> None:
    loader = Loader(on_s3((5, 6)), global_batch=1, cache_dir=cache_dir)
    client().delete_object(Bucket=s3_root.removeprefix("s3://"), Key=KEY)
    with pytest.raises(FileNotFoundError, match=r"v1-000001\.tar"):
        epoch_of(loader)
    loader.close()


def test_a_shard_replaced_under_its_name_is_caught(on_s3: Write, s3_root: str, cache_dir: Path) -> None:
    manifest = on_s3((5, 6))
    bucket = s3_root.removeprefix("s3://")
    other = client().get_object(Bucket=bucket, Key="data/shards/train/v1-000000.tar")["Body"].read()
    client().put_object(Bucket=bucket, Key="data/shards/train/v1-000001.tar", Body=other)
    loader = Loader(manifest, global_batch=1, cache_dir=cache_dir)
    with pytest.raises(
        ShardError,
        match=r"v1-000001.tar .* is not what the manifest says, twice, the same bytes: \d+ bytes with sha256",
    ):
        epoch_of(loader)
    loader.close()
    assert list(cache_dir.iterdir()) == []


def quick(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Waits of milliseconds, for tests of what is given up in the end."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    if fault == "stall":  # with other faults, a machine that is busy elsewhere would be taken for one
        monkeypatch.setenv("SHARDMILL_S3_READ_TIMEOUT_S", "0.05")
    monkeypatch.setattr(download, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("manifests.s3_read._FIRST_WAIT_S", 0.001)


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("503", StorageError, r"read s3://.*v1-00000.\.tar: .*SlowDown.* \(HTTP 503\): gave up after retries"),
        ("refuse", StorageError, r"read s3://.*v1-00000.\.tar: "),
        ("cut", StorageError, r"s3://.*v1-00000.\.tar: no byte after \d+ of \d+ in 8 tries: "),
        ("stall", StorageError, r"s3://.*v1-00000.\.tar: .*ReadTimeoutError"),
        (
            "flip",
            ShardError,
            r"shard shards/train/v1-00000.\.tar at s3://.* is not what the manifest says, in 6 downloads",
        ),
        ("expired", AccessError, r"read s3://.*v1-00000.\.tar: ExpiredToken \(HTTP 400\): .* check AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_fault_that_stays_is_an_error_naming_the_shard_and_the_fault(
    on_s3: Write,
    unreliable_s3: UnreliableS3,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    kind: type[Exception],
    message: str,
) -> None:
    manifest = on_s3((5, 6))
    quick(monkeypatch, fault)
    loader = Loader(manifest, global_batch=1, cache_dir=cache_dir)
    # "cut" brings half of what is asked for each time: the last byte never comes, and is asked for to the end.
    unreliable_s3.fail(fault, "GET", path_part=".tar")
    with pytest.raises(kind, match=message) as refusal:
        epoch_of(loader)
    loader.close()
    assert "\n" not in str(refusal.value)
    assert "not-a-real-secret" not in str(refusal.value)
    assert list(cache_dir.iterdir()) == []


def test_credentials_renewed_in_their_file_are_taken_up(
    unequal: str,
    on_s3: Write,
    unreliable_s3: UnreliableS3,
    cache_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = on_s3()
    good = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in good:
        monkeypatch.delenv(name)

    def write(key_id: str) -> None:
        secret = good["AWS_SECRET_ACCESS_KEY"]
        (tmp_path / "credentials").write_text(
            f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n"
        )

    write("OLDKEY" if "SHARDMILL_TEST_S3_ENDPOINT" not in os.environ else good["AWS_ACCESS_KEY_ID"])
    loader = Loader(manifest, global_batch=3, cache_dir=cache_dir)
    write("OLDKEY")
    storage.reconnect()
    unreliable_s3.expired_key = "OLDKEY"

    class RenewAtTheWarning(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert "ExpiredToken" in record.getMessage()
            write(good["AWS_ACCESS_KEY_ID"])

    handler = RenewAtTheWarning(level=logging.WARNING)
    logging.getLogger("loader.download").addHandler(handler)
    try:
        assert epoch_of(loader) == epoch_of(Loader(unequal, global_batch=3))
    finally:
        logging.getLogger("loader.download").removeHandler(handler)
        loader.close()
    assert loader.counters.retries >= 1


@pytest.mark.skipif("SHARDMILL_TEST_S3_ENDPOINT" in os.environ, reason="a real server knows one key")
def test_credentials_that_expire_in_mid_run_are_taken_up_from_the_environment(
    unequal: str, on_s3: Write, unreliable_s3: UnreliableS3, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = on_s3()
    good = os.environ["AWS_ACCESS_KEY_ID"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLDKEY")
    loader = Loader(manifest, global_batch=3, cache_dir=cache_dir)
    batches = iter(loader)
    steps = [named(next(batches)["input_ids"][:, 0].tolist())]
    warnings = []

    class RenewAtTheWarning(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", good)

    handler = RenewAtTheWarning(level=logging.WARNING)
    logging.getLogger("loader.download").addHandler(handler)
    unreliable_s3.expired_key = "OLDKEY"
    try:
        steps += [named(batch["input_ids"][:, 0].tolist()) for batch in batches]
    finally:
        logging.getLogger("loader.download").removeHandler(handler)
        loader.close()
    assert steps == epoch_of(Loader(unequal, global_batch=3))
    assert "ExpiredToken" in warnings[0]
