"""Which checkpoints are whole, which is newest, which may go; and their second copy elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from manifests import storage
from trainer import checkpoint_files as files
from trainer import remote


def make(root: Path, step: int, content: bytes = b"weights") -> Path:
    folder = files.unfinished_folder_of(root, step)
    (folder / "inner").mkdir(parents=True)
    (folder / "a.bin").write_bytes(content)
    (folder / "inner" / "b.bin").write_bytes(b"moments")
    files.write_list(folder, [files.hash_file(folder, path) for path in files.files_in(folder)])
    return files.publish(root, step)


def valid(root: Path) -> list[int]:
    return [step for step in files.steps_in(root) if files.fault(files.folder_of(root, step), thorough=True) is None]


def test_a_published_checkpoint_is_valid_and_its_list_tells_every_file(tmp_path: Path) -> None:
    folder = make(tmp_path, 40)
    assert files.fault(folder, thorough=True) is None
    listed = json.loads((folder / "files.json").read_text())
    assert listed[0] == {
        "path": "a.bin",
        "num_bytes": 7,
        "sha256": "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
    }
    assert [entry["path"] for entry in listed] == ["a.bin", "inner/b.bin"]


def test_an_unfinished_save_is_no_checkpoint_and_is_cleared_away(tmp_path: Path) -> None:
    make(tmp_path, 10)
    unfinished = files.unfinished_folder_of(tmp_path, 20)
    unfinished.mkdir()
    (unfinished / "a.bin").write_bytes(b"half")
    assert valid(tmp_path) == [10]
    files.clear_debris(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-10"]


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda folder: (folder / "a.bin").write_bytes(b"wei"), "a.bin has 3 bytes and its list says 7"),
        (lambda folder: (folder / "a.bin").write_bytes(b"weightz"), "a.bin has other content than its list says"),
        (lambda folder: (folder / "inner" / "b.bin").unlink(), "inner/b.bin is missing"),
        (lambda folder: (folder / "files.json").unlink(), "its list of files cannot be read"),
        (lambda folder: (folder / "files.json").write_text("[{"), "its list of files cannot be read"),
        (lambda folder: (folder / "files.json").write_text('[{"p": 1}]'), "its list of files cannot be read"),
    ],
)
def test_a_damaged_checkpoint_tells_its_fault(tmp_path: Path, damage: Callable[[Path], object], word: str) -> None:
    folder = make(tmp_path, 20)
    damage(folder)
    reason = files.fault(folder, thorough=True)
    assert reason is not None
    assert word in reason


def test_rotation_keeps_the_newest_and_never_counts_a_damaged_one(tmp_path: Path) -> None:
    for step in (5, 10, 20, 100):
        make(tmp_path, step)
    (make(tmp_path, 110) / "a.bin").write_bytes(b"")
    assert files.rotate(tmp_path, keep=2, newest=110, spare=5) == [10]
    assert files.rotate(tmp_path, keep=2, newest=110) == [5]
    assert files.steps_in(tmp_path) == [20, 100, 110]


def test_rotation_never_removes_the_only_valid_checkpoint(tmp_path: Path) -> None:
    make(tmp_path, 10)
    for step in (20, 30, 40):
        (make(tmp_path, step) / "files.json").unlink()
    assert files.rotate(tmp_path, keep=1, newest=40) == []
    assert valid(tmp_path) == [10]


def test_a_damaged_folder_in_the_way_is_replaced(tmp_path: Path) -> None:
    (make(tmp_path, 10) / "a.bin").unlink()
    make(tmp_path, 10)
    assert valid(tmp_path) == [10]


def test_steps_are_ordered_as_numbers_and_other_names_ignored(tmp_path: Path) -> None:
    for name in ("step-9", "step-100", "step-20", "step-7.tmp", "other", "step-x"):
        (tmp_path / name).mkdir()
    assert files.steps_in(tmp_path) == [9, 20, 100]
    assert files.steps_in(tmp_path / "missing") == []


@pytest.fixture(params=["local", "s3"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "there")
    return f"{request.getfixturevalue('s3_root')}/run 1"


def test_the_copy_comes_back_equal_and_older_copies_go(tmp_path: Path, there: str) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    assert (remote.pointer(there), remote.steps_in(there)) == (None, [])
    for step in (1, 2, 3):
        remote.replicate(make(here, step, content=b"step %d" % step), step, there, keep=2)
    assert (remote.pointer(there), remote.steps_in(there)) == (3, [2, 3])
    names = {found.url.removeprefix(there) for found in storage.list_objects(there)}
    assert names == {"/latest.json"} | {
        f"/step-{step}/{name}" for step in (2, 3) for name in ("a.bin", "files.json", "inner/b.bin")
    }
    assert remote.fault(there, 3, thorough=True) is None
    assert remote.fetch(there, 3, elsewhere) is None
    assert (elsewhere / "step-3" / "a.bin").read_bytes() == b"step 3"
    assert valid(elsewhere) == [3]


def test_a_damaged_copy_is_named_with_its_fault_and_not_taken(tmp_path: Path, there: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    remote.replicate(make(tmp_path / "here", 1), 1, there, keep=2)
    storage.write_bytes(storage.join(there, "step-1", "a.bin"), b"weightz")
    assert remote.fault(there, 1, thorough=False) is None
    reason = remote.fault(there, 1, thorough=True)
    assert reason is not None
    assert reason.endswith("a.bin has other content than its list says")
    assert remote.fetch(there, 1, elsewhere) == "a.bin has other content than its list says"
    assert list(elsewhere.iterdir()) == []
    storage.delete(storage.join(there, "step-1", "a.bin"))
    assert remote.fault(there, 1, thorough=False) == "a.bin is missing"


def test_a_copy_that_reads_back_otherwise_is_no_copy_and_the_pointer_stays(tmp_path: Path, there: str) -> None:
    """The list says what the bytes must be: a disk that returns others on the way out is found on the way back."""
    here = tmp_path / "here"
    remote.replicate(make(here, 1), 1, there, keep=2)
    (make(here, 2) / "a.bin").write_bytes(b"weightz")
    with pytest.raises(OSError, match=r"a\.bin has other content than its list says"):
        remote.replicate(here / "step-2", 2, there, keep=2)
    assert (remote.pointer(there), remote.steps_in(there)) == (1, [1])


def test_a_copy_without_its_list_does_not_count_as_kept_and_goes_with_the_older_ones(
    tmp_path: Path, there: str
) -> None:
    here = tmp_path / "here"
    for step in (1, 2, 3):
        remote.replicate(make(here, step), step, there, keep=3)
    storage.delete(storage.join(there, "step-2", "files.json"))
    remote.replicate(make(here, 4), 4, there, keep=3)
    assert remote.steps_in(there) == [1, 3, 4]
    remote.replicate(make(here, 5), 5, there, keep=3)
    assert remote.steps_in(there) == [3, 4, 5]
    assert not any("step-2" in found.url for found in storage.list_objects(there))
