"""Reads without boto3: signed as it signs, sent where it sends, and given up for it at the first sign of trouble."""

import datetime
import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

from manifests import storage
from manifests.s3_get import Answer, S3Get
from manifests.s3_plain import PlainS3, Store, plain_s3, store_of
from manifests.s3_signature import Credentials, signed_headers
from tests.s3_server import UnreliableS3, client

SIMPLE = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "not-a-real-secret",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
    "AWS_CONFIG_FILE": "/no/such/file",
    "AWS_SHARED_CREDENTIALS_FILE": "/no/such/file",
}
CREDENTIALS = Credentials(key_id="testing", secret="not-a-real-secret")
ODD_KEYS = ["a b/+%20.tar", "//x", "почта/ü~", "a?b#c&d=e", "it's (one)*!", "a/./b/", "x" * 1000]


def test_a_signature_is_the_one_of_the_documentations_example() -> None:
    # "Example: GET Object" of https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    signed = signed_headers(
        "/test.txt",
        {"host": "examplebucket.s3.amazonaws.com", "range": "bytes=0-9"},
        Credentials(key_id="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        region="us-east-1",
        time="20130524T000000Z",
    )
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


@given(
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    headers=st.sampled_from([{}, {"range": "bytes=0-9"}, {"range": "bytes=5-", "if-match": '"abc"'}]),
    token=st.none() | st.text("abc/+=", min_size=1),
    region=st.sampled_from(["us-east-1", "ru-central1"]),
)
def test_a_signature_is_botocores(key: str, headers: dict[str, str], token: str | None, region: str) -> None:
    credentials = Credentials(key_id="testing", secret="not/a+real secret", token=token)
    store = Store(is_tls=False, host="127.0.0.1:9000", region=region, credentials=credentials)
    place = store.place("bucket", key)
    assert place is not None
    ours = signed_headers(place[1], {**headers, "host": place[0]}, credentials, region=region, time="20260102T030405Z")

    request = AWSRequest("GET", f"http://{place[0]}{place[1]}", headers={**headers})
    as_botocore_has_them = SimpleNamespace(access_key="testing", secret_key="not/a+real secret", token=token)
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: now)
        botocore.auth.S3SigV4Auth(as_botocore_has_them, "s3", region).add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]


class Seen(Exception):
    """The request that boto3 was about to send."""


