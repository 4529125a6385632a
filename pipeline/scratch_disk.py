"""Room on the local disk for what a task fetches or sorts there: folders below TMPDIR that end with their task.

A folder is claimed by a lock that the kernel drops with its process. So what a killed one leaves, gigabytes at a time,
is known as nobody's, and the next task on the machine removes it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from manifests.errors import UserError

PREFIX = "shardmill-scratch-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder that is gone afterwards. Raises UserError where the disk has no room for it."""
    root = Path(tempfile.gettempdir())
    _remove_abandoned(root)
    folder, descriptor = _made(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(descriptor)


@contextlib.contextmanager
def writing_to_scratch() -> Iterator[None]:
    """Around what is written there. Raises UserError where the disk is full: which, where, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        root = tempfile.gettempdir()
        raise UserError(
            f"the local disk of {socket.gethostname()} is full: {root} has"
            f" {shutil.disk_usage(root).free / 1e6:,.0f} MB free, and each task of a large corpus keeps up to 8 GB"
            " there: free some, set TMPDIR to a folder with more room, or use fewer workers; then the same command"
            " goes on from here"
        ) from error


def _made(root: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that claims it."""
    while True:
        with writing_to_scratch():
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        descriptor = _claimed(folder)
        if descriptor is not None:  # else another task took it for abandoned, before it was claimed
            return folder, descriptor


def _claimed(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None where somebody else has it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        with contextlib.suppress(PermissionError):  # another user's
            descriptor = _claimed(folder)
            if descriptor is not None:
                shutil.rmtree(folder)
                os.close(descriptor)
