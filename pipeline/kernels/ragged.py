"""Lists of numbers end to end, gathered in another order: what `take` is for lists, by block copies.

pyarrow's `take` on a list column goes element by element, 190 MB of tokens a core-second; a build reorders every token
twice, so that alone would cost as much as tokenizing. This copies at memory speed (measured: benchmarks/kernels.py).
"""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.kernels.compiled import kernel


def take_lists(lists: pa.LargeListArray, rows: np.ndarray) -> pa.LargeListArray:
    """`lists.take(rows)` for lists of numbers without nulls. `rows` int64 (k,), each a row of `lists`, in any order."""
    offsets = lists.offsets.to_numpy()
    values = lists.values.to_numpy()
    new_offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(offsets[rows + 1] - offsets[rows], out=new_offsets[1:])
    gathered = np.empty(new_offsets[-1], values.dtype)
    _gather(values, offsets, np.ascontiguousarray(rows, np.int64), gathered, new_offsets)
    return pa.LargeListArray.from_arrays(pa.array(new_offsets), pa.array(gathered))


@kernel
def _gather(values: Any, offsets: Any, rows: Any, gathered: Any, new_offsets: Any) -> None:
    for i in range(len(rows)):
        start = offsets[rows[i]]
        gathered[new_offsets[i] : new_offsets[i + 1]] = values[start : start + new_offsets[i + 1] - new_offsets[i]]


def framed_lists(
    values: np.ndarray, offsets: np.ndarray, head: np.ndarray, tail: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Every list with `head` before and `tail` after it: values of the dtype of `tail`, and their offsets."""
    new_offsets = offsets + np.arange(len(offsets), dtype=np.int64) * (len(head) + len(tail))
    framed = np.empty(new_offsets[-1], tail.dtype)
    _frame(values, np.ascontiguousarray(offsets, np.int64), head, tail, framed, new_offsets)
    return framed, new_offsets


@kernel
def _frame(values: Any, offsets: Any, head: Any, tail: Any, framed: Any, new_offsets: Any) -> None:
    for i in range(len(offsets) - 1):
        at = new_offsets[i]
        framed[at : at + len(head)] = head
        at += len(head)
        num = offsets[i + 1] - offsets[i]
        framed[at : at + num] = values[offsets[i] : offsets[i + 1]]
        framed[at + num : new_offsets[i + 1]] = tail
