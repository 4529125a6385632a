"""Fixtures for the loader's tests: data sets on local disk and on S3."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loader.loader_datasets import numbered_dataset
from tests.s3_server import s3_endpoint, s3_root, unreliable_s3

__all__ = ["s3_endpoint", "s3_root", "unreliable_s3"]

# Field reports on tiny and uneven sets ask for shards of unequal size, some smaller than a window.
UNEQUAL_SIZES = (7, 3, 12, 5, 9, 1, 8, 11, 4, 10, 6, 2)


@pytest.fixture(scope="session")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The manifest of a local data set of 12 shards with 78 examples."""
    return numbered_dataset(tmp_path_factory.mktemp("unequal"), UNEQUAL_SIZES)


@pytest.fixture
def on_s3(s3_root: str) -> Callable[..., str]:
    """Writes a numbered data set below a bucket; returns its manifest's URL."""

    def write(sizes: tuple[int, ...] = UNEQUAL_SIZES, prefix: str = "data", **options: object) -> str:
        return numbered_dataset(f"{s3_root}/{prefix}", sizes, **options)

    return write


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"
