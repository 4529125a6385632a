"""python -m trainer drill: recovery tried on the spot, and what is not equal told."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import train_arguments
from trainer import checkpoint_files as files
from trainer.__main__ import main
from trainer.commands import drill


@pytest.fixture(scope="module")
def run(forked: ForkedRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one rank, with dropout."""
    folder = tmp_path_factory.mktemp("drill")
    settings = ("global_batch=8", "steps=4", "lr=1e-3", "model.config.attention_dropout=0.2")
    arguments = train_arguments(write_dataset(folder / "data"), folder / "run", *settings)
    codes, lines = forked.run(arguments, folder / "log")
    assert codes == [0], lines
    return folder / "run"


def test_a_drill_tells_what_saving_and_restoring_cost_and_that_the_continuation_was_equal(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drill", str(run), "--steps", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"drill of {run}: 2 steps, a save, 2 more; new processes made the last 2 again"
    assert re.fullmatch(r"saved         0\.\d MB in \d+\.\d s, \d+ MB/s, beside the training", said[1])
    assert re.fullmatch(r"held          \d+\.\d\d s of training for it", said[2])
    assert re.fullmatch(r"restored      \d+\.\d s from the start of the processes to the first step", said[3])
    assert said[4] == "continuation  bit-equal: 2 rows of metrics, 2 files of tensors and random states"
    assert not (run / "drill").exists()


def test_what_a_continuation_does_not_repeat_is_named(tmp_path: Path) -> None:
    for name, loss, weights in (("whole", 4.25, b"w"), ("resumed", 4.250000001, b"v")):
        output = tmp_path / name
        folder = files.unfinished_folder_of(output / "checkpoints", 4)
        folder.mkdir(parents=True)
        exact = {"lr": 1e-3, "grad_norm": 1.0, "num_tokens": 9, "examples_consumed": 8, "batch_digest": "sha256:0"}
        rows = [{"step": step, "loss": loss if step == 4 else 4.5, **exact} for step in (1, 2, 3, 4)]
        (output / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for file, content in (("__0_0.distcp", weights), ("rng-0.pt", b"r"), (".metadata", weights)):
            (folder / file).write_bytes(content)
        files.write_list(folder, [files.hash_file(folder, path) for path in files.files_in(folder)])
        files.publish(output / "checkpoints", 4)
    assert drill.differing(tmp_path / "whole", tmp_path / "resumed", 2) == (
        "row of step 4",
        "tensors in __0_0.distcp",
    )


def test_a_run_that_fails_in_the_drill_is_told_with_its_log(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text("raise SystemExit('no such network')")
    assert main(["drill", str(run), "--launch", f"{sys.executable} {failing}"]) == 2
    assert f"exited with 1; what it said is in {run}/drill/whole.log" in capsys.readouterr().err
    assert (run / "drill" / "whole.log").read_text() == "no such network\n"
