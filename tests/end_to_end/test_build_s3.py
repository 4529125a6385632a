"""The build from S3 to S3, over connections that break."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from manifests.manifest import load
from tests.s3_server import UnreliableS3, client

Build = Callable[..., subprocess.CompletedProcess[str]]


def test_a_build_from_s3_to_s3_over_breaking_connections_equals_the_local_one(
    config_file: Callable[..., Path],
    run_build: Build,
    repository: Path,
    s3_root: str,
    unreliable_s3: UnreliableS3,
    tmp_path: Path,
) -> None:
    """Names with a space, a plus and Cyrillic are keys as they stand; the first answer for every key is cut."""
    sample = repository / "examples" / "sample"
    bucket = s3_root.removeprefix("s3://")
    files = {
        "in/mail/новости 1+1.parquet": sample / "mail" / "debian_news.parquet",
        "in/docs/a b/tarantool%20.jsonl.zst": sample / "docs" / "tarantool.jsonl.zst",
    }
    for key, path in files.items():
        client().put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
        copy = tmp_path / key
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())

    def sources(root: str) -> list[dict[str, object]]:
        return [{"name": kind, "paths": [f"{root}/in/{kind}"]} for kind in ("docs", "mail")]

    local = run_build(config_file(tmp_path / "out", sources=sources(str(tmp_path))))
    assert local.returncode == 0, local.stderr
    unreliable_s3.fail("break", "GET", times=1)
    remote = run_build(config_file(f"{s3_root}/out", sources=sources(s3_root), workers=2))
    assert remote.returncode == 0, remote.stderr
    assert unreliable_s3.num_faults > 20
    unreliable_s3.heal()
    assert remote.stdout == f"{s3_root}/out/manifests/v1.json\n"

    expected, dataset = load(local.stdout.strip()), load(remote.stdout.strip())
    assert dataset.manifest.digest == expected.manifest.digest
    for split in expected.manifest.splits.values():
        for shard in split.shards:
            stored = client().get_object(Bucket=bucket, Key=f"out/{shard.path}")["Body"].read()
            assert stored == Path(expected.resolve(shard.path)).read_bytes()
    secret = b"not-a-real-secret"
    for item in client().list_objects_v2(Bucket=bucket, Prefix="out/")["Contents"]:
        assert secret not in client().get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
