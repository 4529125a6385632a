"""The compiled kernel's file: found again, never trusted when damaged, kept elsewhere where it must be, and enough."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from loader import columns, machine_code
from loader.columns import COLUMNS, fill_columns

# What a process does that finds the kernel on disk: a batch, and what it has imported for it.
ANOTHER_PROCESS = """
import sys
import numpy as np
from loader.columns import fill_columns
ids = np.empty((1, 4), dtype="int64")
fill_columns(np.array([[5, 1, 6, 7]], dtype="<u2"), 1, {"labels": ids}, eos_id=1, padding_id=65535)
print(ids.tolist(), sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


def test_kept_code_is_found_again_and_a_damaged_file_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert machine_code._read("key") is None
    machine_code._write("key", b"machine code")
    [path] = tmp_path.iterdir()
    assert machine_code._read("key") == b"machine code"
    path.write_bytes(path.read_bytes()[:-1])
    assert machine_code._read("key") is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_code_that_another_user_put_there_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    machine_code._write("key", b"machine code")
    [path] = tmp_path.iterdir()
    os.chown(path, 65_534, -1)
    assert machine_code._read("key") is None


def test_where_one_folder_cannot_be_written_the_users_own_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    machine_code._write("key", b"machine code")
    assert [path.name for path in (tmp_path / "home/.cache/shardmill").iterdir()] == ["kernel-key.code"]
    assert machine_code._read("key") == b"machine code"


# uv's and conda's Python are built for a libc that knows no memfd_create yet.
@pytest.mark.parametrize("before", ["", "import os; vars(os).pop('memfd_create', None)"])
def test_another_process_runs_the_kept_kernel_without_numba_and_without_llvm(before: str) -> None:
    columns.load_kernel(np.dtype("<u2"), np.dtype("int64"))
    script = f"{before}\n{ANOTHER_PROCESS}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[[1, -100, 7, -100]] []\n"


def test_a_user_without_a_home_keeps_it_beside_the_source_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert machine_code._folders() == [Path(machine_code.__file__).parent / "__pycache__"]


def no_code(command: list[str], **_: object) -> "CompletedProcess[bytes]":
    return CompletedProcess(command, 1, b"", b"...\nKeyError: 'riscv64'\n")


def printed_first(command: list[str], **_: object) -> "CompletedProcess[bytes]":
    """What comes where Python's own start prints something, or numba, asked to by NUMBA_DEBUG."""
    return CompletedProcess(command, 0, b"a word of greeting\n" + machine_code._sealed(b"\xc3"), b"")


def not_allowed(*_: object, **__: object) -> int:
    raise PermissionError("not allowed")


@pytest.mark.parametrize(
    ("function", "stand_in", "num_kept"),
    [("subprocess.run", no_code, 0), ("subprocess.run", printed_first, 0), ("mmap.mmap", not_allowed, 1)],
)
def test_where_code_cannot_be_kept_or_not_be_mapped_numbas_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, stand_in: object, num_kept: int
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(f"loader.machine_code.{function}", stand_in)
    monkeypatch.setattr(columns, "_kernels", columns._Kernels())
    made = {name: np.empty((2, 4), dtype="int32") for name in COLUMNS}
    fill_columns(np.array([[5, 1, 6, 7]], dtype="<u4"), 2, made, eos_id=1, padding_id=9)
    assert len(list(tmp_path.glob("kernel-*.code"))) == num_kept
    assert {name: column.tolist() for name, column in made.items()} == {
        "input_ids": [[5, 1, 6, 7], [1, 1, 1, 1]],
        "labels": [[1, -100, 7, -100], [-100, -100, -100, -100]],
        "position_ids": [[0, 1, 0, 1], [0, 0, 0, 0]],
        "document_ids": [[0, 0, 1, 1], [-1, -1, -1, -1]],
    }
