"""The compiled kernel's object file: found again, never trusted when damaged, kept somewhere else where it must be."""

from pathlib import Path

import pytest

from loader import machine_code


def test_an_object_file_is_found_again_and_a_damaged_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert machine_code._read("key") is None
    machine_code._write("key", b"machine code")
    [path] = tmp_path.iterdir()
    assert machine_code._read("key") == b"machine code"
    path.write_bytes(path.read_bytes()[:-1])
    assert machine_code._read("key") is None


def test_where_one_folder_cannot_be_written_the_users_own_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    machine_code._write("key", b"machine code")
    assert [path.name for path in (tmp_path / "home/.cache/shardmill").iterdir()] == ["kernel-key.o"]
    assert machine_code._read("key") == b"machine code"
