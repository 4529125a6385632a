"""python -m trainer checkpoints: what it tells of whole, damaged, missing and unfinished ones, and its exit codes."""

import json
import os
from pathlib import Path

import pytest

from manifests import storage
from trainer import checkpoint_files as files
from trainer import remote
from trainer.__main__ import main
from trainer.commands.checkpoints import lines, look

# 2026-11-29 22:13:20 UTC
NOW = 1_795_990_400


def make_run(run: Path, where: str | None) -> None:
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"config": {"checkpoint": {"remote": where}}}))


def make_checkpoint(run: Path, step: int, *, world_size: int = 2, missing: str = "") -> Path:
    root = run / "checkpoints"
    folder = files.unfinished_folder_of(root, step)
    folder.mkdir(parents=True)
    state = {"facts": {"world_size": world_size}, "progress": {"step": step, "examples_consumed": 8 * step}}
    (folder / "state.json").write_text(json.dumps(state))
    for name in {".metadata", "__0_0.distcp", "__1_0.distcp", "rng-0.pt", "rng-1.pt"} - {missing}:
        (folder / name).write_bytes(b"x" * 100_000)
    files.write_list(folder, [files.hash_file(folder, path) for path in files.files_in(folder)])
    final = files.publish(root, step)
    os.utime(final / "files.json", (NOW - 60 * step, NOW - 60 * step))
    return final


@pytest.fixture(params=["local", "s3"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "there")
    return f"{request.getfixturevalue('s3_root')}/run 1"


def test_every_checkpoint_is_told_with_its_age_ranks_size_and_copy(
    tmp_path: Path, there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    make_run(run, there)
    for step in (10, 20):
        remote.replicate(make_checkpoint(run, step), step, there, keep=3)
    make_checkpoint(run, 30)
    files.remove(run / "checkpoints" / "step-10")
    assert main(["checkpoints", str(run)]) == 0
    assert list(lines(look(run, quick=False, copies=True), NOW)) == [
        f"{run}: goes on from step-30",
        "",
        f"checkpoint  saved (UTC)          age  ranks  examples  files   MB  here     copy in {there}",
        "step-10     -                      -      -         -      -    -  missing  whole",
        "step-20     2026-11-29 21:53  20 min      2       160      6  0.5  whole    whole",
        "step-30     2026-11-29 21:43  30 min      2       240      6  0.5  whole    missing",
    ]
    capsys.readouterr()
    assert main(["checkpoints", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["newest"], told["holds"]) == (30, True)
    assert [found["step"] for found in told["checkpoints"]] == [10, 20, 30]


def test_what_is_damaged_is_named_with_its_fault_here_and_there(
    tmp_path: Path, there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    make_run(run, there)
    for step in (10, 20):
        remote.replicate(make_checkpoint(run, step), step, there, keep=3)
    (run / "checkpoints" / "step-20" / "rng-1.pt").write_bytes(b"y" * 100_000)
    storage.write_bytes(storage.join(there, "step-10", "rng-0.pt"), b"y")
    (run / "checkpoints" / "step-40.tmp").mkdir()
    assert main(["checkpoints", str(run)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{run}: goes on from step-20"
    assert [line.split()[-2:] for line in shown[3:6]] == [
        ["whole", "DAMAGED"],
        ["DAMAGED", "whole"],
        ["unfinished", "-"],
    ]
    assert shown[-2:] == [
        "copy of step-10: rng-0.pt has 1 bytes and its list says 100000",
        "step-20: rng-1.pt has other content than its list says",
    ]
    assert main(["checkpoints", str(run), "--quick"]) == 1
    assert "step-20: rng-1.pt" not in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["rng-1.pt", ".metadata"])
def test_a_list_that_verifies_and_lacks_a_ranks_file_is_no_whole_checkpoint(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    make_run(run, None)
    make_checkpoint(run, 10, missing=missing)
    assert main(["checkpoints", str(run)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{run}: no checkpoint is whole"
    assert shown[-1] == f"step-10: {missing} is not in its list, and 2 ranks saved it"


def test_a_run_without_a_checkpoint_does_not_hold_and_a_folder_that_is_no_run_is_a_wrong_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", None)
    assert main(["checkpoints", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().out == f"{tmp_path / 'run'}: no checkpoint yet\n"
    assert main(["checkpoints", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"python -m trainer: {tmp_path}: no run.json in it; give the output folder of a run\n"
    )
