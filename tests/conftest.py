"""Fixtures for all tests."""

import os
from pathlib import Path

import pytest

from tests.s3_server import either_way, s3_endpoint, s3_root, unreliable_s3  # noqa: F401 - fixtures, for every folder below

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """The big corpus: SHARDMILL_CORPUS, else ../shared/corpus beside the checkout; skipped, with a word, where there is
    none.
    """
    asked_for = os.environ.get("SHARDMILL_CORPUS")
    corpus = Path(asked_for) if asked_for else REPOSITORY.parent / "shared" / "corpus"
    if not corpus.is_dir():
        pytest.skip(f"no corpus at {corpus}: set SHARDMILL_CORPUS to try it on 212 MB of real text")
    return corpus
