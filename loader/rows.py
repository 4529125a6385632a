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
        self._window = -1
        self._views: dict[str, np.ndarray] = {}
        self._bases: dict[str, int] = {}
        self._last_used: dict[str, int] = {}

    def addresses(self, plan: MicroBatchPlan) -> np.ndarray:
        """int64 (plan.num_rows,): where in memory each row's tokens begin, NO_ROW for filler and masked rows.

        Good until the next call: the plan and this reader keep what they point at alive.
        """
        if plan.window != self._window:
            self._forget_before(plan.window - 1)
            self._window = plan.window
        stride = self._example.stride
        bases = [self._base(file) if type(file) is LocalShard else None for file in plan.files]
        found = []
        for number, example in zip(plan.file_of_row, plan.example_of_row, strict=True):
            base = bases[number]
            if base is not None:
                found.append(base + example * stride)
            else:
                found.append(_address_in(plan.files[number], example))
        found += [NO_ROW] * (plan.num_rows - len(found))
        return np.array(found, dtype=np.int64)

    def _base(self, file: LocalShard) -> int:
        self._last_used[file.path] = self._window
        base = self._bases.get(file.path)
        if base is None:
            view = self._views[file.path] = map_shard(file, self._example)
            base = self._bases[file.path] = view.ctypes.data
        return base

    def _forget_before(self, window: int) -> None:
        for path in [path for path, used in self._last_used.items() if used < window]:
            del self._views[path], self._bases[path], self._last_used[path]


def _address_in(rows_of: RowsOf, example: int) -> int:
    if not isinstance(rows_of, ReceivedRows):
        return NO_ROW
    row = rows_of.examples.index(example)
    return int(rows_of.rows.ctypes.data) + row * rows_of.rows.strides[0]


def map_shard(file: LocalShard, example: ExampleFormat) -> np.ndarray:
    """The shard's tokens, (num_examples, seq_len), read-only, mapped in place.

    Raises ShardError where the file is missing or has another size than the manifest says.
    """
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
