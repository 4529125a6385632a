"""Arrow arrays as the plain numpy buffers that kernels walk: no copy, and one numba type whoever calls."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def text_buffers(text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 bytes and the (n + 1) int64 offsets of `text`, read-only views over its own memory.

    Document i is data[offsets[i] : offsets[i + 1]]; a sliced array keeps its slice by its offsets. Arrow promises valid
    UTF-8; the kernels rely on it and read past the end of a text that is cut inside a character.

    Raises ValueError for another type or for nulls: what a missing text means was decided when it was read.
    """
    if not isinstance(text, pa.LargeStringArray):
        raise ValueError(f"kernels walk a pyarrow LargeStringArray, not {describe(text)}: cast it to pa.large_string()")
    if text.null_count:
        raise ValueError(f"{text.null_count} of {len(text)} texts are null: quarantine or drop them before the kernels")
    _, offsets_buffer, data_buffer = text.buffers()
    if len(text) == 0:
        return readonly([], np.uint8), readonly([0], np.int64)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64, count=len(text) + 1, offset=8 * text.offset)
    # Nothing but empty texts may come without any bytes at all.
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.empty(0, dtype=np.uint8)
    return readonly(data, np.uint8), readonly(offsets, np.int64)


def replaced(text: pa.LargeStringArray, changed: np.ndarray, replacements: pa.LargeStringArray) -> pa.LargeStringArray:
    """The texts with those that `changed`, bool (n,), marks replaced in turn. Nulls stay.

    Slices joined: Arrow's replace_with_mask takes four times as long.
    """
    parts = []
    first = num_replaced = 0
    for index in np.flatnonzero(changed).tolist():
        parts += [text.slice(first, index - first), replacements.slice(num_replaced, 1)]
        first, num_replaced = index + 1, num_replaced + 1
    return pa.concat_arrays([*parts, text.slice(first)])


def readonly(array: npt.ArrayLike, dtype: npt.DTypeLike) -> np.ndarray:
    """`array` as a read-only C-ordered view of `dtype`, copied only if it must be.

    To numba a writable and a read-only array are two types and so two compilations of a kernel, a second or more each;
    arrays from Arrow and Parquet are read-only, so every input is made so.
    """
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins where a cache line does, as numpy's need not: a row of 64 bytes is one line, not two."""
    buffer = pa.allocate_buffer(array.nbytes)
    copy = np.frombuffer(buffer, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def describe(value: Any) -> str:
    """The Arrow type where there is one, else the Python type."""
    return str(value.type) if isinstance(value, pa.Array | pa.ChunkedArray) else type(value).__name__
