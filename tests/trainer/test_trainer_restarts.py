"""torchrun's own restarts: a rank killed, a rank that hangs, a node lost. Real agents, real signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TRAIN, TrainingProcess, figures, train_arguments

SETTINGS = ("global_batch=8", "micro_batch=2", "steps=60", "lr=1e-3", "checkpoint.steps=5")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data"))


def unbroken(forked: ForkedRanks, manifest: str, output: Path, *settings: str) -> Path:
    codes, lines = forked.run(train_arguments(manifest, output, *settings), output.with_suffix(".log"), ranks=2)
    assert codes == [0, 0], lines
    return output


def test_torchrun_starts_again_what_was_killed_and_what_hangs_and_the_run_ends_as_an_unbroken_one(
    forked: ForkedRanks, manifest: str, tmp_path: Path
) -> None:
    settings = (*SETTINGS, "model.config.attention_dropout=0.2", "hang_minutes=0.2", "start_minutes=0.2")
    expected = unbroken(forked, manifest, tmp_path / "unbroken", *settings)
    output = tmp_path / "broken"
    launch = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "5", "--shutdown-timeout", "2"]
    process = TrainingProcess(manifest, output, *settings, torchrun=launch)
    process.wait_for("step 12/")
    os.kill(process.ranks()[1], signal.SIGKILL)
    # A stopped process does nothing, and ends only by SIGKILL: what a dead file system makes of one. First in a start.
    process.wait_for("data: ")
    stopped = process.ranks()[1]
    os.kill(stopped, signal.SIGSTOP)
    assert "took more than 12 s (start_minutes)" in process.wait_for("rank 0: ")
    process.wait_for("Timeout (0:00:12)!")
    os.kill(stopped, signal.SIGKILL)  # torchrun would, after 30 s
    process.wait_for("resumed from")
    process.wait_for("step ")
    os.kill(process.ranks()[1], signal.SIGSTOP)
    process.wait_for("Timeout (0:00:12)!")
    process.wait_for("resumed from")
    assert process.finish() == 0, process.lines
    assert figures(output) == figures(expected)
    weights = ("final", "model.safetensors")
    assert output.joinpath(*weights).read_bytes() == expected.joinpath(*weights).read_bytes()
    # The stacks say where the rank waited: which function, in which file.
    assert any("trainer/train.py" in line for line in process.lines)


def test_when_one_of_two_nodes_is_lost_the_other_goes_on_with_fewer_ranks(
    forked: ForkedRanks, manifest: str, tmp_path: Path
) -> None:
    """Two agents on one machine; the second is killed with its rank, as a power cut does."""
    expected = unbroken(forked, manifest, tmp_path / "unbroken", *SETTINGS)
    output = tmp_path / "broken"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    waits = "last_call_timeout=10,keep_alive_interval=2,keep_alive_max_attempt=3"
    settings = (*SETTINGS, "mesh.replicate=null", "mesh.shard=1")
    launch = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", waits, "--local-addr", "127.0.0.1"]
    first = TrainingProcess(manifest, output, *settings, torchrun=launch)
    _wait_until_listening(port)  # the first agent is the one that keeps the rendezvous
    second = TrainingProcess(manifest, output, *settings, torchrun=launch)
    first.wait_for("tokens per step: 2 ranks")
    first.wait_for("step 12/")
    second.send(signal.SIGKILL)
    first.wait_for("resumed from")
    first.wait_for("note: number of ranks was 2, is 1")
    assert first.finish() == 0, first.lines
    same = ("step", "lr", "num_tokens", "examples_consumed", "batch_digest")
    assert figures(output, same) == figures(expected, same)
    for here, there in zip(figures(output), figures(expected), strict=True):
        assert here["loss"] == pytest.approx(there["loss"], abs=1e-5)


def _wait_until_listening(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return


def test_a_start_that_hangs_says_in_which_phase_shows_the_stacks_and_ends(manifest: str, tmp_path: Path) -> None:
    """Rank 0 of two, whose other rank never comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    alone = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, str(TRAIN), *train_arguments(manifest, tmp_path / "out", "start_minutes=0.05")],
        env={**os.environ, **alone},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "rank 0: joining the other ranks took more than 3 s (start_minutes); the stacks:" in done.stderr
    assert "in process_group" in done.stderr


def test_a_store_out_of_reach_is_no_new_run(manifest: str, tmp_path: Path) -> None:
    store = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nobody"}
    arguments = train_arguments(manifest, tmp_path / "out", "steps=2", "checkpoint.remote=s3://bucket/copies")
    done = subprocess.run(
        [sys.executable, str(TRAIN), *arguments],
        env={**os.environ, **store, "AWS_MAX_ATTEMPTS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("train.py: no valid checkpoint under ")
    assert "cannot reach http://127.0.0.1:1" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
