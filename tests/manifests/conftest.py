"""Fixtures for the tests of manifests."""

from pathlib import Path

import pytest

__all__ = ["any_root"]


@pytest.fixture(params=["local", "s3"])
def any_root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A root on each kind of storage in turn."""
    if request.param == "local":
        return str(tmp_path / "root")
    return request.getfixturevalue("s3_root") + "/corpus"
