"""Fixtures of the trainer's tests."""

from collections.abc import Iterator

import pytest

from tests.trainer.forked_ranks import ForkedRanks


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkedRanks]:
    """Ranks that start in a moment; see forked_ranks.py."""
    started = ForkedRanks()
    yield started
    started.close()
