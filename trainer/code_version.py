"""Which code is running: written beside every result."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path


def code_version() -> dict[str, str | None]:
    """The installed version, and the commit where the code runs from a checkout with git at hand (else None)."""
    try:
        version: str | None = metadata.version("shardmill")
    except metadata.PackageNotFoundError:
        version = None
    return {"version": version, "git_commit": _git_commit(Path(__file__).resolve().parent)}


def _git_commit(folder: Path) -> str | None:
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
