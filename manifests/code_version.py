"""Which code is running: written beside every result."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path


def code_version() -> dict[str, str | None]:
    """The version, and the commit where the code runs from its own checkout with git at hand (else None).

    The version is "source" in a folder that nobody installed, such as one shipped by `ray job submit`.
    """
    try:
        version = metadata.version("shardmill")
    except metadata.PackageNotFoundError:
        version = "source"
    return {"version": version, "git_commit": _git_commit(Path(__file__).resolve().parents[1])}


def _git_commit(root: Path) -> str | None:
    if not (root / ".git").exists():  # installed: the repository around it, if any, is somebody else's
        return None
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