def url_by_boto3(environment: dict[str, str], bucket: str, key: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    style: Any = {"addressing_style": "path"} if "AWS_ENDPOINT_URL" in environment else {}  # as manifests/s3.py does
    store = boto3.session.Session().client("s3", config=Config(s3=style))

    def stop(request: Any, **_: object) -> None:
        raise Seen(request.url)

    store.meta.events.register("before-send.s3.*", stop)
    with pytest.raises(Seen) as seen:
        store.get_object(Bucket=bucket, Key=key)
    return str(seen.value)


@pytest.mark.parametrize("key", ODD_KEYS)
@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9000", None])
def test_an_object_is_asked_for_where_boto3_asks(
    endpoint: str | None, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**SIMPLE, "AWS_DEFAULT_REGION": "eu-central-1"}
    del environment["AWS_ENDPOINT_URL"]
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if endpoint is not None:
        environment["AWS_ENDPOINT_URL"] = endpoint
    store = store_of(environment)
    assert store is not None
    place = store.place("a-bucket", key)
    assert place is not None
    scheme = "https" if store.is_tls else "http"
    assert f"{scheme}://{place[0]}{place[1]}" == url_by_boto3(environment, "a-bucket", key, monkeypatch)


def test_a_plain_environment_names_a_store() -> None:
    assert store_of(SIMPLE) == Store(is_tls=False, host="127.0.0.1:9000", region="us-east-1", credentials=CREDENTIALS)
    more = {"AWS_ENDPOINT_URL_S3": "https://s3.example.org/", "AWS_DEFAULT_REGION": "ru-1", "AWS_SESSION_TOKEN": "t"}
    assert store_of({**SIMPLE, **more, "NO_PROXY": "127.0.0.1", "HOME": "/root"}) == Store(
        is_tls=True,
        host="s3.example.org",
        region="ru-1",
        credentials=Credentials(key_id="testing", secret="not-a-real-secret", token="t"),
    )


def test_a_user_without_a_home_has_no_files_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    homeless = {name: value for name, value in SIMPLE.items() if not name.endswith("_FILE")}
    assert store_of(homeless) is not None


@pytest.mark.parametrize(
    "more",
    [
        {"AWS_PROFILE": "other"},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_CREDENTIAL_EXPIRATION": "2026-01-01T00:00:00Z"},
        {"AWS_CONFIG_FILE": __file__},
        {"AWS_SHARED_CREDENTIALS_FILE": __file__},
        {"AWS_SESSION_TOKEN": ""},
        {"https_proxy": "http://proxy:3128"},
        {"ALL_PROXY": "http://proxy:3128"},
        {"AWS_ENDPOINT_URL": "http://somebody:hunter2@127.0.0.1:9000"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/prefix"},
        {"AWS_ENDPOINT_URL": "not an endpoint"},
        {"AWS_ACCESS_KEY_ID": None},
        {"AWS_ENDPOINT_URL": None},
        {"AWS_ENDPOINT_URL": None, "AWS_DEFAULT_REGION": "cn-north-1"},
        {"AWS_ENDPOINT_URL": None, "AWS_DEFAULT_REGION": "us-gov-west-1"},
    ],
    ids=str,
)
def test_where_anything_else_has_a_say_boto3_is_asked(more: dict[str, str | None]) -> None:
    environment = {name: value for name, value in {**SIMPLE, **more}.items() if value is not None}
    assert plain_s3(environment, read_timeout_s=1) is None


def test_a_bucket_that_aws_may_want_otherwise_is_left_to_boto3() -> None:
    store = Store(is_tls=True, host=None, region="eu-central-1", credentials=CREDENTIALS)
    assert store.place("a.dotted.name", "x") is None


_READS = """
import sys
from manifests import storage
assert storage.read_bytes(sys.argv[1], 1, 3) == b"bcd"
with storage.open_stream(sys.argv[1]) as stream:
    assert stream.read() == b"abcdef"
print("boto3" in sys.modules or "botocore" in sys.modules)
"""


@pytest.mark.parametrize("settings", [None, ""])
def test_a_process_that_only_reads_does_without_boto3_where_the_environment_says_all(
    s3_root: str, tmp_path: Path, settings: str | None
) -> None:
    storage.write_bytes(f"{s3_root}/x", b"abcdef")
    if settings is not None:
        (tmp_path / "config").write_text(settings)
    environment = {
        **os.environ,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    command = [sys.executable, "-c", _READS, f"{s3_root}/x"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{settings is not None}\n", "")


class Counted:
    """A plain way that gives these answers in turn."""

    def __init__(self, answers: list[Answer | None]) -> None:
        self.answers = answers

    def get(self, *_: object) -> Answer | None:
        return self.answers.pop(0)


def test_what_the_plain_way_does_not_bring_boto3_is_asked_for_and_all_that_follows(s3_root: str) -> None:
    storage.write_bytes(f"{s3_root}/x", b"abcdef")
    answer = Answer("etag", 1, SimpleNamespace(readinto=len, close=lambda: None))
    plain = Counted([answer, None, answer])
    asked = S3Get(plain, lambda: client())
    found = [asked.get(f"{s3_root}/x", s3_root.removeprefix("s3://"), "x", "bytes=0-2", None) for _ in range(3)]
    assert [one.num_bytes for one in found] == [1, 3, 3]
    assert plain.answers == [answer]


def test_a_request_that_failed_once_is_not_asked_for_plainly_again(unreliable_s3: UnreliableS3, s3_root: str) -> None:
    storage.write_bytes(f"{s3_root}/x", b"abcdef")
    plain = plain_s3(os.environ, read_timeout_s=1)
    assert plain is not None
    asked = S3Get(plain, lambda: client())
    for fault in ("503", "refuse", "expired"):
        unreliable_s3.fail(fault, "GET")
        assert plain.get(s3_root.removeprefix("s3://"), "x", {}) is None
    unreliable_s3.heal()
    assert asked.get(f"{s3_root}/x", s3_root.removeprefix("s3://"), "x", None, None).num_bytes == 6


@pytest.fixture
def keeping_server() -> Iterator[SimpleNamespace]:
    """A server that gives six bytes for any GET.

    connections: how many it has taken. closes_after: how many answers each gets; 0 for all. headers: of its answers.
    """
    state = SimpleNamespace(connections=0, closes_after=0, headers={"ETag": '"1"', "Content-Length": "6"})

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            state.connections += 1
            self.num_answers = 0

        def do_GET(self) -> None:
            self.send_response_only(200)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"abcdef")
            self.num_answers += 1
            # Without a word in the headers, as a load balancer does to a connection that has been idle.
            self.close_connection = self.num_answers == state.closes_after

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.server, state.host = server, f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


def read_plainly(plain: PlainS3) -> bytes | None:
    answer = plain.get("bucket", "key", {})
    if answer is None:
        return None
    buffer = bytearray(answer.num_bytes)
    num_read = answer.body.readinto(memoryview(buffer))
    answer.body.close()
    return bytes(buffer[:num_read])


def plain_to(host: str, *, tls: ssl.SSLContext | None = None) -> PlainS3:
    store = Store(is_tls=tls is not None, host=host, region="us-east-1", credentials=CREDENTIALS)
    return PlainS3(store, read_timeout_s=5, tls=tls)


def test_a_connection_is_used_again(keeping_server: SimpleNamespace) -> None:
    plain = plain_to(keeping_server.host)
    assert [read_plainly(plain) for _ in range(5)] == [b"abcdef"] * 5
    assert keeping_server.connections == 1


def test_a_connection_that_the_store_has_closed_meanwhile_is_made_anew(keeping_server: SimpleNamespace) -> None:
    keeping_server.closes_after = 2
    plain = plain_to(keeping_server.host)
    assert [read_plainly(plain) for _ in range(5)] == [b"abcdef"] * 5
    assert keeping_server.connections == 3


def test_a_connection_with_bytes_on_it_that_nobody_read_is_not_used_again(keeping_server: SimpleNamespace) -> None:
    plain = plain_to(keeping_server.host)
    answer = plain.get("bucket", "key", {})
    assert answer is not None
    answer.body.readinto(memoryview(bytearray(2)))
    answer.body.close()
    assert read_plainly(plain) == b"abcdef"
    assert keeping_server.connections == 2


@pytest.mark.parametrize("name", ["ETag", "Content-Length"])
def test_an_answer_that_does_not_say_what_it_is_is_none(keeping_server: SimpleNamespace, name: str) -> None:
    del keeping_server.headers[name]
    assert read_plainly(plain_to(keeping_server.host)) is None


def test_a_store_that_is_not_there_gives_no_answer() -> None:
    assert read_plainly(plain_to("127.0.0.1:9")) is None


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody but its holder has signed, with its key, in one file."""
    path, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *subject]
    subprocess.run([*made, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


def test_over_tls_the_store_must_be_who_the_bundle_says(
    keeping_server: SimpleNamespace, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    keeping_server.server.socket = context.wrap_socket(keeping_server.server.socket, server_side=True)
    environment = {**SIMPLE, "AWS_ENDPOINT_URL": f"https://{keeping_server.host}"}
    trusting = plain_s3({**environment, "AWS_CA_BUNDLE": str(certificate)}, read_timeout_s=5)
    others = plain_s3(environment, read_timeout_s=5)
    assert trusting is not None
    assert others is not None
    assert read_plainly(trusting) == b"abcdef"
    assert read_plainly(others) is None
    assert plain_s3({**environment, "AWS_CA_BUNDLE": "/no/such/file"}, read_timeout_s=5) is None
