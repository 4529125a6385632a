"""Shard files -> token rows: maps files into memory and says where in it the asked examples lie."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import numpy as np

from loader.columns import NO_ROW, RowPlaces
from loader.plans import ReceivedRows, RowsOf, Stretch
from loader.shards import LocalShard
from manifests.errors import UserError
from manifests.shard import ExampleFormat, view_examples


class ShardError(UserError):
    """A shard that is not what the manifest says; the message names it."""


class RowReader:
    """Finds rows in shard files, which it keeps mapped for as long as the windows use them.

    A mapping costs half a millisecond to make and to touch, and its pages count as memory of the process while it
    lasts. So a local file is kept through the window that uses it and the next, and a cached one, whose disk space is
    wanted when its window is over, until then.
    """

    def __init__(self, example: ExampleFormat) -> None:
        self._example = example
        self._window = -1
        self._mapped: dict[str, _Mapped] = {}
        self._not_read_ahead: list[mmap.mmap] = []
        self._stretch: Stretch | None = None
        self._places: RowPlaces | None = None

    def places(self, stretch: Stretch) -> RowPlaces:
        """Where in memory the stretch's rows are. Good until the next call: this reader keeps it alive so long."""
        if self._not_read_ahead:
            self._read_ahead()
        # The plans of a stretch share it: another batch of it costs nothing.
        if stretch is not self._stretch or self._places is None:
            if stretch.window != self._window:
                self._enter(stretch.window, stretch.files)
            self._places = self._placed(stretch)
            self._stretch = stretch
        return self._places

    def forget(self) -> None:
        """Gives all mappings up."""
        self._mapped.clear()
        self._not_read_ahead.clear()
        self._stretch = self._places = None

    def _placed(self, stretch: Stretch) -> RowPlaces:
        if not any(isinstance(file, ReceivedRows) for file in stretch.files):
            bases = [self._base(file) if isinstance(file, LocalShard) else NO_ROW for file in stretch.files]
            return RowPlaces(
                np.array(bases, dtype=np.int64), stretch.file_of_row, stretch.example_of_row, self._example.stride
            )
        # Rows that came by themselves lie one by one: each is a file of its own.
        addresses = [
            self._address(stretch.files[file], example)
            for file, example in zip(stretch.file_of_row.tolist(), stretch.example_of_row.tolist(), strict=True)
        ]
        each = np.arange(len(addresses), dtype=np.int64)
        return RowPlaces(np.array(addresses, dtype=np.int64), each, np.zeros_like(each), self._example.stride)

    def _address(self, file: RowsOf, example: int) -> int:
        if file is None:
            return NO_ROW
        if isinstance(file, LocalShard):
            return self._base(file) + example * self._example.stride
        return int(file.rows.ctypes.data) + file.examples.index(example) * file.rows.strides[0]

    def _base(self, file: LocalShard) -> int:
        mapped = self._mapped.get(file.path)
        if mapped is None:
            opened = _opened(file)
            mapped = self._mapped[file.path] = _Mapped(view_examples(opened, self._example), file.is_cached)
            self._not_read_ahead.append(opened)
        mapped.last_used = self._window
        return mapped.address

    def _read_ahead(self) -> None:
        """Rows are wanted in shuffled order, but what is not in memory yet should come in one sequential read.

        With the batch after the one that mapped a file: asking costs 0.1 ms for 17 MB, and a first batch should not
        wait for that.
        """
        for opened in self._not_read_ahead:
            opened.madvise(mmap.MADV_WILLNEED)
        self._not_read_ahead.clear()

    def _enter(self, window: int, files: tuple[RowsOf, ...]) -> None:
        wanted = {file.path for file in files if isinstance(file, LocalShard)}
        for path, mapped in list(self._mapped.items()):
            is_over = mapped.is_cached or not window - 1 <= mapped.last_used <= window
            if is_over and path not in wanted:
                del self._mapped[path]
        self._window = window


class _Mapped:
    """A mapped file. last_used: the latest window that asked for it."""

    def __init__(self, view: np.ndarray, is_cached: bool) -> None:
        self.view, self.is_cached = view, is_cached
        self.address = int(view.ctypes.data)
        self.last_used = -1


def map_shard(file: LocalShard, example: ExampleFormat) -> np.ndarray:
    """The shard's tokens, (num_examples, seq_len), read-only, mapped in place.

    Raises ShardError where the file is missing or has another size than the manifest says.
    """
    return view_examples(_opened(file), example)


def _opened(file: LocalShard) -> mmap.mmap:
    try:
        with Path(file.path).open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ShardError(
            f"shard {file.name} is missing at {file.path}; restore it or build the version again"
        ) from None
    except ValueError:  # mmap's word for an empty file
        raise ShardError(f"shard {file.name} at {file.path} is empty; restore it or build the version again") from None
    if len(mapped) != file.num_bytes:
        raise ShardError(
            f"shard {file.name} at {file.path} has {len(mapped)} bytes, the manifest says {file.num_bytes}; "
            "restore it or build the version again"
        )
    return mapped


def is_whole(file: LocalShard) -> bool:
    """Whether the file is there and has the size the manifest says."""
    try:
        return Path(file.path).stat().st_size == file.num_bytes
    except OSError:
        return False


def check_sha256(file: LocalShard, sha256: str) -> None:
    """Raises ShardError where the file's bytes are not the manifest's. Reads all of it: 1 to 2 GB/s."""
    try:
        with Path(file.path).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ShardError(f"shard {file.name} cannot be read at {file.path} ({error.strerror}); restore it") from error
    if found != sha256:
        raise ShardError(
            f"shard {file.name} at {file.path} has sha256 {found}, the manifest says {sha256}; "
            "restore it or build the version again"
        )
