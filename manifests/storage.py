"""Objects by URL: a local path or `s3://bucket/key`. List, stat, read, write whole or not at all, delete.

    storage.py  names and dispatch      local.py  the local disk      s3.py  S3 and compatible stores (AWS_ENDPOINT_URL)

A key is the text after the bucket as it stands: `%20` is three characters and `+` is a plus. Raised everywhere:
FileNotFoundError for a missing object, UserError for what the user can mend (no credentials, no bucket, no such
server; AccessError for credentials that were refused), StorageError for what failed in spite of retries. Temporary
files of killed writers are never listed.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from manifests import local, s3
from manifests.errors import UserError
from manifests.objects import AccessError, ObjectInfo, StorageError

__all__ = [
    "AccessError",
    "ObjectInfo",
    "StorageError",
    "absolute",
    "atomic_writer",
    "basename",
    "delete",
    "exists",
    "is_absolute",
    "join",
    "list_objects",
    "local_path",
    "open_ranged",
    "open_stream",
    "parent",
    "read_bytes",
    "reconnect",
    "stat",
    "write_bytes",
]


class _Backend(Protocol):
    """What local.py and s3.py each are."""

    def list_objects(self, url: str) -> list[ObjectInfo]: ...
    def stat(self, url: str) -> ObjectInfo: ...
    def read_bytes(self, url: str, start: int, length: int | None) -> bytes: ...
    def open_stream(self, url: str, start: int = 0) -> AbstractContextManager[BinaryIO]: ...
    def open_ranged(self, url: str) -> AbstractContextManager[BinaryIO]: ...
    def atomic_writer(self, url: str) -> AbstractContextManager[BinaryIO]: ...
    def delete(self, url: str) -> None: ...


def _backend(url: str) -> _Backend:
    scheme, separator, _ = url.partition("://")
    if not separator or "/" in scheme:
        return local
    if scheme != "s3":
        raise UserError(f"{scheme}:// in {url} is not supported: give a local path or s3://bucket/key")
    return s3


def is_absolute(url: str) -> bool:
    """Whether `url` stands by itself: an S3 URL, or a local path from the file system's root."""
    return url.startswith(("s3://", "/"))


def absolute(url: str) -> str:
    """A local path from the file system's root, `..` resolved, links kept; an S3 URL without a trailing slash."""
    return url.rstrip("/") if _backend(url) is s3 else str(Path(os.path.abspath(url)))  # noqa: PTH100 - Path.absolute keeps '..'


def join(root: str, *parts: str) -> str:
    """`root` and `parts` with one slash between each."""
    return "/".join([root.rstrip("/"), *parts]) if root else "/".join(parts)


def parent(url: str) -> str:
    """The folder or prefix that holds `url`; a bucket and the root are their own parents."""
    if _backend(url) is local:
        return str(Path(url).parent)
    head, _, _ = url.rstrip("/").rpartition("/")
    return url.rstrip("/") if head in ("s3:/", "s3:") else head


def basename(url: str) -> str:
    """The part after the last slash."""
    return url.rstrip("/").rpartition("/")[2]


def local_path(url: str) -> Path | None:
    """The path of a local object, None for one on S3: for readers that can map a file instead of fetching it."""
    return Path(url) if _backend(url) is local else None


def list_objects(url: str) -> list[ObjectInfo]:
    """Every object below the folder or prefix `url`, at any depth, sorted by URL; `url` itself where it is an object.

    An empty folder gives []. Raises FileNotFoundError for a missing one; on S3, where folders do not exist, that is
    a prefix without any object.
    """
    return _backend(url).list_objects(url)


def stat(url: str) -> ObjectInfo:
    """Size and identity of one object; FileNotFoundError where there is none."""
    return _backend(url).stat(url)


def exists(url: str) -> bool:
    """Whether an object (not a folder) is there."""
    try:
        stat(url)
    except FileNotFoundError:
        return False
    return True


def read_bytes(url: str, start: int = 0, length: int | None = None) -> bytes:
    """`length` bytes from `start`, or all from `start` on; StorageError where the object ends before that."""
    return _backend(url).read_bytes(url, start, length)


def open_stream(url: str, start: int = 0) -> AbstractContextManager[BinaryIO]:
    """A buffered reader, byte `start` to the last. Over S3 a broken connection is taken up at the byte reached."""
    return _backend(url).open_stream(url, start)


def open_ranged(url: str) -> AbstractContextManager[BinaryIO]:
    """A seekable reader for formats read from their end (Parquet): each read is one range request on S3."""
    return _backend(url).open_ranged(url)


def atomic_writer(url: str) -> AbstractContextManager[BinaryIO]:
    """A writer whose object appears, whole, at a clean exit of the `with`, and on any error not at all."""
    return _backend(url).atomic_writer(url)


def write_bytes(url: str, data: bytes) -> None:
    """One object, whole or not at all."""
    with atomic_writer(url) as stream:
        stream.write(data)


def delete(url: str) -> None:
    """Removes one object; a missing one is no error, so a repeated clean-up is none either."""
    _backend(url).delete(url)


def reconnect() -> None:
    """From the next request on, with credentials read anew: after an AccessError, when they may have been rotated."""
    s3.reconnect()
