"""What `check` says a node needs is enough for every node, though the ranks own unequal lanes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loader import Loader
from loader.commands import check, check_mixture
from loader.order import RunShape
from manifests import load

SHAPE = RunShape(global_batch=8, num_lanes=8, window_shards=1, seed=0)


@pytest.mark.parametrize(("world_size", "nodes"), [(3, 3), (5, 3), (6, 2), (8, 4)])
def test_every_node_can_work_with_the_bytes_check_names(
    on_s3: Callable[..., str], cache_dir: Path, world_size: int, nodes: int
) -> None:
    one, two = on_s3((10,) * 40, prefix="one"), on_s3((10,) * 40, prefix="two")
    run = {"split": "train", "shape": SHAPE, "world_size": world_size, "nodes": nodes}
    alone = check.checked(load(one), **run).cache_needed
    mixed = check_mixture.checked([load(one), load(two)], [2.0, 1.0], **run).cache_needed
    for rank in range(world_size):
        here = {"rank": rank, "world_size": world_size, "ranks_per_node": -(-world_size // nodes)}
        Loader(one, global_batch=8, cache_bytes=alone, cache_dir=cache_dir, **here)
        Loader({one: 2.0, two: 1.0}, global_batch=8, cache_bytes=mixed, cache_dir=cache_dir, **here)
