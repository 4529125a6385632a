"""Shards on local disk: whole, verified, shared by the processes of a machine, and deleted by whoever leaves last.

    download -> <sha256>.part (locked, hashed) -> rename -> <sha256>.tar (a shared lock for every user) -> unlink

Files are named by their content, so equal names hold equal bytes: two ranks or two jobs on one machine share a shard,
and shards of one basename from two data sets never meet. All claims are flock locks, which the kernel drops when their
process dies: after `kill -9` nothing is stale, and the next start sweeps away what nobody holds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from manifests.errors import UserError

# How often a process looks whether another one has finished downloading the shard both want.
_POLL_S = 0.05


class CacheError(UserError):
    """A cache that cannot work as asked for: too small, or a place that cannot be written."""


class ChecksumError(UserError):
    """Downloaded bytes that are not the manifest's. found: what came, told apart: its sha256 and how many bytes."""

    def __init__(self, message: str, found: tuple[str, int]) -> None:
        super().__init__(message)
        self.found = found


class FullDiskError(CacheError):
    """The disk has no room for a shard, though the limit does."""


@dataclass(frozen=True, kw_only=True)
class CachedShard:
    """A shard on local disk that this process holds: nobody deletes it until `ShardCache.release`."""

    path: Path
    num_bytes: int
    lock: int  # an open file descriptor with a shared flock


class ShardCache:
    """The directory of shards. Methods may be called by several threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._make_directory()
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise CacheError(f"cache_dir {directory} cannot be written by this user; give another cache_dir")

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CacheError(
                f"cache_dir {self._directory} cannot be made ({error.strerror}); give another cache_dir"
            ) from error

    def sweep(self, keep: Collection[str]) -> None:
        """Deletes what no living process holds, save finished shards whose sha256 is in `keep`."""
        for path in sorted(self._directory.glob("*.part")) + sorted(self._directory.glob("*.tar")):
            if path.suffix == ".part" or path.stem not in keep:
                _delete_unless_held(path)

    def obtain(
        self,
        sha256: str,
        num_bytes: int,
        download: Callable[[], Iterable[bytes]],
        wait: Callable[[float], bool],
    ) -> CachedShard | None:
        """The shard of this sha256, downloaded unless the cache or another process has it. Release it after use.

        download: its bytes in pieces. wait: sleeps that many seconds, and returns True to give up, which returns None.
        Raises ChecksumError where the bytes downloaded are not the ones named, FullDiskError before anything is
        downloaded where the disk has no room; nothing is then left under the name.
        """
        final = self._directory / f"{sha256}.tar"
        part = final.with_suffix(".part")
        while True:
            held = _hold(final, num_bytes)
            if held is not None:
                return held
            self._make_directory()  # somebody may have cleaned it away since the start
            with _exclusive(part) as stream:
                if stream is not None and not final.exists():
                    _fill(stream, self._directory, sha256, num_bytes, download)
                    part.rename(final)
                    # A duplicate shares the lock, which turns from exclusive to shared and outlives the stream.
                    held = _hold_open(os.dup(stream.fileno()), final, num_bytes)
                    if held is not None:
                        return held
            if stream is None and wait(_POLL_S):
                return None

    def release(self, shard: CachedShard) -> None:
        """Gives a shard up; the file goes with its last holder."""
        # Unlocked by name: a forked child may have inherited the descriptor, and closing ours would not free the lock.
        fcntl.flock(shard.lock, fcntl.LOCK_UN)
        os.close(shard.lock)
        _delete_unless_held(shard.path)


def _hold(path: Path, num_bytes: int) -> CachedShard | None:
    """A claim on a finished shard; None where there is none, or it has another size and was deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    held = _hold_open(descriptor, path, num_bytes)
    if held is None:
        _delete_unless_held(path)
    return held


def _hold_open(descriptor: int, path: Path, num_bytes: int) -> CachedShard | None:
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # Between opening and locking, its last holder may have deleted it: then the lock is on a file without a name.
    if _is_at(descriptor, path) and os.fstat(descriptor).st_size == num_bytes:
        return CachedShard(path=path, num_bytes=num_bytes, lock=descriptor)
    os.close(descriptor)
    return None


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[BinaryIO | None]:
    """The file at `path`, made if need be, locked for this process alone; None where another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if not _is_at(descriptor, path):  # finished and renamed by its maker between our two calls
            yield None
            return
        try:
            yield stream
        finally:
            if _is_at(descriptor, path):
                path.unlink()


def _fill(
    stream: BinaryIO, directory: Path, sha256: str, num_bytes: int, download: Callable[[], Iterable[bytes]]
) -> None:
    """Writes what `download` gives; raises ChecksumError where they are not `num_bytes` bytes with this sha256."""
    stream.truncate(0)
    try:
        # All of the room at once: a disk too full shows before the download, not after most of it.
        os.posix_fallocate(stream.fileno(), 0, num_bytes)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FullDiskError(
            f"cache_dir {directory} is on a disk without room for a shard of {num_bytes} bytes; "
            "free some, or give another cache_dir"
        ) from error
    hasher = hashlib.sha256()
    written = 0
    for piece in download():
        written += len(piece)
        if written > num_bytes:
            break
        hasher.update(piece)
        stream.write(piece)
    stream.flush()
    if written != num_bytes or hasher.hexdigest() != sha256:
        size = f"{written}" if written <= num_bytes else f"more than {num_bytes}"
        raise ChecksumError(
            f"{size} bytes with sha256 {hasher.hexdigest()} came, the manifest says {num_bytes} bytes with {sha256}",
            (hasher.hexdigest(), written),
        )
    # Without this, a machine that goes down may come back with the name and the size, and zeros: a file that is found
    # under its name is not hashed again.
    os.fsync(stream.fileno())


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _delete_unless_held(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, path):
            path.unlink()
    except BlockingIOError:
        pass  # someone holds it, and deletes it when done
    finally:
        os.close(descriptor)
