"""What only S3 can do to us: faults on the way, uploads in parts, credentials, and processes that share a client."""

import contextlib
import multiprocessing
import signal
import subprocess
import sys
import traceback

import pytest

from manifests import UserError, storage
from manifests.s3_write import part_num_bytes
from tests.s3_server import client

CONTENT = bytes(range(241)) * 20_000  # 4.8 MB


def uploads_in_progress(root: str) -> list:
    return client().list_multipart_uploads(Bucket=root.removeprefix("s3://")).get("Uploads", [])


def test_parts_reach_five_terabytes_within_ten_thousand():
    sizes = [part_num_bytes(index) for index in range(10_000)]
    assert sum(sizes) > 5 * 2**40
    assert max(sizes) <= 5 * 2**30, "S3 takes parts of 5 GiB at most"
    total = num_parts = 0
    while total < 5 * 2**40:
        total += sizes[num_parts]
        num_parts += 1
    assert (num_parts, sizes[num_parts - 1] >> 20) == (8046, 1296)
    assert sizes[16] == sizes[0] == 16 * 2**20, "a shard of 256 MB has equal parts"


@pytest.mark.parametrize("fault", ["break", "cut", "503", "refuse"])
def test_a_stream_goes_on_after_faults_where_it_was(unreliable_s3, s3_root, fault, either_way):
    url = f"{s3_root}/x"
    storage.write_bytes(url, CONTENT)
    unreliable_s3.fail(fault, "GET", times=2)
    with storage.open_stream(url) as stream:
        assert stream.read() == CONTENT
    assert unreliable_s3.num_faults == 2


@pytest.mark.parametrize("fault", ["break", "cut"])
def test_a_range_is_whole_after_faults(unreliable_s3, s3_root, fault, either_way):
    url = f"{s3_root}/x"
    storage.write_bytes(url, CONTENT)
    unreliable_s3.fail(fault, "GET", times=2)
    assert storage.read_bytes(url, 1000, 3_000_000) == CONTENT[1000:3_001_000]
    assert unreliable_s3.num_faults == 2


def test_an_object_replaced_while_it_is_read_is_an_error_never_a_mixture(unreliable_s3, s3_root, either_way):
    url = f"{s3_root}/x"
    storage.write_bytes(url, CONTENT)

    # Half of the body comes, more than the first read takes; the rest has to be asked for again.
    unreliable_s3.fail("cut", "GET")
    with storage.open_stream(url) as stream:
        start = stream.read(1000)
        storage.write_bytes(url, CONTENT[::-1])
        with pytest.raises(storage.StorageError, match="replaced while it was read"):
            stream.read()
    assert start == CONTENT[:1000]


def test_a_body_that_never_comes_is_given_up(unreliable_s3, s3_root, monkeypatch, either_way):
    url = f"{s3_root}/x"
    storage.write_bytes(url, b"x")  # half of one byte is none
    unreliable_s3.fail("break", "GET")
    monkeypatch.setattr("manifests.s3_read._LONGEST_WAIT_S", 0.01)
    with pytest.raises(storage.StorageError, match="no byte after 0 of 1 in 8 tries"):
        storage.read_bytes(url)


@pytest.mark.parametrize("fault", ["503", "refuse", "lost"])
@pytest.mark.parametrize("num_bytes", [1000, 20_000_000])
def test_writes_are_whole_after_faults(unreliable_s3, s3_root, fault, num_bytes):
    content = (CONTENT * 5)[:num_bytes]

    # The first try of every part. A lost answer to "complete" is another story: see the next test.
    unreliable_s3.fail(fault, "PUT", times=1)
    url = f"{s3_root}/x"
    storage.write_bytes(url, content)
    unreliable_s3.heal()
    assert storage.read_bytes(url) == content
    assert unreliable_s3.num_faults == (1 if num_bytes == 1000 else 2)
    assert uploads_in_progress(s3_root) == []


def test_an_answer_lost_to_the_last_request_is_an_error_or_a_whole_object(unreliable_s3, s3_root):
    content = CONTENT * 5
    url = f"{s3_root}/x"
    unreliable_s3.fail("lost", "POST", path_part="uploadId=", times=1)
    # The retry may be told that there is no such upload: whoever asked writes again.
    with contextlib.suppress(storage.StorageError):
        storage.write_bytes(url, content)
    unreliable_s3.heal()
    assert unreliable_s3.num_faults == 1
    assert storage.read_bytes(url) == content


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_an_error_inside_the_with_never_completes_the_upload(s3_root, error):
    with pytest.raises(error), storage.atomic_writer(f"{s3_root}/x") as stream:  # noqa: PT012 - the block is the test
        stream.write(CONTENT * 8)
        assert len(uploads_in_progress(s3_root)) == 1
        raise error
    assert uploads_in_progress(s3_root) == []
    assert not storage.exists(f"{s3_root}/x")


