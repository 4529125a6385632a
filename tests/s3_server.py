"""An S3 server for tests, and an unreliable way to it.

`s3_root` is a fresh bucket's URL. moto's server in this process serves it; with SHARDMILL_TEST_S3_ENDPOINT (and
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) set, a real one does: `../shared/tools/real_s3 start` brings one up and prints
what to export. To use it: take the fixtures as arguments: tests/conftest.py has them for every folder.
"""

import contextlib
import functools
import http.client
import itertools
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

_bucket_numbers = itertools.count()
# What a test's own client sends: nothing that would count as one of ours in a test of the requests made.
_CONFIG = Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The endpoint's URL: a real server's where one is named, moto's otherwise."""
    real = os.environ.get("SHARDMILL_TEST_S3_ENDPOINT")
    if real:
        yield real
        return
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """`s3://bucket` of a bucket of its own, with the environment set for boto3, in this process and its children."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    if "SHARDMILL_TEST_S3_ENDPOINT" not in os.environ:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-real-secret")
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    bucket = f"shardmill-test-{os.getpid()}-{next(_bucket_numbers)}"
    client(s3_endpoint).create_bucket(Bucket=bucket)
    return f"s3://{bucket}"


def client(endpoint: str | None = None) -> Any:
    """boto3 by itself, to look at a store from outside our code."""
    return _client(endpoint or os.environ["AWS_ENDPOINT_URL"])


@functools.cache
def _client(endpoint: str) -> Any:
    return boto3.session.Session().client("s3", endpoint_url=endpoint, config=_CONFIG)


@dataclass
class UnreliableS3:
    """A proxy before the server, and what it does to requests: nothing, until `fail` says what.

    Faults: "503"; "break", half of the body, then a reset; "cut", half of the body, then a clean close; "refuse", a
    reset before any answer; "lost": the server does it, and the answer never arrives; "stall", half of the body, then
    silence until the client gives up; "flip", one bit of the body changed; "expired": credentials are refused.
    expired_key: requests signed with this access key id are refused, whatever they are.
    """

    endpoint: str
    fault: str | None = None
    expired_key: str | None = None
    method: str = ""
    path_part: str = ""
    times: int = 0
    num_faults: int = 0
    num_requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    flips: "itertools.count[int]" = field(default_factory=itertools.count)

    def fail(self, fault: str, method: str, *, path_part: str = "", times: int = 10**9) -> None:
        """From now on the first `times` requests of this method for each path that holds `path_part` meet `fault`."""
        self.fault, self.method, self.path_part, self.times = fault, method, path_part, times
        self.num_requests.clear()

    def heal(self) -> None:
        self.fault = None

    def fault_for(self, method: str, path: str) -> str | None:
        self.num_requests[method, path] += 1
        meant = method == self.method and self.path_part in path and self.num_requests[method, path] <= self.times
        if self.fault is None or not meant:
            return None
        self.num_faults += 1
        return self.fault


@pytest.fixture
def unreliable_s3(s3_endpoint: str, s3_root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreliableS3]:
    """`s3_root`'s server behind a proxy that is now what AWS_ENDPOINT_URL names; `.fail(...)` makes it so."""
    unreliable = UnreliableS3(endpoint=s3_endpoint)
    server = _proxy(unreliable)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield unreliable
    server.shutdown()
    server.server_close()


def _proxy(unreliable: UnreliableS3) -> ThreadingHTTPServer:
    upstream = urlsplit(unreliable.endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = unreliable.fault_for(self.command, self.path)
            if fault == "refuse":
                self.reset()
                return
            if fault == "503":
                answer = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
                self.answer(503, [("Content-Type", "application/xml")], answer, len(answer))
                return
            key = unreliable.expired_key
            if fault == "expired" or (key is not None and f"={key}/" in self.headers.get("Authorization", "")):
                answer = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
                self.answer(400, [("Content-Type", "application/xml")], answer, len(answer))
                return
            status, headers, data = self.ask(body)
            if fault == "lost":
                self.reset()
                return
            kept = data[: len(data) // 2] if fault in ("break", "cut", "stall") else data
            if fault == "flip" and data:
                at = (
                    next(unreliable.flips) * 7919 % len(data)
                )  # never the same twice running, nor in two requests at once
                kept = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
            self.answer(status, headers, kept, int(length))
            if fault == "break":
                self.reset()
            elif fault == "cut":
                self.close_connection = True
            elif fault == "stall":
                self.close_connection = True
                self.rfile.read(1)  # until the client closes its end

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        def ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=60)
            # The Host header is signed: it goes on as the client wrote it.
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            connection.request(self.command, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            return answer.status, answer.getheaders(), data

        def answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: int) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        def reset(self) -> None:
            self.close_connection = True
            # A linger of 0 makes close() send RST: what was not read yet is lost, as with a machine that dies.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.connection.close()

        def handle(self) -> None:
            # The client is gone, or `reset` closed the connection: nobody is left to tell.
            with contextlib.suppress(OSError, ValueError):
                super().handle()

        def finish(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                super().finish()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing: what was asked is in `requests`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server
