"""A second copy of each checkpoint in object storage (or another folder), and the way back.

<remote>/step-40/...            files first, each read back and compared with its sha256
<remote>/step-40/files.json     then the list: a copy without one is not whole
<remote>/latest.json            last: {"step": 40}; it never names a checkpoint that is not whole
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import BinaryIO

from manifests import storage
from trainer import checkpoint_files as files
from trainer.checkpoint_files import FileEntry

POINTER_NAME = "latest.json"
_STEP = re.compile(r"step-(\d+)/(.+)")
_COPY_BLOCK_BYTES = 8 * 2**20
# One stream to an object store moves 0.1-0.2 GB/s. ThreadPool's threads are daemons, as those of `Background` are.
_NUM_STREAMS = 8


def pointer(remote: str) -> int | None:
    """The step that latest.json names; None where nothing has been copied yet."""
    url = storage.join(remote, POINTER_NAME)
    if not storage.exists(url):
        return None
    try:
        return int(json.loads(storage.read_bytes(url))["step"])
    except (ValueError, KeyError, TypeError):  # damaged: it names nothing, and the next copy writes it anew
        return None


def steps_in(remote: str) -> list[int]:
    """Steps whose copy is whole, oldest first."""
    return sorted(step for step, objects in _objects_by_step(remote).items() if files.LIST_NAME in objects)


def replicate(folder: Path, step: int, remote: str, keep: int) -> None:
    """Copy a valid local checkpoint to `remote`, verify, move the pointer to it, drop older copies beyond `keep`.

    Raises OSError where a copy reads back otherwise than the checkpoint's list says; the pointer then still names the
    previous one. Cost: each byte goes out once and comes back once.
    """
    target = storage.join(remote, folder.name)
    if pointer(remote) == step:  # a damaged copy, about to be made again
        storage.delete(storage.join(remote, POINTER_NAME))
    _remove(remote, step)
    _on_each(files.read_list(folder), lambda entry: _copy_out(folder, entry, target))
    storage.write_bytes(storage.join(target, files.LIST_NAME), (folder / files.LIST_NAME).read_bytes())
    storage.write_bytes(storage.join(remote, POINTER_NAME), json.dumps({"step": step}).encode() + b"\n")
    _prune(remote, keep, newest=step)


def fetch(remote: str, step: int, root: Path) -> str | None:
    """Bring <remote>/step-N under `root` as a checkpoint. Where its bytes do not verify: why, and nothing is left."""
    unfinished = files.unfinished_folder_of(root, step)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    source = storage.join(remote, f"step-{step}")
    try:
        (unfinished / files.LIST_NAME).write_bytes(storage.read_bytes(storage.join(source, files.LIST_NAME)))
        entries = files.read_list(unfinished)
        _on_each(entries, lambda entry: _copy_in(source, entry, unfinished))
        files.write_list(unfinished, entries)
    except (OSError, ValueError) as error:
        shutil.rmtree(unfinished)
        return str(error)
    files.publish(root, step)
    return None


def fault(remote: str, step: int, *, thorough: bool) -> str | None:
    """Why the copy of `step` is not whole, in one clause; None when it is. thorough: every byte is read and hashed."""
    folder = storage.join(remote, f"step-{step}")
    objects = _objects_by_step(remote).get(step, {})
    try:
        entries = files.parse_list(storage.read_bytes(storage.join(folder, files.LIST_NAME)), folder)
    except (OSError, ValueError) as error:
        return f"its list of files cannot be read ({error})"
    for entry in entries:
        if entry.path not in objects:
            return f"{entry.path} is missing"
        if objects[entry.path] != entry.num_bytes:
            return f"{entry.path} has {objects[entry.path]} bytes and its list says {entry.num_bytes}"
    if thorough:
        try:
            _on_each(entries, lambda entry: _check(storage.join(folder, entry.path), entry))
        except OSError as error:
            return str(error)
    return None


def _on_each(entries: Sequence[FileEntry], work: Callable[[FileEntry], None]) -> None:
    with ThreadPool(min(_NUM_STREAMS, max(1, len(entries)))) as pool:
        pool.map(work, entries, chunksize=1)


def _copy_out(folder: Path, entry: FileEntry, target: str) -> None:
    url = storage.join(target, entry.path)
    with (folder / entry.path).open("rb") as source, storage.atomic_writer(url) as sink:
        shutil.copyfileobj(source, sink, _COPY_BLOCK_BYTES)
    _check(url, entry)


def _copy_in(source: str, entry: FileEntry, folder: Path) -> None:
    target = folder / entry.path
    target.parent.mkdir(parents=True, exist_ok=True)
    with storage.open_stream(storage.join(source, entry.path)) as stream, target.open("wb") as sink:
        shutil.copyfileobj(stream, sink, _COPY_BLOCK_BYTES)
        sink.flush()
        os.fsync(sink.fileno())
    with target.open("rb") as stream:
        _compare(stream, entry, entry.path)


def _check(url: str, entry: FileEntry) -> None:
    with storage.open_stream(url) as stream:
        _compare(stream, entry, url)


def _compare(stream: BinaryIO, entry: FileEntry, name: str) -> None:
    digest = hashlib.sha256()
    while block := stream.read(_COPY_BLOCK_BYTES):
        digest.update(block)
    if digest.hexdigest() != entry.sha256:
        raise OSError(f"{name} has other content than its list says")


def _objects_by_step(remote: str) -> dict[int, dict[str, int]]:
    """step -> path inside its folder -> bytes, of everything that lies at `remote`, whole or not."""
    try:
        found = storage.list_objects(remote)
    except FileNotFoundError:
        return {}
    by_step: dict[int, dict[str, int]] = {}
    for item in found:
        match = _STEP.fullmatch(item.url.removeprefix(remote).lstrip("/"))
        if match is not None:
            by_step.setdefault(int(match[1]), {})[match[2]] = item.num_bytes
    return by_step


def _prune(remote: str, keep: int, *, newest: int) -> None:
    """Remove what is older than the `keep` newest whole copies up to `newest`, the one just made.

    One that is not whole does not count as kept, nor one of a later step, which the run did not go on from.
    """
    kept = [step for step in steps_in(remote) if step <= newest][-keep:]
    for step in _objects_by_step(remote):
        if step < kept[0]:
            _remove(remote, step)


def _remove(remote: str, step: int) -> None:
    """Remove a copy, whole or not. The list goes first, so half a removal leaves no checkpoint."""
    folder = storage.join(remote, f"step-{step}")
    storage.delete(storage.join(folder, files.LIST_NAME))
    local = storage.local_path(folder)
    if local is not None:
        # With what a killed writer left in it, which is never listed.
        shutil.rmtree(local, ignore_errors=True)
        return
    for path in _objects_by_step(remote).get(step, {}):
        storage.delete(storage.join(folder, path))
