"""Checkpoints as folders: which are whole, which is newest, which may go. Files only; no torch, no ranks.

<root>/step-40/          whole: written as step-40.tmp, listed, synced, then renamed
<root>/step-40/files.json    written last: every other file with size and sha256; valid means that it verifies
<root>/step-60.tmp/      debris of a killed save or a killed removal; cleared at the next start
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LIST_NAME = "files.json"
STATE_NAME = "state.json"
# torch's index over the tensor files.
TENSORS_NAME = ".metadata"
_STEP = re.compile(r"step-(\d+)")
# Large enough that hashing, not the calls, is what costs; small beside any rank's memory.
_HASH_BLOCK_BYTES = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of a checkpoint: its path inside the folder, size and sha256 in hex."""

    path: str
    num_bytes: int
    sha256: str


def folder_of(root: Path, step: int) -> Path:
    return root / f"step-{step}"


def unfinished_folder_of(root: Path, step: int) -> Path:
    return root / f"step-{step}.tmp"


def rng_name(rank: int) -> str:
    return f"rng-{rank}.pt"


def hash_file(folder: Path, path: str) -> FileEntry:
    """Size and sha256 of folder/path, synced to disk on the way: what we promise must survive a power cut."""
    digest, num_bytes = hashlib.sha256(), 0
    with (folder / path).open("rb") as stream:
        os.fsync(stream.fileno())
        while block := stream.read(_HASH_BLOCK_BYTES):
            digest.update(block)
            num_bytes += len(block)
    return FileEntry(path=path, num_bytes=num_bytes, sha256=digest.hexdigest())


def files_in(folder: Path) -> list[str]:
    """Paths inside `folder`, sorted, the list itself left out."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(path for path in paths if path != LIST_NAME)


def write_list(folder: Path, entries: Sequence[FileEntry]) -> None:
    """Write files.json: from here on the folder is complete."""
    ordered = sorted(entries, key=lambda entry: entry.path)
    text = json.dumps([asdict(entry) for entry in ordered], indent=2) + "\n"
    with (folder / LIST_NAME).open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def read_list(folder: Path) -> list[FileEntry]:
    """The entries of files.json. Raises OSError or ValueError where it is missing or no list."""
    return parse_list((folder / LIST_NAME).read_bytes(), folder)


def parse_list(text: bytes, where: Path | str) -> list[FileEntry]:
    """The entries in `text`, which was read at `where`. Raises ValueError where it is no list."""
    try:
        return [FileEntry(**value) for value in json.loads(text)]
    except TypeError as error:
        raise ValueError(f"{LIST_NAME} of {where} is not a list of files: {error}") from error


def fault(folder: Path, *, thorough: bool) -> str | None:
    """Why `folder` is not a valid checkpoint, in one clause; None when it is.

    thorough re-reads and hashes every byte, as before a resume; else presence and size are compared, as before
    a removal.
    """
    try:
        entries = read_list(folder)
    except (OSError, ValueError) as error:
        return f"its list of files cannot be read ({error})"
    for entry in entries:
        reason = fault_of_file(folder, entry, thorough=thorough)
        if reason is not None:
            return reason
    return None


def fault_of_file(folder: Path, entry: FileEntry, *, thorough: bool) -> str | None:
    """The same of one file of its list."""
    path = folder / entry.path
    if not path.is_file():
        return f"{entry.path} is missing"
    num_bytes = path.stat().st_size
    if num_bytes != entry.num_bytes:
        return f"{entry.path} has {num_bytes} bytes and its list says {entry.num_bytes}"
    if thorough and hash_file(folder, entry.path).sha256 != entry.sha256:
        return f"{entry.path} has other content than its list says"
    return None


def steps_in(root: Path) -> list[int]:
    """Steps that have a folder under its final name, oldest first."""
    if not root.is_dir():
        return []
    matches = (_STEP.fullmatch(path.name) for path in root.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def publish(root: Path, step: int) -> Path:
    """Give the finished step-N.tmp its final name, replacing a damaged folder of that name. Survives a power cut."""
    folder, unfinished = folder_of(root, step), unfinished_folder_of(root, step)
    _sync_folder(unfinished)
    if folder.exists():
        remove(folder)
    unfinished.rename(folder)
    _sync_folder(root)
    return folder


def remove(folder: Path) -> None:
    """Remove a checkpoint. It loses its name first, so a kill in the middle leaves debris, never half a checkpoint."""
    debris = folder.with_name(f"{folder.name}.removed.tmp")
    if debris.exists():
        shutil.rmtree(debris)
    folder.rename(debris)
    shutil.rmtree(debris)


def clear_debris(root: Path) -> None:
    """Remove what killed saves and removals left. Only for the one process that writes here."""
    for path in root.glob("step-*.tmp"):
        shutil.rmtree(path)


def rotate(root: Path, keep: int, *, newest: int, spare: int | None = None) -> list[int]:
    """Remove what is older than the `keep` newest valid checkpoints, `spare` excepted; returns the removed steps.

    newest: the step just written. Damaged folders do not count as kept, nor do those of later steps: the run looked at
    them when it started and went on from before them. So the newest valid one always stays.
    """
    steps = (step for step in steps_in(root) if step <= newest)
    valid = [step for step in steps if fault(folder_of(root, step), thorough=False) is None]
    kept = valid[-keep:]
    removed = [step for step in steps_in(root) if kept and step < kept[0] and step != spare]
    for step in removed:
        remove(folder_of(root, step))
    return removed


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
