import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from manifests import UserError, storage

_WRITES_FOREVER = """
import sys
from manifests import storage
with storage.atomic_writer(sys.argv[1]) as stream:
    stream.write(bytes(5_000_000))
    stream.flush()
    print("half-way", flush=True)
    sys.stdin.read()
"""


def test_a_writer_killed_half_way_leaves_nothing_that_is_listed(tmp_path):
    target = tmp_path / "shards" / "v1-000000.tar"
    command = [sys.executable, "-c", _WRITES_FOREVER, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "half-way\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert len(list(target.parent.iterdir())) == 1, "the killed writer's temporary file is what this test is about"
    assert storage.list_objects(str(tmp_path)) == []
    assert not storage.exists(str(target))
    storage.write_bytes(str(target), b"whole")
    assert [info.url for info in storage.list_objects(str(tmp_path))] == [str(target)]


def test_two_writers_of_one_name_do_not_mix(tmp_path):
    url = str(tmp_path / "x")
    with storage.atomic_writer(url) as first, storage.atomic_writer(url) as second:
        first.write(b"first")
        second.write(b"second")
    assert storage.read_bytes(url) in (b"first", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_longest_name_a_disk_takes_is_written(tmp_path):
    url = str(tmp_path / ("x" * 255))
    storage.write_bytes(url, b"x")
    assert storage.read_bytes(url) == b"x"


def test_a_new_file_has_the_rights_any_new_file_has(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    storage.write_bytes(str(tmp_path / "ours"), b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_empty_folder_lists_nothing(tmp_path):
    assert storage.list_objects(str(tmp_path)) == []


def test_links_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"x")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "elsewhere" / "x")
    (tmp_path / "root" / "circle").symlink_to(tmp_path / "root")
    listed = [info.url for info in storage.list_objects(str(tmp_path / "root"))]
    assert listed == [str(tmp_path / "root" / "file"), str(tmp_path / "root" / "folder" / "x")]


def test_a_link_to_nothing_is_listed_so_that_reading_it_can_fail_loudly(tmp_path):
    (tmp_path / "lost").symlink_to(tmp_path / "gone")
    (info,) = storage.list_objects(str(tmp_path))
    assert (info.url, info.num_bytes) == (str(tmp_path / "lost"), 0)
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(info.url)


def test_pipes_are_no_objects(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert storage.list_objects(str(tmp_path)) == []
    assert not storage.exists(str(tmp_path / "pipe"))


def test_a_change_of_the_same_length_is_noticed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"one")
    os.utime(path, ns=(1, 1))
    before = storage.stat(str(path)).identity
    path.write_bytes(b"two")
    assert storage.stat(str(path)).identity != before


def test_a_folder_where_a_file_should_be_is_the_users_mistake(tmp_path):
    assert not storage.exists(str(tmp_path))
    with pytest.raises(UserError, match="is a folder, not a file"):
        storage.read_bytes(str(tmp_path))


def test_a_writer_closed_inside_its_with_makes_nothing(tmp_path):
    with pytest.raises(ValueError, match="closed"), storage.atomic_writer(str(tmp_path / "x")) as stream:
        stream.close()
    assert list(Path(tmp_path).iterdir()) == []
