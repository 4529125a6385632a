"""A disk that is full for a while, by the kernel's own limit on file sizes (RLIMIT_FSIZE): real failed writes."""

import json
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TrainingProcess, figures, files_of_at_most, train_arguments
from trainer.__main__ import main
from trainer.append import AppendedLines
from trainer.checkpoint_files import fault
from trainer.train import EXIT_NOT_EXPORTED
from trainer.train import main as train


def test_lines_that_find_no_room_are_kept_and_follow_in_order_after_one_warning(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lines"
    lines = AppendedLines(path, said.append)
    with files_of_at_most(15):
        for number in range(10):
            lines.write(f"line {number}")  # 7 bytes with its end
        assert path.read_bytes() == b"line 0\nline 1\nl"
        with pytest.raises(OSError, match="File too large"):
            lines.sync()
    assert said == [f"warning: {path} cannot be written: [Errno 27] File too large; its lines are kept and tried again"]
    lines.write("line 10")
    lines.close()
    assert path.read_text().splitlines() == [f"line {number}" for number in range(11)]
    assert said[1:] == [f"{path} is written again, nothing left out"]


def test_lines_that_never_find_room_are_said_to_be_lost(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lines"
    lines = AppendedLines(path, said.append)
    with files_of_at_most(7):
        lines.write("line 0")
        lines.write("line 1")
        lines.write("line 2")
        lines.close()
    assert said[1:] == [f"warning: the last 2 lines of {path} are lost: [Errno 27] File too large"]


def test_a_run_goes_on_over_a_full_disk_and_ends_as_one_that_had_room(forked: ForkedRanks, tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "data")
    output, figures_file = tmp_path / "full", tmp_path / "run.prom"
    of_steps = ("global_batch=4", "steps=300", "lr=1e-3", "checkpoint.steps=10")
    settings = (*of_steps, f"prometheus.textfile={figures_file}")
    with files_of_at_most(3_000):
        process = TrainingProcess(manifest, output, *settings)
    process.wait_for(f"warning: {output / 'metrics.jsonl'} cannot be written: [Errno 27]")
    process.wait_for("warning: step-")
    process.wait_for("step ")
    process.may_write_files_of(resource.RLIM_INFINITY)
    assert process.finish() == 0, process.lines[-40:]
    assert f"{output / 'metrics.jsonl'} is written again, nothing left out" in process.lines
    assert sum(f"{figures_file} cannot be written" in line for line in process.lines) == 1
    assert "shardmill_step{" in figures_file.read_text()
    codes, lines = forked.run(train_arguments(manifest, tmp_path / "roomy", *of_steps), tmp_path / "log")
    assert codes == [0], lines
    assert figures(output) == figures(tmp_path / "roomy")
    events = [json.loads(line) for line in (output / "timeline.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["kind"] == "step"] == list(range(1, 301))


def train_with_little_room(arguments: Sequence[str]) -> int:
    """For forked_ranks: files of 6 MB at most, the rest as `trainer/train.py`."""
    with files_of_at_most(6_000_000):
        return train(list(arguments))


def test_an_export_without_room_leaves_the_checkpoint_and_says_how_to_make_it_up(
    forked: ForkedRanks, tmp_path: Path
) -> None:
    """8.9 MB as a model; with Adafactor a little more than half of it is a rank's file of the checkpoint."""
    settings = ("global_batch=4", "steps=2", "lr=1e-2", "optimizer.name=adafactor")
    wide = ("model.config.hidden_size=256", "model.config.intermediate_size=1024")
    output = tmp_path / "out"
    arguments = train_arguments(write_dataset(tmp_path / "data"), output, *settings, *wide)
    codes, lines = forked.run(
        arguments, tmp_path / "log", ranks=2, call="tests.trainer.test_trainer_full_disk:train_with_little_room"
    )
    assert codes == [EXIT_NOT_EXPORTED] * 2 == [3, 3], lines
    (told,) = [line for line in lines if line.startswith("train.py: ")]
    assert told.startswith(f"train.py: the model was not written to {output / 'final'}: rank 0: ")
    assert told.endswith(
        f"; checkpoint step-2 holds it: make room, then python -m trainer export {output}, or the same command again"
    )
    assert not any("Traceback" in line for line in lines)
    assert not list(output.glob("final*"))
    assert fault(output / "checkpoints" / "step-2", thorough=True) is None

    assert main(["export", str(output)]) == 0
    made_up = {path.name: path.read_bytes() for path in (output / "final").iterdir()}
    codes, lines = forked.run(arguments, tmp_path / "log", ranks=2)
    assert codes == [0, 0], lines
    assert {path.name: path.read_bytes() for path in (output / "final").iterdir()} == made_up


def test_an_export_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path)]) == 2
    assert main(["export", str(tmp_path), "--step", "4"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"python -m trainer: {tmp_path}: no whole checkpoint under {tmp_path}/checkpoints; give the output folder of"
        " a run that has saved",
        f"python -m trainer: --step: {tmp_path}/checkpoints has no step-4; there are: none",
    ]
