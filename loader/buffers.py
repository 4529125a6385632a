"""Memory for batches that is used again once nobody holds the batch that lay in it.

A new batch of 8 rows of 4,096 tokens is a megabyte of fresh pages, and letting the kernel clear those costs more than
filling them; memory used a moment ago is still in the processor's cache. Shared memory here has no name: it is mapped
before worker processes are forked, so nothing is left behind by a kill and /dev/shm may be as small as it likes.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

from loader.columns import ColumnMemory

# Private slots kept free for the next batch; what a consumer held beyond that goes back to the system.
_FREE_SLOTS_KEPT = 4


class Buffers:
    """Slots, each of the columns of one batch: (num_rows, seq_len) arrays of one dtype.

    num_shared: slots that forked children share; 0 makes private ones as they are needed.
    """

    def __init__(
        self, columns: Sequence[str], num_rows: int, seq_len: int, dtype: np.dtype, *, num_shared: int = 0
    ) -> None:
        self._columns = tuple(columns)
        self._shape = (len(self._columns), num_rows, seq_len)
        self._dtype = dtype
        self._is_shared = num_shared > 0
        self._slots: dict[int, ColumnMemory] = {}
        if num_shared:
            pages = mmap.mmap(-1, num_shared * self.slot_bytes)
            slots = np.frombuffer(pages, dtype=dtype).reshape(num_shared, *self._shape)
            self._slots = {slot: self._columns_in(memory) for slot, memory in enumerate(slots)}
        self._free: deque[int] = deque(self._slots)
        self._num_made = num_shared

    @property
    def slot_bytes(self) -> int:
        return int(np.prod(self._shape)) * self._dtype.itemsize

    def take(self) -> int:
        """A free slot; a new one where none is free and slots are private."""
        if not self._free and not self._is_shared:
            slot = self._num_made
            self._num_made += 1
            self._slots[slot] = self._columns_in(np.empty(self._shape, dtype=self._dtype))
            return slot
        return self._free.popleft()

    def columns(self, slot: int) -> ColumnMemory:
        """The slot's columns, to be filled."""
        return self._slots[slot]

    def lent(self, slot: int) -> dict[str, np.ndarray]:
        """The slot's columns for the consumer; the slot is free again when none of them is referred to any more.

        They are for torch.from_numpy alone: views of a tensor keep its array alive, numpy's views of an array do not.
        The last free shared slot is never lent: a consumer that keeps many batches gets copies from there on.
        """
        if self._is_shared and not self._free:
            self._free.append(slot)
            return {name: array.copy() for name, array in self._slots[slot].arrays.items()}
        arrays = {name: array.view() for name, array in self._slots[slot].arrays.items()}
        left = len(arrays)

        def died(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                references.clear()
                self._give_back(slot)

        references = [weakref.ref(array, died) for array in arrays.values()]
        return arrays

    def _give_back(self, slot: int) -> None:
        if not self._is_shared and len(self._free) >= _FREE_SLOTS_KEPT:
            del self._slots[slot]
        else:
            self._free.append(slot)

    def _columns_in(self, memory: np.ndarray) -> ColumnMemory:
        return ColumnMemory.of(dict(zip(self._columns, memory, strict=True)))
