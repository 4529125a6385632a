"""Storage on S3 and on stores that speak its language: what storage.py promises, for `s3://bucket/key`.

boto3 does the requests: its credential chain, its AWS_* variables (AWS_ENDPOINT_URL for a compatible store,
AWS_MAX_ATTEMPTS for its retries with backoff). Reads do without it for as long as they can (s3_get.py). Broken response
bodies, which boto3 leaves to the caller, are taken up at the byte reached. A killed writer leaves an unfinished
multipart upload: invisible, but stored; give the bucket a life-cycle rule that removes those.
"""

import functools
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from manifests.errors import UserError
from manifests.objects import ObjectInfo, StorageError
from manifests.s3_errors import endpoint, translated
from manifests.s3_get import CONNECT_TIMEOUT_S, MAX_CONNECTIONS, S3Get
from manifests.s3_plain import plain_s3
from manifests.s3_read import RangedReader, ResumingReader
from manifests.s3_write import Upload

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BUFFER_BYTES = 1 << 20
# Where 30 % of all requests fail, one in 15,000 fails eight times. AWS_MAX_ATTEMPTS overrides.
_MAX_ATTEMPTS = 8
# A connection that brings nothing for so long is given up and the rest asked for again. SHARDMILL_S3_READ_TIMEOUT_S
# overrides: below what the store takes to complete a large upload, that would fail.
_READ_TIMEOUT_S = 60.0
_LONGEST_READ_TIMEOUT_S = 1e6  # sockets take some 9e9 seconds at the most


def list_objects(url: str) -> list[ObjectInfo]:
    bucket, key = _split(url)
    folder = f"{key.rstrip('/')}/" if key else ""  # `data2/x` begins with `data` as well, but not with `data/`
    with translated(url, "list"):
        pages = client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder)
        entries = [entry for page in pages for entry in page.get("Contents", [])]
    if not entries and key:
        return [stat(url)]
    # Consoles mark an empty folder by an object whose name ends in a slash.
    found = [entry for entry in entries if not entry["Key"].endswith("/")]
    infos = [_info(f"s3://{bucket}/{entry['Key']}", entry["Size"], entry["ETag"]) for entry in found]
    return sorted(infos, key=lambda info: info.url)


def stat(url: str) -> ObjectInfo:
    bucket, key = _split_object(url)
    with translated(url, "stat"):
        head = client().head_object(Bucket=bucket, Key=key)
    return _info(url, head["ContentLength"], head["ETag"])


def read_bytes(url: str, start: int, length: int | None) -> bytes:
    if length is None and start > 0:
        length = stat(url).num_bytes - start  # S3 refuses a range that begins at the end, where the rest is b""
    if start < 0 or (length is not None and length < 0):
        raise StorageError(f"{url} has no bytes from {start} on: the object is cut")
    if length == 0:
        return b""
    bucket, key = _split_object(url)
    with ResumingReader(_reads(), url, bucket, key, start=start, length=length) as reader:
        return reader.read_rest()


@contextmanager
def open_stream(url: str, start: int = 0) -> Iterator[BinaryIO]:
    bucket, key = _split_object(url)
    with io.BufferedReader(ResumingReader(_reads(), url, bucket, key, start=start), _BUFFER_BYTES) as stream:
        yield stream


@contextmanager
def open_ranged(url: str) -> Iterator[BinaryIO]:
    bucket, key = _split_object(url)
    with translated(url, "stat"):
        head = client().head_object(Bucket=bucket, Key=key)
    with RangedReader(_reads(), url, bucket, key, etag=head["ETag"], num_bytes=head["ContentLength"]) as stream:
        yield cast(BinaryIO, stream)


@contextmanager
def atomic_writer(url: str) -> Iterator[BinaryIO]:
    bucket, key = _split_object(url)
    upload = Upload(client(), url, bucket, key)
    try:
        yield cast(BinaryIO, upload)
        upload.finish()
    except BaseException as error:  # KeyboardInterrupt too: what was begun is aborted, never completed
        upload.abort(error)
        raise


