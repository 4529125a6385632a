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


def unwanted(line: str) -> None:
    pytest.fail(f"nothing to complain about, and yet: {line}")


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
    assert files.newest_valid(tmp_path, unwanted) == 10
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
def test_a_damaged_checkpoint_is_named_with_its_fault_and_the_older_one_is_taken(
    tmp_path: Path, damage: Callable[[Path], object], word: str
) -> None:
    make(tmp_path, 10)
    damage(make(tmp_path, 20))
    said: list[str] = []
    assert files.newest_valid(tmp_path, said.append) == 10
    assert len(said) == 1
    assert said[0].startswith("checkpoint step-20 is not valid: ")
    assert word in said[0]


def test_rotation_keeps_the_newest_and_never_counts_a_damaged_one(tmp_path: Path) -> None:
    for step in (5, 10, 20, 100):
        make(tmp_path, step)
    (make(tmp_path, 110) / "a.bin").write_bytes(b"")
    assert files.rotate(tmp_path, keep=2) == [5, 10]
    assert files.steps_in(tmp_path) == [20, 100, 110]


def test_rotation_never_removes_the_only_valid_checkpoint(tmp_path: Path) -> None:
    make(tmp_path, 10)
    for step in (20, 30, 40):
        (make(tmp_path, step) / "files.json").unlink()
    assert files.rotate(tmp_path, keep=1) == []
    assert files.newest_valid(tmp_path, lambda _: None) == 10


def test_a_damaged_folder_in_the_way_is_replaced(tmp_path: Path) -> None:
    (make(tmp_path, 10) / "a.bin").unlink()
    make(tmp_path, 10)
    assert files.newest_valid(tmp_path, unwanted) == 10


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
    assert remote.newest(there) is None
    for step in (1, 2, 3):
        remote.replicate(make(here, step, content=b"step %d" % step), step, there, keep=2)
    assert remote.newest(there) == 3
    names = {found.url.removeprefix(there) for found in storage.list_objects(there)}
    assert names == {"/latest.json"} | {
        f"/step-{step}/{name}" for step in (2, 3) for name in ("a.bin", "files.json", "inner/b.bin")
    }
    elsewhere.mkdir()
    assert remote.fetch(there, 3, elsewhere, unwanted)
    assert (elsewhere / "step-3" / "a.bin").read_bytes() == b"step 3"
    assert files.newest_valid(elsewhere, unwanted) == 3


def test_a_damaged_copy_is_not_taken(tmp_path: Path) -> None:
    here, there, elsewhere = tmp_path / "here", tmp_path / "there", tmp_path / "elsewhere"
    remote.replicate(make(here, 1), 1, str(there), keep=2)
    (there / "step-1" / "a.bin").write_bytes(b"weightz")
    elsewhere.mkdir()
    said: list[str] = []
    assert not remote.fetch(str(there), 1, elsewhere, said.append)
    assert "a.bin has other content than its list says" in said[0]
    assert list(elsewhere.iterdir()) == []
