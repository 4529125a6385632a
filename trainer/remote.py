"""A second copy of each checkpoint in object storage (or another folder), and the way back.

<remote>/step-40/...      files first, sizes checked
<remote>/latest.json      last: {"step": 40}; it never names a checkpoint that is not whole
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from manifests import storage
from trainer import checkpoint_files as files

POINTER_NAME = "latest.json"
_COPY_BLOCK_BYTES = 8 * 2**20


def newest(remote: str) -> int | None:
    """The step the pointer names; None where nothing has been copied yet."""
    pointer = storage.join(remote, POINTER_NAME)
    if not storage.exists(pointer):
        return None
    return int(json.loads(storage.read_bytes(pointer))["step"])


def replicate(folder: Path, step: int, remote: str, keep: int) -> None:
    """Copy a valid local checkpoint to `remote`, move the pointer to it, then drop older copies beyond `keep`.

    Raises OSError where a copy has another size than the original; the pointer then still names the previous one.
    """
    for path in [*(entry.path for entry in files.read_list(folder)), files.LIST_NAME]:
        url = storage.join(remote, folder.name, path)
        with (folder / path).open("rb") as source, storage.atomic_writer(url) as sink:
            shutil.copyfileobj(source, sink, _COPY_BLOCK_BYTES)
        num_bytes, expected = storage.stat(url).num_bytes, (folder / path).stat().st_size
        if num_bytes != expected:
            raise OSError(f"{url} has {num_bytes} bytes after copying and the original has {expected}")
    storage.write_bytes(storage.join(remote, POINTER_NAME), json.dumps({"step": step}).encode() + b"\n")
    _prune(remote, keep)


def fetch(remote: str, step: int, root: Path, say: Callable[[str], None]) -> bool:
    """Bring <remote>/step-N under `root` as a checkpoint. False, and a word why, where its bytes do not verify."""
    unfinished = files.unfinished_folder_of(root, step)
    unfinished.mkdir(parents=True)
    _download(storage.join(remote, f"step-{step}"), files.LIST_NAME, unfinished)
    for entry in files.read_list(unfinished):
        _download(storage.join(remote, f"step-{step}"), entry.path, unfinished)
    reason = files.fault(unfinished, thorough=True)
    if reason is not None:
        say(f"the copy of step-{step} at {remote} is not valid: {reason}")
        shutil.rmtree(unfinished)
        return False
    files.publish(root, step)
    return True


def _download(url: str, path: str, folder: Path) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with storage.open_stream(storage.join(url, path)) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink, _COPY_BLOCK_BYTES)


def _prune(remote: str, keep: int) -> None:
    """Remove copies older than the `keep` newest; the list goes first, so half a removal leaves no checkpoint."""
    by_step: dict[int, list[str]] = {}
    for found in storage.list_objects(remote):
        for part in found.url.removeprefix(remote).split("/"):
            if part.startswith("step-") and part.removeprefix("step-").isdigit():
                by_step.setdefault(int(part.removeprefix("step-")), []).append(found.url)
                break
    for step in sorted(by_step)[:-keep]:
        for url in sorted(by_step[step], key=lambda url: (storage.basename(url) != files.LIST_NAME, url)):
            storage.delete(url)
