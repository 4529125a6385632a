"""GETs from S3 over the standard library's HTTP, signed here, where the environment alone says how to ask.

No retries, and no words for errors: for both, whoever asks turns to boto3 (s3_get.py). So this is small, and has only
to ask as boto3 would. Where anything else has a say (a profile, a file of settings, a role, a proxy), there is no plain
way.
"""

import contextlib
import functools
import http.client
import os
import re
import ssl
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from manifests.s3_get import CONNECT_TIMEOUT_S, MAX_CONNECTIONS, Answer, BrokenBody
from manifests.s3_signature import Credentials, signed_headers

# With no variables of AWS's but these, boto3 would ask for an object as this does.
_UNDERSTOOD = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"}
    | {"AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}
    # boto3's own business, once it is asked; and what it leaves unread for S3.
    | {"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE", "AWS_EC2_METADATA_DISABLED", "AWS_EXECUTION_ENV", "AWS_REGION"}
)
# Regions and buckets whose host name on AWS itself is the plain one: not China's, the government's, nor dotted names.
_AWS_REGION = re.compile(r"(?!cn-)[a-z]{2}-[a-z]+-[0-9]")
_AWS_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


@dataclass(frozen=True, kw_only=True)
class Store:
    """Where and as whom to ask. host: with its port where one is named; None for AWS itself, a host for each bucket."""

    is_tls: bool
    host: str | None
    region: str
    credentials: Credentials

    def place(self, bucket: str, key: str) -> tuple[str, str] | None:
        """The host and the percent-encoded path of an object; None where AWS may want it otherwise."""
        path = quote(key, safe="/~")
        if self.host is not None:
            return self.host, f"/{quote(bucket)}/{path}"
        if not _AWS_BUCKET.fullmatch(bucket):
            return None
        return f"{bucket}.s3.{self.region}.amazonaws.com", f"/{path}"


def store_of(environment: Mapping[str, str]) -> Store | None:
    """The store that an environment (all of it) names, where nothing else has a say; else None."""
    aws = {name: value for name, value in environment.items() if name.startswith("AWS_")}
    if not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= aws.keys() <= _UNDERSTOOD or not all(aws.values()):
        return None
    if any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in environment):
        return None
    files = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    if any(_is_file(aws.get(name, default)) for name, default in files):
        return None
    credentials = Credentials(
        key_id=aws["AWS_ACCESS_KEY_ID"], secret=aws["AWS_SECRET_ACCESS_KEY"], token=aws.get("AWS_SESSION_TOKEN")
    )
    region = aws.get("AWS_DEFAULT_REGION")
    endpoint = aws.get("AWS_ENDPOINT_URL_S3", aws.get("AWS_ENDPOINT_URL"))
    if endpoint is None:
        if region is None or not _AWS_REGION.fullmatch(region):
            return None
        return Store(is_tls=True, host=None, region=region, credentials=credentials)
    found = re.fullmatch(r"(https?)://([A-Za-z0-9.-]+(?::[0-9]+)?)/?", endpoint)
    if found is None:  # with a password or a path, or none at all
        return None
    # boto3's own region for a store that names none.
    return Store(is_tls=found[1] == "https", host=found[2], region=region or "us-east-1", credentials=credentials)


def _is_file(path: str) -> bool:
    """Whether botocore finds a file there. Unlike pathlib, no error for a user without a home."""
    return os.path.isfile(os.path.expanduser(os.path.expandvars(path)))  # noqa: PTH111, PTH113


def plain_s3(environment: Mapping[str, str], *, read_timeout_s: float) -> "PlainS3 | None":
    """The plain way, where there is one in this environment (all of it)."""
    store = store_of(environment)
    if store is None:
        return None
    trusted = environment.get("AWS_CA_BUNDLE") or environment.get("REQUESTS_CA_BUNDLE")
    try:
        return PlainS3(store, read_timeout_s=read_timeout_s, tls=_tls(trusted) if store.is_tls else None)
    except (ImportError, OSError):  # certificates that are not to be had, or not so: boto3 has its own, or says so
        return None


@functools.cache  # 18 ms, which every thread of a forked process would spend anew
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """A context that trusts this file, by default whom boto3 trusts."""
    if ca_file is None:
        import certifi

        ca_file = certifi.where()
    return ssl.create_default_context(cafile=ca_file)


class PlainS3:
    """GETs from one store, over connections that are kept. Used by several threads of one process.

    read_timeout_s: how long a connection may bring nothing.
    """

    def __init__(self, store: Store, *, read_timeout_s: float, tls: ssl.SSLContext | None) -> None:
        self._store = store
        self._read_timeout_s = read_timeout_s
        self._tls = tls
        self._idle: dict[str, deque[http.client.HTTPConnection]] = {}

    def get(self, bucket: str, key: str, headers: dict[str, str]) -> Answer | None:
        """An object, or the range of it that `headers` names; None for any other answer, or none."""
        place = self._store.place(bucket, key)
        if place is None:
            return None
        host, path = place
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = signed_headers(
            path, {**headers, "host": host}, self._store.credentials, region=self._store.region, time=now
        )
        idle = self._idle.setdefault(host, deque())
        # A ValueError is what http.client says of a header that cannot be sent.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            while connection := _taken(idle):
                # The store may have closed it meanwhile.
                with contextlib.suppress(ConnectionError, ssl.SSLError, http.client.HTTPException):
                    return _asked(connection, path, signed, idle)
            return _asked(self._connected(host), path, signed, idle)
        return None

    def _connected(self, host: str) -> http.client.HTTPConnection:
        connection = (
            http.client.HTTPSConnection(host, timeout=CONNECT_TIMEOUT_S, context=self._tls)
            if self._tls
            else http.client.HTTPConnection(host, timeout=CONNECT_TIMEOUT_S)
        )
        connection.connect()
        connection.sock.settimeout(self._read_timeout_s)
        return connection


def _taken(idle: deque[http.client.HTTPConnection]) -> http.client.HTTPConnection | None:
    try:
        return idle.pop()
    except IndexError:
        return None


def _asked(
    connection: http.client.HTTPConnection,
    path: str,
    headers: dict[str, str],
    idle: deque[http.client.HTTPConnection],
) -> Answer | None:
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
    except BaseException:
        connection.close()
        raise
    etag = response.getheader("etag")
    if response.status not in (200, 206) or etag is None or response.length is None:
        connection.close()
        return None
    return Answer(etag, response.length, _PlainBody(connection, response, idle))


class _PlainBody:
    def __init__(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        idle: deque[http.client.HTTPConnection],
    ) -> None:
        self._connection, self._response, self._idle = connection, response, idle

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            return self._response.readinto(buffer)
        except TimeoutError:
            raise BrokenBody("ReadTimeoutError") from None  # as boto3 names it
        except (OSError, http.client.HTTPException) as error:
            raise BrokenBody(type(error).__name__) from None

    def close(self) -> None:
        is_read = self._response.length == 0
        self._response.close()
        # `sock` is None where the store wants it closed.
        if is_read and self._connection.sock is not None and len(self._idle) < MAX_CONNECTIONS:
            self._idle.append(self._connection)
        else:
            self._connection.close()
