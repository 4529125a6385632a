"""`python -m trainer export`: what it may replace, and families whose configs are unlike Llama's."""

from pathlib import Path

import pytest

from tests.trainer.family_sizes import small_config
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import files_of_at_most, train_arguments
from trainer.__main__ import main


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_but_an_earlier_export_is_replaced(
    forked: ForkedRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    arguments = train_arguments(write_dataset(tmp_path / "data"), run, "global_batch=4", "steps=1")
    codes, lines = forked.run(arguments, tmp_path / "log")
    assert codes == [0], lines
    others = tmp_path / "others"
    others.mkdir()
    (others / "thesis.txt").write_text("five years of work")
    (tmp_path / "link").symlink_to(others)
    file = tmp_path / "file"
    file.write_text("a file")
    monkeypatch.chdir(run)
    for target in (others, tmp_path / "link", file, run, Path(".."), Path("/")):
        assert main(["export", str(run), "--to", str(target)]) == 2
        assert capsys.readouterr().err == (
            f"python -m trainer: --to: {target.resolve()} is there and is no model exported by Shardmill, which would"
            " replace it; give another\n"
        )
    assert contents(others) == {"thesis.txt": b"five years of work"}
    assert (run / "checkpoints" / "step-1").is_dir()

    with files_of_at_most(1000):
        assert main(["export", str(run), "--to", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"python -m trainer: cannot write the weights into {tmp_path / 'new.tmp'}: ")
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("new*"))

    (tmp_path / "empty").mkdir()
    for target in (run / "final", tmp_path / "empty", tmp_path / "new"):
        assert main(["export", str(run), "--to", str(target)]) == 0
        assert contents(target) == contents(run / "final")


def test_a_damaged_newest_checkpoint_is_told_and_an_older_one_taken(
    forked: ForkedRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    settings = ("global_batch=4", "steps=2", "checkpoint.steps=1", "checkpoint.keep=2")
    arguments = train_arguments(write_dataset(tmp_path / "data"), run, *settings)
    first = ("--set", "steps=1")
    for more in (first, ()):
        codes, lines = forked.run([*arguments, *more], tmp_path / "log")
        assert codes == [0], lines
    newest = run / "checkpoints" / "step-2"
    (newest / "state.json").write_text("{}")
    assert main(["export", str(run), "--to", str(tmp_path / "older")]) == 0
    said = capsys.readouterr()
    assert said.out == f"step-1 -> {tmp_path / 'older'}\n"
    assert said.err.startswith(f"python -m trainer: warning: step-2 under {run / 'checkpoints'} is damaged: state.json")


@pytest.mark.parametrize(
    "family",
    [
        "gpt_neo",  # eager attention only
        "granitemoehybrid",  # an infinity in its config, which JSON has not
    ],
)
def test_a_family_unlike_llama_is_exported(forked: ForkedRanks, tmp_path: Path, family: str) -> None:
    small_config(family, {}).save_pretrained(tmp_path / "config")
    settings = ("global_batch=4", "steps=1", f"model.config={tmp_path / 'config'}")
    run = tmp_path / "run"
    manifest = write_dataset(tmp_path / "data")
    options = [option for setting in (*settings, f"output={run}") for option in ("--set", setting)]
    codes, lines = forked.run(["--manifest", manifest, *options], tmp_path / "log")
    assert codes == [0], lines
    assert main(["export", str(run), "--to", str(tmp_path / "again")]) == 0
    assert contents(tmp_path / "again") == contents(run / "final")
