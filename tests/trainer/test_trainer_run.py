"""A run put together, stopped inside a validation, and put together again."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from manifests import load
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import TINY_MODEL, write_dataset
from tests.trainer.trainer_processes import train_arguments
from trainer import output_lock, train
from trainer.config import ModelConfig, TrainConfig, ValidationConfig
from trainer.facts import StepFacts
from trainer.journal import read_rows
from trainer.parallel import process_group
from trainer.progress import Progress
from trainer.run import prepare
from trainer.signals import StopSignal
from trainer.watchdog import Watchdog


def test_a_validation_cut_short_by_a_signal_is_made_up_for_on_resume(tmp_path: Path) -> None:
    dataset = load(write_dataset(tmp_path / "data"))
    config = TrainConfig(
        model=ModelConfig(config=TINY_MODEL),
        output=str(tmp_path / "run"),
        steps=4,
        validation=ValidationConfig(every_steps=2),
    )
    facts = StepFacts(
        step=2,
        loss=4.5,
        lr=1e-3,
        grad_norm=0.5,
        num_tokens=200,
        tokens_in_batch=256,
        examples_consumed=16,
        batch_digest="sha256:00",
        seconds=0.5,
        data_wait_s=0.1,
        applied=True,
        num_skipped=0,
    )
    stop = StopSignal()
    with process_group() as ranks:
        watchdog = Watchdog(None, start_minutes=None, rank=0)
        stopped = prepare(config, dataset, ranks, watchdog)
        stopped.progress = Progress(step=2, examples_consumed=16)
        stop.name = "SIGTERM"
        assert not stopped.conclude(facts, stop)
        stopped.close()
        assert read_rows(tmp_path / "run" / "metrics.jsonl") == []

        resumed = prepare(config, dataset, ranks, watchdog)
        assert resumed.unvalidated == facts
        assert resumed.conclude(resumed.unvalidated, StopSignal())
        resumed.close()
    (row,) = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert (row["step"], row["loss"]) == (2, 4.5)
    assert 80 < row["validation_perplexity"] < 120


def train_in_a_folder_of_its_own(arguments: Sequence[str]) -> int:
    """For forked_ranks: what nodes without a shared file system have under one name."""
    rank = os.environ["RANK"]
    output_lock._LONGEST_LOOK_S = 0.5
    train._SILENT_S = 0.0  # here no launcher ends it
    return train.main([text.replace("/out", f"/out-{rank}") for text in arguments])


def test_ranks_that_do_not_see_one_output_folder_are_refused_before_they_train(
    forked: ForkedRanks, tmp_path: Path
) -> None:
    arguments = train_arguments(write_dataset(tmp_path / "data"), tmp_path / "out", "steps=2")
    codes, lines = forked.run(
        arguments, tmp_path / "log", ranks=2, call="tests.trainer.test_trainer_run:train_in_a_folder_of_its_own"
    )
    assert codes == [2, 2], lines
    assert sorted(lines) == [
        f"train.py: {rank}output: rank 1 does not see the {tmp_path}/out-1 that rank 0 writes into;"
        " give a folder that all nodes share"
        for rank in ("", "rank 1: ")
    ]


def train_as_a_node_of_its_own(arguments: Sequence[str]) -> int:
    """For forked_ranks: each rank the first of its node, so both serve figures; here on one machine."""
    os.environ["LOCAL_RANK"] = "0"
    train._SILENT_S = 0.0
    return train.main(list(arguments))


def test_what_one_node_cannot_serve_is_said_and_ends_all(forked: ForkedRanks, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = ("steps=2", f"prometheus.port={port}")
    arguments = train_arguments(write_dataset(tmp_path / "data"), tmp_path / "out", *settings)
    codes, lines = forked.run(
        arguments, tmp_path / "log", ranks=2, call="tests.trainer.test_trainer_run:train_as_a_node_of_its_own"
    )
    assert codes == [2, 2], lines
    assert sorted(lines[-2:]) == [
        f"train.py: {rank}prometheus.port: cannot listen on 127.0.0.1:{port}: Address already in use; give another"
        for rank in ("", "rank 1: ")
    ]
