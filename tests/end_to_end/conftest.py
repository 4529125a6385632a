"""Real builds by the real command, on a small corpus of real text."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Build = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def config_file(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write a config for the bundled sample with some keys replaced; returns its path."""

    def write(output: Path | str, **changes: Any) -> Path:
        sample = repository / "examples" / "sample"
        config = {
            "name": "sample",
            "version": "v1",
            "output": str(output),
            "sources": [
                {"name": "docs", "paths": [str(sample / "docs")], "preset": "documentation", "priority": 1},
                {"name": "mail", "paths": [str(sample / "mail")], "preset": "correspondence"},
                {"name": "tickets", "paths": [str(sample / "tickets")], "preset": "tickets", "weight": 1.5},
            ],
            "tokenizer": {"train": {"vocab_size": 1024}},
            "example": {"seq_len": 128},
            "shards": {"max_bytes": 500_000},
            "validation": {"fraction": 0.05},
            "bad_records": {"budget_fraction": 0.01},
            "ray": {"num_cpus": 2},
            **changes,
        }
        path = tmp_path_factory.mktemp("config") / "corpus.yaml"
        path.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def run_build(repository: Path) -> Build:
    """Run `python pipeline/build.py ARGUMENTS` to its end, in a process of its own."""

    def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            build_command(repository, *arguments),
            cwd=repository,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run


def build_command(repository: Path, *arguments: str | Path) -> list[str]:
    return [sys.executable, str(repository / "pipeline" / "build.py"), *map(str, arguments)]
