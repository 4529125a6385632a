"""Shard files -> token rows: maps files into memory and copies the asked examples out of them."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from loader.plans import MicroBatchPlan
from loader.shards import LocalShard
from manifests.errors import UserError
from manifests.shard import ExampleFormat, view_examples


class ShardError(UserError):
    """A shard that is not what the manifest says; the message names it."""


class RowReader:
    """Copies rows out of shard files, which it keeps mapped for as long as the windows use them.

    A mapping costs 30 microseconds to make, and its pages count as memory of the process while it lasts: so it is kept
    through the window that uses it and the next, and given up after.
    """

    def __init__(self, example: ExampleFormat) -> None:
        self._example = example
        self._window = -1
        self._views: dict[str, np.ndarray] = {}
        self._last_used: dict[str, int] = {}

    def read(self, plan: MicroBatchPlan) -> np.ndarray:
        """The plan's rows without the filler: (len(plan.file_of_row), seq_len), in the shards' dtype."""
        if plan.window != self._window:
            self._forget_before(plan.window - 1)
            self._window = plan.window
        views = [self._view(file) for file in plan.files]
        rows = np.empty((len(plan.file_of_row), self._example.seq_len), dtype=self._example.numpy_dtype)
        for row, (file, example) in enumerate(zip(plan.file_of_row, plan.example_of_row, strict=True)):
            rows[row] = views[file][example]
        return rows

    def _view(self, file: LocalShard) -> np.ndarray:
        self._last_used[file.path] = self._window
        view = self._views.get(file.path)
        if view is None:
            view = self._views[file.path] = map_shard(file, self._example)
        return view

    def _forget_before(self, window: int) -> None:
        for path in [path for path, used in self._last_used.items() if used < window]:
            del self._views[path], self._last_used[path]


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
