"""The local disk as a place to work: what a killed process leaves goes, and a full disk is told with its remedy."""

import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from manifests.errors import UserError
from pipeline.scratch_disk import scratch_folder, writing_to_scratch


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_ends_with_its_use_also_by_an_error(root: Path) -> None:
    with scratch_folder() as folder:
        (folder / "file").write_bytes(b"x")
        assert list(root.iterdir()) == [folder]
    assert list(root.iterdir()) == []
    with pytest.raises(KeyError), scratch_folder():
        raise KeyError
    assert list(root.iterdir()) == []


def hold_a_folder(root: str, told: Connection) -> None:
    tempfile.tempdir = root
    with scratch_folder() as folder:
        (folder / "gigabytes").write_bytes(b"x")
        told.send(str(folder))
        signal.pause()


def test_what_a_killed_process_leaves_goes_with_the_next_and_what_another_uses_stays(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes, folders = [], []
    for _ in range(2):
        told, tell = context.Pipe(duplex=False)
        processes.append(context.Process(target=hold_a_folder, args=(str(root), tell)))
        processes[-1].start()
        folders.append(Path(told.recv()))
    try:
        os.kill(processes[0].pid or 0, signal.SIGKILL)
        processes[0].join()
        assert folders[0].exists()
        with scratch_folder() as folder:
            assert sorted(root.iterdir()) == sorted([folders[1], folder])
        assert (folders[1] / "gigabytes").read_bytes() == b"x"
    finally:
        processes[1].kill()
        processes[1].join()


def test_folders_at_once_do_not_disturb_each_other(root: Path) -> None:
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(root.iterdir()) == sorted([first, second])


def test_a_full_disk_is_told_with_its_place_and_remedy(root: Path) -> None:
    told = rf"the local disk of .* is full: {root} has [\d,]+ MB free.* set TMPDIR to a folder with more room"
    with pytest.raises(UserError, match=told), writing_to_scratch(), Path("/dev/full").open("wb") as file:
        file.write(b"x")
    with pytest.raises(FileNotFoundError), writing_to_scratch():
        (root / "missing").read_bytes()
