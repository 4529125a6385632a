"""Real runs, killed and started again: the continuation equals the unbroken run."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from manifests.yaml_config import ConfigError
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TrainingProcess, complete, figures, train_arguments
from trainer.checkpoint_files import fault
from trainer.journal import read_rows
from trainer.output_lock import OutputLock
from trainer.signals import EXIT_RESUME_ME

# 42 examples, 8 a step: five steps an epoch, so 80 steps cross many epoch ends, and leave a signal time to arrive.
# Dropout is on: the random state matters.
BROKEN = ("global_batch=8", "micro_batch=2", "steps=80", "lr=1e-3", "checkpoint.steps=10", "validation.every_steps=5")
DROPOUT = "model.config.attention_dropout=0.2"
STEADY = ("global_batch=8", "steps=6", "lr=1e-3", "checkpoint.steps=4", "validation.every_steps=3")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def steady(manifest: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of one process, six steps, without dropout."""
    output = tmp_path_factory.mktemp("steady")
    process = complete(manifest, output, *STEADY)
    assert "starting from step 0" in process.lines
    assert "tokens per step: 1 ranks x micro-batch 1 x accumulation 8 x seq_len 32 = 256" in process.lines
    return output


def test_a_run_of_two_ranks_killed_and_stopped_goes_on_bit_for_bit(
    forked: ForkedRanks, manifest: str, tmp_path: Path
) -> None:
    unbroken, broken, remote = tmp_path / "unbroken", tmp_path / "broken", tmp_path / "remote"
    codes, lines = forked.run(train_arguments(manifest, unbroken, *BROKEN, DROPOUT), tmp_path / "log", ranks=2)
    assert codes == [0, 0], lines
    expected = figures(unbroken)
    assert [row["step"] for row in expected] == list(range(1, 81))

    settings = (*BROKEN, DROPOUT, f"checkpoint.remote={remote}")
    killed = TrainingProcess(manifest, broken, *settings, ranks=2)
    killed.wait_for("step 13/80")
    while not (remote / "latest.json").exists():  # copied beside the training
        killed.wait_for("step ")
    assert killed.send(signal.SIGKILL) == -signal.SIGKILL
    rows = figures(broken)
    assert 13 <= len(rows) < 80
    assert rows == expected[: len(rows)]

    # The folder is gone with its machine: the copy is what is left.
    shutil.rmtree(broken / "checkpoints")
    stopped = TrainingProcess(manifest, broken, *settings, ranks=2)
    stopped.wait_for("fetching checkpoint step-")
    stopped.wait_for("resumed from")
    stopped.wait_for("step ")
    assert stopped.send(signal.SIGTERM) != 0
    assert any(line.startswith("stopped by SIGTERM after step ") for line in stopped.lines), stopped.lines

    finished = complete(manifest, broken, *settings, ranks=2)
    assert any(line.startswith("resumed from") for line in finished.lines)
    assert figures(broken) == expected


def test_a_signal_in_a_run_of_one_process_saves_and_exits_with_75(manifest: str, tmp_path: Path) -> None:
    process = TrainingProcess(manifest, tmp_path, *BROKEN, "checkpoint.steps=null")
    process.wait_for("step 3/80")
    assert process.send(signal.SIGINT) == EXIT_RESUME_ME == 75
    (folder,) = (tmp_path / "checkpoints").iterdir()
    assert fault(folder, thorough=True) is None
    assert process.lines[-1] == (
        f"stopped by SIGINT after step {folder.name.removeprefix('step-')}; the same command resumes there"
    )


def test_another_number_of_ranks_sees_the_same_data_and_nearly_the_same_loss(
    manifest: str, steady: Path, tmp_path: Path
) -> None:
    """8 examples do not divide by 3 ranks, nor 101 rows of the embedding: filler and uneven shards."""
    output = tmp_path / "wider"
    (output / "checkpoints").mkdir(parents=True)
    shutil.copytree(steady / "checkpoints" / "step-4", output / "checkpoints" / "step-4")
    shutil.copy(steady / "metrics.jsonl", output / "metrics.jsonl")
    process = complete(manifest, output, *STEADY, ranks=3)
    assert "note: number of ranks was 1, is 3" in process.lines
    same = ("step", "lr", "num_tokens", "examples_consumed", "batch_digest")
    assert figures(output, same) == figures(steady, same)
    for here, there in zip(figures(output), figures(steady), strict=True):
        assert here["loss"] == pytest.approx(there["loss"], abs=1e-5)
        assert here["grad_norm"] == pytest.approx(there["grad_norm"], abs=1e-4)
    last, expected = figures(output)[-1], figures(steady)[-1]
    assert last["validation_loss"] == pytest.approx(expected["validation_loss"], abs=1e-5)


def test_the_loss_falls_and_the_run_tells_what_it_was(steady: Path, manifest: str) -> None:
    rows = read_rows(steady / "metrics.jsonl")
    assert rows[-1]["validation_perplexity"] < rows[2]["validation_perplexity"] < 101
    facts = json.loads((steady / "run.json").read_text())
    assert facts["manifest"]["digest"] == json.loads(Path(manifest).read_text())["digest"]
    assert facts["config"]["global_batch"] == 8
    assert set(facts["code"]) == {"version", "git_commit"}


def test_a_finished_run_started_again_does_nothing_more(manifest: str, steady: Path, tmp_path: Path) -> None:
    output = tmp_path / "again"
    shutil.copytree(steady, output)
    before = figures(output)
    process = complete(manifest, output, *STEADY)
    assert not any(line.startswith("step ") for line in process.lines)
    assert figures(output) == before


def test_the_exported_model_loads_with_transformers_and_its_tokenizer(steady: Path) -> None:
    final = steady / "final"
    model = AutoModelForCausalLM.from_pretrained(final)
    assert (model.config.vocab_size, model.config.eos_token_id, model.dtype) == (101, 1, torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(final)
    assert tokenizer("w5 w7 </s>")["input_ids"] == [5, 7, 1]
    assert tokenizer.eos_token_id == 1
    assert not list(steady.glob("*.tmp"))


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for output in (file, file / "inside"):
        with pytest.raises(ConfigError, match=f"output: {output} cannot be written into: .*; give another folder"):
            OutputLock(output).acquire()


def test_a_second_run_into_the_same_folder_is_refused(manifest: str, tmp_path: Path) -> None:
    lock = OutputLock(tmp_path / "out")
    lock.acquire()
    second = TrainingProcess(manifest, tmp_path / "out", *STEADY)
    assert second.finish() == 2
    lock.release()
    assert second.lines == [
        f"train.py: output: another run is training into {tmp_path / 'out'}; wait for it, or give another output"
    ]
