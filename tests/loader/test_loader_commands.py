"""`python -m loader check`, `bench` and `peek`, and the arithmetic behind the first."""

from pathlib import Path

import numpy as np
import pytest

from loader.__main__ import main
from loader.commands.check import size
from loader.commands.shuffle import meetings, moves, sampled_steps
from loader.order import RunShape, SplitOrder
from tests.loader.loader_datasets import numbered_dataset, numbered_rows, write_dataset

Capture = pytest.CaptureFixture[str]


def order_of(sizes: list[int], batch: int) -> SplitOrder:
    shape = RunShape(global_batch=batch, num_lanes=batch, window_shards=1, seed=0)
    return SplitOrder(shard_num_examples=np.array(sizes), shape=shape)


def test_check_prints_the_numbers_of_a_run(unequal: str, capsys: Capture) -> None:
    code = main(["check", "--manifest", unequal, "--global-batch", "8", "--world-size", "3", "--nodes", "2"])
    printed = capsys.readouterr().out
    assert code == 0
    assert printed.startswith("78 examples in 12 shards, ")
    for line in (
        "  order      global batch 8 = 8 lanes x 1, windows of 7 examples, 2 a lane",
        "  epoch      9 steps; 6 examples left over (7.69%), others in every epoch",
        "  rank       2-3 lanes, 3 rows a step (1 of 9 rows are filler), ",
        "  cache      ",
        "  start      a rank opens ",
        "  how far examples move in an epoch: ",
        "  shards in a batch: ",
    ):
        assert line in printed
    assert max(map(len, printed.splitlines())) <= 130


def test_the_cache_bytes_that_check_prints_are_the_loaders(on_s3: object, cache_dir: object, capsys: Capture) -> None:
    from loader import Loader

    manifest = on_s3()  # type: ignore[operator]  # a fixture that writes
    main(["check", "--manifest", manifest, "--global-batch", "4", "--world-size", "2"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  cache")]
    needed = int(line.split()[1].replace(",", ""))
    Loader(manifest, global_batch=4, world_size=2, cache_dir=cache_dir, cache_bytes=needed)
    with pytest.raises(ValueError, match=f"give cache_bytes={needed} or more"):
        Loader(manifest, global_batch=4, world_size=2, cache_dir=cache_dir, cache_bytes=needed - 1)


def test_check_of_a_mixture_prints_each_sources_part(tmp_path: Path, capsys: Capture) -> None:
    first, second = numbered_dataset(tmp_path / "a", (6,) * 12), numbered_dataset(tmp_path / "b", (5, 6, 4, 9))
    weighed = ["--manifest", f"{first}=3", "--manifest", f"{second}=1"]
    assert main(["check", *weighed, "--global-batch", "8", "--world-size", "3"]) == 0
    printed = capsys.readouterr().out
    for line in (
        "96 examples in a mixture of 2 sources",
        f"  {first}",
        "      share 75.00%, 72 examples, ",
        "6 rows of a batch from 6 lanes",
        f"  {second}",
        "      share 25.00%, 24 examples, ",
        "2 rows of a batch from 2 lanes",
        "read 1.00 times in an epoch of the mixture",
        "  order      global batch 8, 8 lanes asked for, 8 given; 12 steps an epoch",
        "  rank       2-3 lanes, 3 rows a step (1 of 9 rows are filler)",
    ):
        assert line in printed


def test_moves_of_a_large_order_are_nearly_a_full_shuffles_and_of_one_lane_too() -> None:
    for batch in (1, 16):
        order = order_of([50] * 200, batch)
        found = moves(order, *sampled_steps(order))
        assert found.expected.sum() == pytest.approx(1)
        assert found.histogram.sum() == pytest.approx(1)
        assert found.mean == pytest.approx(1 / 3, rel=0.1)


def test_meetings_count_groups_and_compare_their_spread_with_the_multinomial() -> None:
    rng = np.random.default_rng(0)
    at_random = meetings(rng.integers(0, 4, (4000, 8)), np.array([100] * 4))
    assert at_random.found == pytest.approx(at_random.expected, rel=0.02)
    assert at_random.expected == pytest.approx(4 * (1 - 0.75**8))
    assert at_random.spread == pytest.approx(1, rel=0.05)
    even = meetings(np.tile(np.arange(4).repeat(2), (10, 1)), np.array([100] * 4))
    assert (even.found, even.spread) == (4, 0)


def test_peek_draws_the_documents_of_a_row(tmp_path: object, capsys: Capture) -> None:
    manifest = write_dataset(str(tmp_path), [numbered_rows(0, 3)])
    assert main(["peek", "--manifest", manifest, "--global-batch", "1", "--rows", "1", "--width", "60"]) == 0
    printed = capsys.readouterr().out.splitlines()
    [name] = [line for line in printed if line.startswith("row 0: example ")]
    number = 10 + int(name.split()[3])
    assert printed[0] == "step 0 (epoch 0): 1 of 1 rows"
    assert printed[3:] == [
        "  ┌ document 0: tokens 0 .. 4 (5)",
        f"  │ {number} {number} {number} {number}",
        "  └ EOS",
        "  ┌ document 1: tokens 5 .. 7 (3)",
        f"  │ {number} {number} {number}",
        "  ┆ goes on in another row",
    ]


def test_bench_measures_here_and_now(tmp_path: object, capsys: Capture) -> None:
    manifest = numbered_dataset(str(tmp_path), (50, 60))
    assert (
        main(["bench", "--manifest", manifest, "--global-batch", "2", "--seconds", "0.1", "--columns", "labels"]) == 0
    )
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == [
        "first", "resume", "examples", "tokens", "storage", "waits"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--nodes", "0"], "python -m loader: --nodes is 0; give 1 or more"),
        (["check", "--global-batch", "79"], "python -m loader: the split holds 78 examples in 12 shards, fewer than"),
        (["peek", "--rows", "0"], "python -m loader: --rows is 0; give 1 or more"),
        (["peek", "--step", "-1"], "python -m loader: --step is -1; give 0 or more"),
        (["bench", "--seconds", "0"], "python -m loader: --seconds is 0.0; give more than 0"),
        (["bench", "--columns", "tokens"], "python -m loader: columns is ('tokens',); give one or more of"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    unequal: str, capsys: Capture, arguments: list[str], message: str
) -> None:
    command, *options = arguments
    assert main([command, "--manifest", unequal, "--global-batch", "6", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


def test_sizes_are_said_as_a_person_says_them() -> None:
    assert [size(0), size(999), size(1500), size(2 * 10**12)] == ["0 bytes", "999 bytes", "1.5 kB", "2.0 TB"]
