"""`python -m loader trace`: the order in print, equal for every world size and number of workers."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from loader import Loader
from loader.__main__ import main
from manifests import Dataset, ShardEntry, load
from tests.loader.loader_datasets import numbered_dataset

Capture = pytest.CaptureFixture[str]


def traced(capsys: Capture, manifest: str, *options: str) -> list[dict[str, object]]:
    code = main(["trace", "--manifest", manifest, *options])
    output = capsys.readouterr()
    assert (code, output.err) == (0, "")
    return [json.loads(line) for line in output.out.splitlines()]


def by_step(records: list[dict[str, object]]) -> dict[object, list[object]]:
    steps: dict[object, list[object]] = defaultdict(list)
    for record in records:
        steps[record["step"]].extend(record["examples"])
    return dict(steps)


def test_a_line_is_a_step_of_a_rank(tmp_path: Path, capsys: Capture) -> None:
    manifest = numbered_dataset(tmp_path, (4, 3, 5))
    options = (
        "--global-batch",
        "4",
        "--lanes",
        "2",
        "--world-size",
        "2",
        "--seed",
        "0",
        "--start",
        "2",
        "--steps",
        "2",
    )
    first, second, third = (f"shards/train/v1-00000{number}.tar" for number in range(3))
    # The pinned order of test_loader_order.py: the last step of epoch 0 and the first of epoch 1.
    assert traced(capsys, manifest, *options) == [
        {"step": 2, "rank": 0, "examples": [[second, 0], [second, 1]]},
        {"step": 2, "rank": 1, "examples": [[third, 4], [third, 3]]},
        {"step": 3, "rank": 0, "examples": [[third, 1], [third, 3]]},
        {"step": 3, "rank": 1, "examples": [[first, 2], [first, 3]]},
    ]
    assert traced(capsys, manifest, *options, "--rank", "1") == traced(capsys, manifest, *options)[1::2]


@pytest.mark.parametrize("options", [("--world-size", "1"), ("--world-size", "3"), ("--world-size", "8")])
@pytest.mark.parametrize("workers", [(), ("--workers", "1"), ("--workers", "3")])
def test_the_global_sequence_is_the_loaders_on_any_topology(
    unequal: str, capsys: Capture, options: tuple[str, ...], workers: tuple[str, ...]
) -> None:
    loader = Loader(unequal, global_batch=6, seed=11)
    paths = [entry.path for entry in load(unequal).manifest.splits["train"].shards]
    expected = {}
    for step in range(15):
        expected[step] = [[paths[shard], example] for shard, example in loader.global_batch_examples()]
        loader.advance()
    found = traced(capsys, unequal, "--global-batch", "6", "--seed", "11", "--steps", "15", *options, *workers)
    assert by_step(found) == expected


@pytest.mark.parametrize("world_size", ["1", "3"])
def test_a_mixtures_trace_is_its_loaders_sequence(tmp_path: Path, capsys: Capture, world_size: str) -> None:
    weights = {numbered_dataset(tmp_path / "a", (7, 3, 12)): 0.7, numbered_dataset(tmp_path / "b", (5, 6)): 0.3}
    loader = Loader(weights, global_batch=4, seed=11)
    paths = [dataset.resolve(entry.path) for dataset in map(load, weights) for entry in dataset_shards(dataset)]
    expected = {}
    for step in range(15):
        expected[step] = [[paths[shard], example] for shard, example in loader.global_batch_examples()]
        loader.advance()
    first, second = (f"{manifest}={weight}" for manifest, weight in weights.items())
    options = ("--manifest", second, "--global-batch", "4", "--seed", "11", "--steps", "15", "--world-size", world_size)
    assert by_step(traced(capsys, first, *options)) == expected


def dataset_shards(dataset: Dataset) -> tuple[ShardEntry, ...]:
    return dataset.manifest.splits["train"].shards


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--global-batch", "79"), "python -m loader: the split holds 78 examples"),
        (
            ("--global-batch", "6", "--lanes", "4"),
            "python -m loader: the global batch of 6 examples is not a multiple of",
        ),
        (("--global-batch", "6", "--rank", "2"), "python -m loader: --rank is 2 of --world-size 1"),
        (("--global-batch", "6", "--world-size", "0"), "python -m loader: --world-size is 0"),
        (("--global-batch", "6", "--start", "-1"), "python -m loader: --start is -1"),
        (("--global-batch", "6", "--split", "none"), "python -m loader: there is no split 'none'"),
        (("--global-batch", "6", "--manifest", "nowhere.json"), "python -m loader: --manifest /"),
        (("--global-batch", "6", "--manifest", "nowhere.json=0.5"), "python -m loader: --manifest /"),
        (("--global-batch", "six"), "python -m loader trace: argument --global-batch: invalid int value: 'six'"),
        ((), "python -m loader trace: the following arguments are required: --global-batch"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    unequal: str, capsys: Capture, options: tuple[str, ...], message: str
) -> None:
    try:
        code = main(["trace", "--manifest", unequal, *options])
    except SystemExit as end:
        code = int(end.code or 0)
    output = capsys.readouterr()
    assert code == 2
    assert output.out == ""
    assert output.err.startswith(message)
    assert output.err.count("\n") == 1


def test_the_bare_command_shows_help_with_an_example(capsys: Capture) -> None:
    assert main([]) == 2
    assert "example: python -m loader trace --manifest" in capsys.readouterr().err


def test_the_command_needs_no_torch_and_minds_no_closed_pipe(unequal: str, repository: Path) -> None:
    program = (
        "import os, runpy, sys\n"
        f"sys.argv = ['loader', 'trace', '--manifest', {unequal!r}, '--global-batch', '1', '--steps', '5000']\n"
        "leave = os._exit\n"
        "def said(code):\n"
        "    sys.stderr.write(f'{code} {\"torch\" in sys.modules}')\n"
        "    sys.stderr.flush()\n"
        "    leave(code)\n"
        "os._exit = said  # commands end so, past all that could still be said\n"
        "runpy.run_module('loader', run_name='__main__')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["step"] == 0
    process.stdout.close()
    assert process.stderr.read() == "0 False"
    assert process.wait(timeout=60) == 0
