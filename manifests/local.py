"""Storage on the local disk: what storage.py promises, for paths."""

import errno
import itertools
import os
import stat as stat_module
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from manifests.errors import UserError
from manifests.objects import ObjectInfo, StorageError

_BUFFER_BYTES = 1 << 20

# A temporary file's name does not grow with the final one's, which may already have the 255 bytes a name can have.
_TEMPORARY_PREFIX = ".shardmill-tmp-"
_temporary_numbers = itertools.count()


def list_objects(url: str) -> list[ObjectInfo]:
    """Follows links, to files and to folders, but never into a folder it is already inside of.

    Sockets, pipes and devices are no objects. A link that leads nowhere is listed with no bytes: reading it fails,
    where leaving it out would lose a file silently.
    """
    path = url.rstrip("/") or "/"
    status = os.stat(path)  # noqa: PTH116 - raises FileNotFoundError with the path as the user wrote it
    if not stat_module.S_ISDIR(status.st_mode):
        return [_info(path, status)]
    found: list[ObjectInfo] = []
    _walk(path, ((status.st_dev, status.st_ino),), found)
    return sorted(found, key=lambda info: info.url)


def _walk(folder: str, inside: tuple[tuple[int, int], ...], found: list[ObjectInfo]) -> None:
    prefix = folder if folder.endswith("/") else folder + "/"
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_TEMPORARY_PREFIX):
                continue
            path = prefix + entry.name
            try:
                status = entry.stat()
            except FileNotFoundError:
                found.append(ObjectInfo(path, 0, "a link to nothing"))
                continue
            if stat_module.S_ISDIR(status.st_mode):
                place = (status.st_dev, status.st_ino)
                if place not in inside:
                    _walk(path, (*inside, place), found)
            elif stat_module.S_ISREG(status.st_mode):
                found.append(_info(path, status))


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}")


def stat(url: str) -> ObjectInfo:
    status = Path(url).stat()
    if not stat_module.S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, "Not a file", url)
    return _info(url, status)


def read_bytes(url: str, start: int, length: int | None) -> bytes:
    with _open(url, buffering=0) as stream:
        num_bytes = os.fstat(stream.fileno()).st_size
        end = num_bytes if length is None else start + length
        if not 0 <= start <= end <= num_bytes:
            raise StorageError(f"{url} has {num_bytes} bytes, not the {end} asked for (from {start}): the file is cut")
        stream.seek(start)
        pieces = []
        while start < end:
            piece = stream.read(end - start)  # Linux hands out 2 GiB at most a call
            if not piece:
                raise StorageError(f"{url} ended at byte {start} while it was read up to {end}: it was cut meanwhile")
            pieces.append(piece)
            start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def open_stream(url: str, start: int = 0) -> Iterator[BinaryIO]:
    with _open(url, buffering=_BUFFER_BYTES) as stream:
        if start:
            stream.seek(start)
        yield stream


open_ranged = open_stream


@contextmanager
def atomic_writer(url: str) -> Iterator[BinaryIO]:
    """Temporary file in the same folder, fsync, rename, fsync of the folder: whole after a power cut as well."""
    path = Path(url)
    _make_folder(path.parent)
    temporary, stream = _open_temporary(path.parent)
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def delete(url: str) -> None:
    Path(url).unlink(missing_ok=True)


def _open(url: str, *, buffering: int) -> BinaryIO:
    path = Path(url)
    if path.is_dir():
        raise UserError(f"{url} is a folder, not a file: name a file in it")
    return path.open("rb", buffering=buffering)


def _open_temporary(folder: Path) -> tuple[Path, BinaryIO]:
    while True:
        # Another host on a shared disk may have this pid: "x" refuses to share a file, and the next number is tried.
        temporary = folder / f"{_TEMPORARY_PREFIX}{os.getpid()}-{next(_temporary_numbers)}"
        try:
            return temporary, temporary.open("xb", buffering=_BUFFER_BYTES)
        except FileExistsError:
            continue


def _make_folder(folder: Path) -> None:
    missing = list(itertools.takewhile(lambda path: not path.exists(), [folder, *folder.parents]))
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:  # a new folder's own name is durable once its parent is
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