def test_a_part_that_cannot_be_written_aborts_the_upload(unreliable_s3, s3_root, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    unreliable_s3.fail("503", "PUT", path_part="partNumber=2")
    with pytest.raises(storage.StorageError, match=r"write s3://.*/x: SlowDown \(HTTP 503\): gave up after retries"):
        storage.write_bytes(f"{s3_root}/x", CONTENT * 8)
    assert uploads_in_progress(s3_root) == []
    assert not storage.exists(f"{s3_root}/x")


def test_an_upload_that_cannot_even_be_aborted_says_so(unreliable_s3, s3_root, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    unreliable_s3.fail("503", "DELETE")
    with pytest.raises(RuntimeError) as caught, storage.atomic_writer(f"{s3_root}/x") as stream:  # noqa: PT012 - as above
        stream.write(CONTENT * 8)
        raise RuntimeError("mine")
    assert "could not be aborted" in caught.value.__notes__[0]


_KILLED = """
import sys
from manifests import storage
with storage.atomic_writer(sys.argv[1]) as stream:
    stream.write(bytes(40_000_000))
    print("half-way", flush=True)
    sys.stdin.read()
"""


def test_a_writer_killed_half_way_leaves_nothing_that_is_listed(s3_root):
    url = f"{s3_root}/v1-000000.tar"
    command = [sys.executable, "-c", _KILLED, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "half-way\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert not storage.exists(url)
    assert storage.list_objects(s3_root) == []


def test_the_mark_of_an_empty_folder_is_no_object(s3_root):
    client().put_object(Bucket=s3_root.removeprefix("s3://"), Key="folder/", Body=b"")
    assert storage.list_objects(f"{s3_root}/folder") == []


def test_an_empty_bucket_lists_nothing(s3_root):
    assert storage.list_objects(s3_root) == []


def test_a_missing_bucket_is_the_users_mistake(s3_root, either_way):
    for ask in (storage.list_objects, storage.read_bytes, lambda url: storage.write_bytes(url, b"x")):
        with pytest.raises(UserError, match="there is no such bucket at http://"):
            ask("s3://shardmill-no-such-bucket/x")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket", "names a bucket, not an object"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/\udcff", r"'s3://bucket/\\udcff' is not UTF-8"),
    ],
)
def test_a_url_that_names_no_object_is_the_users_mistake(url, said):
    with pytest.raises(UserError, match=said):
        storage.read_bytes(url)


@pytest.mark.parametrize("seconds", ["0", "-1", "1e11", "inf", "soon"])
def test_a_timeout_that_is_none_is_the_users_mistake(s3_root, monkeypatch, seconds):
    monkeypatch.setenv("SHARDMILL_S3_READ_TIMEOUT_S", seconds)
    with pytest.raises(UserError, match=f"SHARDMILL_S3_READ_TIMEOUT_S is '{seconds}': give seconds above 0"):
        storage.read_bytes(f"{s3_root}/x")


def test_no_credentials_is_said_with_the_remedy(s3_root, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(UserError, match="no S3 credentials: set AWS_ACCESS_KEY_ID"):
        storage.read_bytes(f"{s3_root}/x")


def test_a_server_that_is_not_there_is_named_without_its_password(s3_root, monkeypatch, either_way):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://somebody:hunter2@127.0.0.1:9")
    with pytest.raises(UserError, match=r"cannot reach http://127.0.0.1:9: mend AWS_ENDPOINT_URL") as caught:
        storage.read_bytes(f"{s3_root}/x")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("endpoint", ["not an endpoint", "http://somebody:hunter2@[::1", "http://:hunter2@"])
def test_an_endpoint_that_is_none_is_the_users_mistake(s3_root, monkeypatch, endpoint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(UserError, match="mend AWS_ENDPOINT_URL") as caught:
        storage.read_bytes(f"{s3_root}/x")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def _read_in_child(url: str, queue: multiprocessing.Queue) -> None:
    queue.put(storage.read_bytes(url))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_makes_its_own_client(s3_root, method, either_way):
    url = f"{s3_root}/x"
    storage.write_bytes(url, b"x")
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(url, queue))
    child.start()
    assert queue.get(timeout=60) == b"x"
    child.join()
    assert storage.read_bytes(url) == b"x"