def delete(url: str) -> None:
    bucket, key = _split_object(url)
    with translated(url, "delete"):
        client().delete_object(Bucket=bucket, Key=key)


def _split(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise UserError(f"{url} names no bucket: write s3://bucket/key")
    if any("\ud800" <= character <= "\udfff" for character in url):  # what Python makes of bytes that are no text
        raise UserError(f"{url!a} is not UTF-8, as the names of objects are: mend the name")
    return bucket, key


def _split_object(url: str) -> tuple[str, str]:
    bucket, key = _split(url)
    if not key:
        raise UserError(f"{url} names a bucket, not an object: write s3://bucket/key")
    return bucket, key


def _info(url: str, num_bytes: int, etag: str) -> ObjectInfo:
    return ObjectInfo(url, num_bytes, f"{etag.strip(chr(34))}-{num_bytes}")


def client() -> "S3Client":
    """This process's client: made on first use, anew after a fork and where its environment has changed."""
    return _client(os.getpid(), _environment())


def reconnect() -> None:
    _client.cache_clear()
    _reads_of.cache_clear()


def _reads() -> S3Get:
    """This process's way to read, kept as its client is."""
    return _reads_of(os.getpid(), _environment())


def _environment() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith(("AWS_", "SHARDMILL_S3_"))))


@functools.lru_cache(maxsize=4)
def _reads_of(
    pid: int,  # noqa: ARG001 - part of the cache's key, as in _client
    environment: tuple[tuple[str, str], ...],
) -> S3Get:
    # Proxies and bundles of certificates are looked at once, as boto3's client does.
    return S3Get(plain_s3(os.environ, read_timeout_s=_read_timeout_s(dict(environment))), client)


@functools.lru_cache(maxsize=4)
def _client(
    pid: int,  # noqa: ARG001 - part of the cache's key: a client's sockets must not be shared with a forked child
    environment: tuple[tuple[str, str], ...],
) -> "S3Client":
    # Here, not above: importing boto3 and making its client takes 0.2 s, and most commands never leave the local disk.
    import boto3
    from botocore.config import Config

    names = dict(environment)
    retries: dict[str, Any] = {"mode": "standard"}
    if "AWS_MAX_ATTEMPTS" not in names:
        retries["total_max_attempts"] = _MAX_ATTEMPTS
    own_endpoint = "AWS_ENDPOINT_URL" in names or "AWS_ENDPOINT_URL_S3" in names
    config = Config(
        retries=retries,  # type: ignore[arg-type]  # a TypedDict in the stubs
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=_read_timeout_s(names),
        max_pool_connections=MAX_CONNECTIONS,
        # Compatible stores seldom have a host name for each bucket.
        s3={"addressing_style": "path"} if own_endpoint else {},
        # boto3's newer default sends checksums as trailers, which many compatible stores refuse. Without one, botocore
        # signs the sha256 of every body, so the store still refuses a body damaged on its way.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # A session of its own: boto3's default one must not be shared between threads while clients are made.
    try:
        with translated("s3", "connect"):
            return boto3.session.Session().client("s3", config=config)
    except UserError:
        raise
    except ValueError:  # botocore's own text quotes the endpoint whole, with whatever password it holds
        raise UserError(f"{endpoint()} is no endpoint: mend AWS_ENDPOINT_URL") from None


def _read_timeout_s(environment: dict[str, str]) -> float:
    text = environment.get("SHARDMILL_S3_READ_TIMEOUT_S")
    try:
        seconds = _READ_TIMEOUT_S if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_READ_TIMEOUT_S:
        raise UserError(
            f"SHARDMILL_S3_READ_TIMEOUT_S is {text!r}: give seconds above 0, a million at the most, or leave it out"
        )
    return seconds
