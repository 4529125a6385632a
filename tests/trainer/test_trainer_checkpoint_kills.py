"""SIGKILL at every point of a save: the newest whole checkpoint is taken, and the run ends as an unbroken one."""

import hashlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.checkpoint_trial import Trial
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.kill_points import POINTS
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import figures, train_arguments
from trainer import checkpoint_files as files
from trainer import remote
from trainer.parallel import Ranks, process_group

SETTINGS = ("global_batch=8", "micro_batch=4", "lr=1e-3", "checkpoint.steps=4", "checkpoint.keep=2")
RUN = (*SETTINGS, "model.config.attention_dropout=0.2", "steps=80", "validation.every_steps=9")


@pytest.fixture(scope="module")
def alone() -> Iterator[Ranks]:
    with process_group() as ranks:
        yield ranks


def test_a_run_killed_at_each_point_of_a_save_in_turn_ends_as_the_unbroken_one(
    forked: ForkedRanks, tmp_path: Path
) -> None:
    """Two ranks; each start goes on from the newest whole checkpoint, and dies at the next point."""
    manifest, output, log = write_dataset(tmp_path / "data"), tmp_path / "broken", tmp_path / "log"
    codes, lines = forked.run(train_arguments(manifest, tmp_path / "unbroken", *RUN), log, ranks=2)
    assert codes == [0, 0], lines
    arguments = train_arguments(manifest, output, *RUN, f"checkpoint.remote={tmp_path / 'remote'}")

    # Three are saved before the first kill, so that there is something to rotate.
    deaths = [("rename", 4, 0), *((point, 1, 0) for point in ("staging", *POINTS))]
    deaths += [(point, 1, 1) for point in ("staging", "write")]
    resumed_from = []
    for point, nth, rank in deaths:
        expected = max(whole_steps(output), default=0)
        codes, lines = forked.run(arguments, log, ranks=2, kill={"point": point, "nth": nth, "rank": rank})
        assert codes[rank] == -signal.SIGKILL, (point, codes, lines)
        assert codes[1 - rank] not in (0, -signal.SIGKILL), (point, codes, lines)
        starts = [line for line in lines if line.startswith(("resumed from", "starting from"))]
        resumed_from.append(expected)
        # A copy that an earlier death cut short is made at once: one that dies in it has not come to say where it is.
        if starts or point not in ("upload", "pointer"):
            assert int(starts[0].split("step ")[1].split(",")[0]) == expected, point
        assert_the_pointer_names_a_whole_copy(tmp_path / "remote")
    assert resumed_from == sorted(resumed_from)

    codes, lines = forked.run(arguments, log, ranks=2)
    assert codes == [0, 0], lines
    assert figures(output) == figures(tmp_path / "unbroken")
    assert sha256(output / "final" / "model.safetensors") == sha256(
        tmp_path / "unbroken" / "final" / "model.safetensors"
    )
    assert whole_steps(output)[-1] == 80
    assert len(list((output / "checkpoints").iterdir())) == 2
    assert remote.steps_in(str(tmp_path / "remote"))[-1] == remote.pointer(str(tmp_path / "remote")) == 80


def test_a_save_killed_before_each_change_it_makes_on_disk_leaves_a_whole_checkpoint_here_and_there(
    forked: ForkedRanks, alone: Ranks, tmp_path: Path
) -> None:
    """Not only at the points we thought of: at the first, second, third ... change, until none is left to die at."""
    template, output, log = tmp_path / "template", tmp_path / "killed", tmp_path / "log"
    call = "tests.trainer.checkpoint_trial:save_up_to"
    assert forked.run([str(template), "20"], log, call=call) == ([0], [])
    reached, num_changes = set(), 0
    while True:
        num_changes += 1
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(template, output)
        kill = {"point": "change", "nth": num_changes, "rank": 0}
        codes, lines = forked.run([str(output), "30"], log, call=call, kill=kill)
        if codes == [0]:
            break
        assert codes == [-signal.SIGKILL], lines
        newest = max(whole_steps(output))
        reached.add((newest, assert_the_pointer_names_a_whole_copy(output / "remote")))

        trial = Trial(output, alone, remote=output / "remote")
        assert trial.resume() == newest
        trial.save(40)
        assert trial.finish()
        assert whole_steps(output) == [newest, 40]
        assert {path.name for path in trial.root.iterdir()} == {f"step-{newest}", "step-40"}
        assert remote.pointer(str(output / "remote")) == 40
        assert remote.fault(str(output / "remote"), 40, thorough=True) is None
    # Nothing new yet; renamed and not copied; copied.
    assert reached == {(20, 20), (30, 20), (30, 30)}
    assert num_changes > 40


def whole_steps(output: Path) -> list[int]:
    root = output / "checkpoints"
    return [step for step in files.steps_in(root) if files.fault(files.folder_of(root, step), thorough=True) is None]


def assert_the_pointer_names_a_whole_copy(where: Path) -> int:
    step = json.loads((where / "latest.json").read_text())["step"]
    assert remote.fault(str(where), step, thorough=True) is None
    return int(step)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
