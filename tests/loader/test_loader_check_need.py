"""What `check` says a node needs is enough for every node, though the ranks own unequal lanes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loader import Loader
from loader.__main__ import main
from loader.commands import check, check_mixture
from loader.order import RunShape
from manifests import UserError, load

SHAPE = RunShape(global_batch=8, num_lanes=8, window_shards=1, seed=0)


@pytest.mark.parametrize(("world_size", "nodes"), [(3, 3), (5, 3), (6, 2), (8, 4)])
def test_every_node_can_work_with_the_bytes_check_names(
    on_s3: Callable[..., str], cache_dir: Path, world_size: int, nodes: int
) -> None:
    one, two = on_s3((10,) * 40, prefix="one"), on_s3((10,) * 40, prefix="two")
    run = {"split": "train", "shape": SHAPE, "world_size": world_size, "nodes": nodes, "steps_in_flight": 3}
    alone = check.checked(load(one), **run).cache_needed
    mixed = check_mixture.checked([load(one), load(two)], [2.0, 1.0], **run).cache_needed
    for rank in range(world_size):
        here = {"rank": rank, "world_size": world_size, "ranks_per_node": -(-world_size // nodes)}
        Loader(one, global_batch=8, cache_bytes=alone, cache_dir=cache_dir, **here)
        Loader({one: 2.0, two: 1.0}, global_batch=8, cache_bytes=mixed, cache_dir=cache_dir, **here)


@pytest.mark.parametrize("making", [{"num_ahead": 0}, {}, {"num_ahead": 9}, {"num_workers": 1}, {"num_workers": 3}])
def test_check_counts_the_batches_in_flight_as_the_loader_does(
    on_s3: Callable[..., str], cache_dir: Path, making: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = on_s3((1,) * 60)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in making.items()]
    assert main(["check", "--manifest", manifest, "--global-batch", "4", "--world-size", "2", *options]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  cache")]
    needed = int(line.split()[1].replace(",", ""))
    here = {"global_batch": 4, "world_size": 2, "cache_dir": cache_dir, **making}
    Loader(manifest, cache_bytes=needed, **here)
    with pytest.raises(UserError, match=f"give cache_bytes={needed} or more"):
        Loader(manifest, cache_bytes=needed - 1, **here)
