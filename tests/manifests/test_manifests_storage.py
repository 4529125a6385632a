"""What local disks and S3 promise alike: every test runs on both."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from manifests import UserError, storage

# One of each kind that some layer between us and the store has been seen to mangle (cases s20).
NAMES = [
    "plain.txt",
    "two words.txt",
    "a+b.txt",
    "100%.txt",
    "%20.txt",
    "Year=2024/day=1.txt",
    "каталог/файл.txt",
    "😀👩‍💻.txt",
    "nfd-й.txt",
    "a#b?c&d=e.txt",
    "[1].txt",
    "*.txt",
    "quote'\"<>.txt",
    "~!@$^(),;:.txt",
]


def test_an_object_written_is_read_back(any_root):
    url = storage.join(any_root, "a/b.bin")
    storage.write_bytes(url, b"0123456789")
    assert storage.read_bytes(url) == b"0123456789"
    assert storage.read_bytes(url, 3, 4) == b"3456"
    assert storage.read_bytes(url, 7) == b"789"
    assert storage.read_bytes(url, 10) == b""
    assert storage.read_bytes(url, 4, 0) == b""
    assert storage.stat(url).num_bytes == 10
    with storage.open_stream(url) as stream:
        assert stream.read(4) + stream.read() == b"0123456789"


def test_an_empty_object_is_an_object(any_root):
    url = storage.join(any_root, "empty")
    storage.write_bytes(url, b"")
    assert storage.exists(url)
    assert storage.read_bytes(url) == b""
    with storage.open_stream(url) as stream:
        assert stream.read() == b""


def test_an_object_is_replaced_whole(any_root):
    url = storage.join(any_root, "x")
    storage.write_bytes(url, b"the first, longer one")
    before = storage.stat(url).identity
    storage.write_bytes(url, b"second")
    assert storage.read_bytes(url) == b"second"
    assert storage.stat(url).identity != before


def test_names_of_every_kind_are_written_listed_and_read_as_they_are(any_root):
    for name in NAMES:
        storage.write_bytes(storage.join(any_root, "in", name), name.encode())
    infos = storage.list_objects(storage.join(any_root, "in"))
    assert [info.url for info in infos] == sorted(storage.join(any_root, "in", name) for name in NAMES)
    for info in infos:
        assert storage.read_bytes(info.url).decode() == info.url.removeprefix(storage.join(any_root, "in/"))
        assert storage.stat(info.url) == info


def test_a_listing_keeps_to_its_folder(any_root):
    for name in ("data/x", "data2/x", "data.txt"):
        storage.write_bytes(storage.join(any_root, name), b"x")
    assert [info.url for info in storage.list_objects(storage.join(any_root, "data/"))] == [
        storage.join(any_root, "data/x")
    ]
    assert [info.url for info in storage.list_objects(storage.join(any_root, "data.txt"))] == [
        storage.join(any_root, "data.txt")
    ]


def test_more_objects_than_a_page_holds_are_all_listed(any_root):
    urls = [storage.join(any_root, f"many/{number:05d}") for number in range(1005)]  # a page of S3 holds 1,000
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda url: storage.write_bytes(url, b""), urls))
    assert [info.url for info in storage.list_objects(storage.join(any_root, "many"))] == urls


def test_what_is_missing_is_a_file_not_found(any_root):
    storage.write_bytes(storage.join(any_root, "there"), b"x")
    missing = storage.join(any_root, "missing")
    assert not storage.exists(missing)
    for ask in (storage.stat, storage.read_bytes, storage.list_objects):
        with pytest.raises(FileNotFoundError) as caught:
            ask(missing)
        assert caught.value.filename == missing
    for opener in (storage.open_stream, storage.open_ranged):
        with pytest.raises(FileNotFoundError), opener(missing):
            pass


@pytest.mark.parametrize(("start", "length"), [(0, 11), (5, 6), (11, None), (12, 1)])
def test_fewer_bytes_than_asked_for_are_an_error(any_root, start, length):
    url = storage.join(any_root, "x")
    storage.write_bytes(url, b"0123456789")
    with pytest.raises(storage.StorageError):
        storage.read_bytes(url, start, length)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("num_bytes", [10, 40_000_000])
def test_a_writer_that_fails_leaves_the_object_as_it_was(any_root, error, num_bytes):
    url = storage.join(any_root, "x")
    storage.write_bytes(url, b"old")
    with pytest.raises(error), storage.atomic_writer(url) as stream:  # noqa: PT012 - the block is the test
        stream.write(bytes(num_bytes))
        raise error
    assert storage.read_bytes(url) == b"old"
    assert [info.url for info in storage.list_objects(any_root)] == [url]


def test_nothing_is_seen_before_the_writer_is_done(any_root):
    url = storage.join(any_root, "folder/x")
    with storage.atomic_writer(url) as stream:
        stream.write(bytes(20_000_000))
        assert not storage.exists(url)
        assert stream.tell() == 20_000_000
    assert storage.stat(url).num_bytes == 20_000_000


def test_a_large_object_comes_back_byte_by_byte(any_root):
    content = bytes(range(251)) * 200_000  # 50 MB: four parts on S3, no two alike
    url = storage.join(any_root, "large")
    with storage.atomic_writer(url) as stream:
        for start in range(0, len(content), 7_000_003):
            stream.write(memoryview(content)[start : start + 7_000_003])
    assert storage.read_bytes(url) == content
    with storage.open_ranged(url) as stream:
        stream.seek(-10, 2)
        assert stream.read(20) == content[-10:]
        stream.seek(16_777_210)
        assert stream.read(12) == content[16_777_210:16_777_222]
        assert stream.tell() == 16_777_222


def test_deleting_twice_is_deleting_once(any_root):
    url = storage.join(any_root, "x")
    storage.write_bytes(url, b"x")
    storage.delete(url)
    storage.delete(url)
    assert not storage.exists(url)


def test_what_storage_says_of_an_object_travels_between_processes(any_root):
    url = storage.join(any_root, "x")
    storage.write_bytes(url, b"x")
    info = storage.stat(url)
    assert pickle.loads(pickle.dumps(info)) == info


def test_urls_are_taken_apart_and_put_together():
    assert storage.join("s3://bucket/prefix/", "shards", "train/x.tar") == "s3://bucket/prefix/shards/train/x.tar"
    assert storage.join("/", "x") == "/x"
    assert storage.join("", "x") == "x"
    assert storage.parent("s3://bucket/a/b.json") == "s3://bucket/a"
    assert storage.parent("s3://bucket/a") == "s3://bucket"
    assert storage.parent("s3://bucket") == "s3://bucket"
    assert storage.parent("/a/b") == "/a"
    assert storage.basename("s3://bucket/a/b.json") == "b.json"
    assert storage.is_absolute("s3://bucket/x")
    assert storage.is_absolute("/x")
    assert not storage.is_absolute("shards/x")
    assert storage.absolute("s3://bucket/a/") == "s3://bucket/a"
    assert storage.absolute("/a/../b") == "/b"
    assert storage.local_path("s3://bucket/x") is None
    assert str(storage.local_path("/x")) == "/x"


def test_a_scheme_nobody_serves_is_refused():
    with pytest.raises(UserError, match=r"gs:// in gs://bucket/x is not supported: give a local path or s3://"):
        storage.read_bytes("gs://bucket/x")
