"""Lists of numbers end to end: copied piece by piece to other places, at memory speed.

pyarrow's `take` on a list column goes element by element, 190 MB of tokens a core-second; a build moves every token
three times (special tokens in, into a run, into a shard), so that alone would cost as much as tokenizing.
"""

from typing import Any

import numpy as np

from pipeline.kernels.compiled import kernel


def copy_pieces(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, places: np.ndarray, target: np.ndarray
) -> None:
    """values[starts[i] : starts[i] + lengths[i]] -> target from places[i] on, for each i; starts, lengths and places
    int64 (n,).
    """
    starts, lengths, places = (np.ascontiguousarray(array, np.int64) for array in (starts, lengths, places))
    _copy(values, starts, lengths, places, target)


@kernel
def _copy(values: Any, starts: Any, lengths: Any, places: Any, target: Any) -> None:
    for i in range(len(starts)):
        target[places[i] : places[i] + lengths[i]] = values[starts[i] : starts[i] + lengths[i]]


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
