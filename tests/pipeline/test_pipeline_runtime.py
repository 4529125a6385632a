"""What makes a build go on: results on storage that are trusted only while they are what they were."""

from pathlib import Path

import pytest

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.runtime import Summary, Unit, execute, find_results, result_url


def write_twice(task: list[str]) -> Summary:
    """A stage's function: two files, and what it says of them."""
    for url in task:
        storage.write_bytes(url, b"data")
    return {"num_files": len(task), "files": task}


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A root on each kind of storage."""
    return str(tmp_path) if request.param == "local" else str(request.getfixturevalue("s3_root"))


@pytest.fixture
def units(root: str) -> list[Unit]:
    made = []
    for number in range(3):
        urls = [f"{root}/.build/stage/{number}-{part}.bin" for part in "ab"]
        made.append(Unit(key=fingerprint(["stage", number]), label=str(number), task=urls))
    return made


def run(root: str, units: list[Unit]) -> None:
    for unit in units:
        execute(write_twice, unit, result_url(f"{root}/.build", "stage", unit.key))


def found(root: str, units: list[Unit]) -> list[str]:
    done = find_results(f"{root}/.build", "stage", units)
    return [unit.label for unit in units if unit.key in done]


def test_nothing_is_found_before_anything_ran(root: str, units: list[Unit]) -> None:
    assert found(root, units) == []


def test_what_ran_is_found_with_what_it_said(root: str, units: list[Unit]) -> None:
    run(root, units[:2])
    assert found(root, units) == ["0", "1"]
    assert find_results(f"{root}/.build", "stage", units)[units[0].key]["num_files"] == 2


def test_a_result_whose_file_was_deleted_is_not_trusted(root: str, units: list[Unit]) -> None:
    run(root, units)
    storage.delete(units[1].task[0])
    assert found(root, units) == ["0", "2"]


def test_a_result_whose_file_was_replaced_or_cut_is_not_trusted(root: str, units: list[Unit]) -> None:
    run(root, units)
    storage.write_bytes(units[0].task[1], b"date")
    storage.write_bytes(units[2].task[0], b"dat")
    assert found(root, units) == ["1"]


def test_another_key_finds_nothing(root: str, units: list[Unit]) -> None:
    run(root, units)
    changed = [Unit(key=fingerprint(["changed", unit.key]), label=unit.label, task=unit.task) for unit in units]
    assert found(root, changed) == []


def test_a_unit_that_fails_leaves_no_result(root: str, units: list[Unit]) -> None:
    def fail(task: list[str]) -> Summary:
        write_twice(task)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        execute(fail, units[0], result_url(f"{root}/.build", "stage", units[0].key))
    assert found(root, units) == []
