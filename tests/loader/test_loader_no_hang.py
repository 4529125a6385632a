"""Nobody waits for a shard that nobody may fetch, nor for ever for a store that says nothing."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from loader import Loader
from tests.loader.loader_datasets import named, numbered_dataset

Write = Callable[..., str]
LONGEST_S = 60.0


def steps_in_time(loader: Loader, num_steps: int, step_s: float) -> list[list[tuple[int, int]]]:
    """The loader's next steps, each its rows' examples; fails where they take longer than a minute."""
    steps: list[list[tuple[int, int]]] = []

    def run() -> None:
        while len(steps) < num_steps:
            for batch in loader:
                time.sleep(step_s)
                steps.append(named(batch["input_ids"][:, 0].tolist()))
                loader.advance()
                if len(steps) == num_steps:
                    break

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    assert len(steps) == num_steps, f"stands still after {len(steps)} steps"
    return steps


# A step of a mixture crosses its sources' epochs: a small source's shards of two or more epochs are open at once.
@pytest.mark.parametrize("small", [(5,) * 8, (20,) * 8, (1,) * 20])
@pytest.mark.parametrize("rank", [2, 3])
def test_a_mixture_whose_source_ends_within_a_step_goes_on(
    on_s3: Write, tmp_path: Path, cache_dir: Path, small: tuple[int, ...], rank: int
) -> None:
    sizes = {"large": (20,) * 20, "small": small}
    options = {"global_batch": 40, "columns": ("input_ids",), "rank": rank, "world_size": 4}
    remote = Loader({on_s3(of, prefix=name): 0.5 for name, of in sizes.items()}, cache_dir=cache_dir, **options)
    local = Loader({numbered_dataset(tmp_path / name, of): 0.5 for name, of in sizes.items()}, **options)
    assert steps_in_time(remote, 40, 0.005) == steps_in_time(local, 40, 0)
    remote.close()


@pytest.mark.parametrize(("sizes", "global_batch", "lanes"), [((1,) * 40, 4, 4), ((8,) * 20, 32, 4)])
def test_local_shards_are_verified_where_a_step_is_a_window_or_more(
    tmp_path: Path, sizes: tuple[int, ...], global_batch: int, lanes: int
) -> None:
    manifest = numbered_dataset(tmp_path, sizes)
    options = {"global_batch": global_batch, "lanes": lanes, "columns": ("input_ids",)}
    plain, verified = Loader(manifest, **options), Loader(manifest, verify_local=True, **options)
    num_steps = 2 * plain.steps_per_epoch
    assert steps_in_time(verified, num_steps, 0.02) == steps_in_time(plain, num_steps, 0)


def test_a_dataloaders_workers_can_hold_each_others_shards(on_s3: Write, cache_dir: Path) -> None:
    loader = Loader(on_s3((1,) * 48), global_batch=4, cache_dir=cache_dir, columns=("input_ids",))
    around = torch.utils.data.DataLoader(loader.dataset(), batch_size=None, num_workers=6, timeout=LONGEST_S)
    for batch in around:
        assert named(batch["input_ids"][:, 0].tolist()) == loader.global_batch_examples()
        loader.advance()
    assert (loader.epoch, loader.examples_consumed) == (1, 0)


SILENT_STORE = """
import threading
from loader.early import EarlyRows
from tests.loader.loader_datasets import EXAMPLE

def never(*_):
    print("asked", flush=True)
    threading.Event().wait()

EarlyRows._read = never
EarlyRows(EXAMPLE, str).read({0: [0]}, {0: "x"})
"""


def test_a_program_that_is_interrupted_does_not_wait_for_a_silent_store() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SILENT_STORE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("asked")  # two threads may have said it at once
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert errors.endswith("KeyboardInterrupt\n")
