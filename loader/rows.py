"""Shard files -> token rows: maps files into memory and says where in it the asked examples lie."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import numpy as np

from loader.columns import NO_ROW
from loader.plans import MicroBatchPlan, ReceivedRows, RowsOf
from loader.shards import LocalShard
from manifests.errors import UserError
from manifests.shard import ExampleFormat, view_examples


class ShardError(UserError):
    """A shard that is not what the manifest says; the message names it."""


class RowReader:
    """Finds rows in shard files, which it keeps mapped for as long as the windows use them.

    A mapping costs 30 microseconds to make, and its pages count as memory of the process while it lasts: so it is kept
    through the window that uses it and the next, and given up after.
    """

    def __init__(self, example: ExampleFormat) -> None:
        self._example = example
        self._example_stride = example.stride
        self._window = -1
        self._views: dict[str, np.ndarray] = {}
        self._last_used: dict[str, int] = {}
        self._files: tuple[RowsOf, ...] | None = None
        self._received: dict[int, ReceivedRows] = {}
        self._has_masked = False
        self._bases = np.empty(0, dtype=np.int64)

    def addresses(self, plan: MicroBatchPlan) -> np.ndarray:
        """int64 (plan.num_rows,): where in memory each row's tokens begin, NO_ROW for filler and masked rows.

        Good until the next call: the plan and this reader keep what they point at alive.
        """
        if plan.files is not self._files:
            # The plans of a stretch share their files: a batch of it costs two additions.
            self._take(plan)
        found = np.zeros(plan.num_rows, dtype=np.int64)
        rows = found[: len(plan.file_of_row)]
        np.multiply(plan.example_of_row, self._example_stride, out=rows)
        rows += self._bases[plan.file_of_row]
        if self._has_masked:
            rows[self._bases[plan.file_of_row] == NO_ROW] = NO_ROW
        if self._received:
            for row, (number, example) in enumerate(zip(plan.file_of_row, plan.example_of_row, strict=True)):
                if number in self._received:
                    rows[row] = _address_in(self._received[number], int(example))
        return found

    def _take(self, plan: MicroBatchPlan) -> None:
        if plan.window != self._window:
            self._forget_before(plan.window - 1)
            self._window = plan.window
        self._received = {n: file for n, file in enumerate(plan.files) if isinstance(file, ReceivedRows)}
        self._has_masked = None in plan.files
        mapped = [self._base(file) if isinstance(file, LocalShard) else NO_ROW for file in plan.files]
        self._bases = np.array(mapped, dtype=np.int64)
        self._files = plan.files

    def _base(self, file: LocalShard) -> int:
        self._last_used[file.path] = self._window
        view = self._views.get(file.path)
        if view is None:
            view = self._views[file.path] = map_shard(file, self._example)
        return int(view.ctypes.data)

    def _forget_before(self, window: int) -> None:
        for path in [path for path, used in self._last_used.items() if used < window]:
            del self._views[path], self._last_used[path]


def _address_in(received: ReceivedRows, example: int) -> int:
    row = received.examples.index(example)
    return int(received.rows.ctypes.data) + row * received.rows.strides[0]


def map_shard(file: LocalShard, example: ExampleFormat) -> np.ndarray:
    """The shard's tokens, (num_examples, seq_len), read-only, mapped in place.

    Raises ShardError where the file is missing or has another size than the manifest says.
    """
    try:
        with Path(file.path).open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            # Rows are wanted in shuffled order; what is not in memory yet should come in one sequential read still.
            mapped.madvise(mmap.MADV_WILLNEED)
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
    return view_examples(mapped, example)


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
