"""Token rows -> the columns of a batch, in one pass over the tokens.

    tokens          7  9 EOS  4  5  6      EOS ends document 0; the row's end cuts document 1
    input_ids       7  9 EOS  4  5  6
    labels          9 EOS -100 5  6 -100   the next token of the same document, already shifted
    position_ids    0  1   2  0  1  2      from 0 at each document's first token in the row
    document_ids    0  0   0  1  1  1      from 0 in each row

So the loss is cross entropy of logits[t] against labels[t], with no further shift. An EOS is the last target of its
document: what follows it belongs to another. A row that begins inside a document counts its positions from 0 as well:
the row is all the model sees of it. Padding (best-fit packing) and filler rows hold the EOS id as input, so that every
id has an embedding, with label -100, position 0 and document -1.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import lru_cache

import numpy as np

COLUMNS = ("input_ids", "labels", "position_ids", "document_ids")
IGNORED_LABEL = -100
NO_DOCUMENT = -1
# The address of a row that no shard holds: its columns are filler.
NO_ROW = 0


def fill_columns(
    tokens: np.ndarray, num_rows: int, columns: dict[str, np.ndarray], *, eos_id: int, padding_id: int
) -> None:
    """Fills each array of `columns`, all (num_rows, seq_len), from `tokens`, (k, seq_len); rows k .. are filler.

    columns: any of COLUMNS, all of one signed dtype. padding_id: the id that marks padding.
    """
    if tokens.shape[1] > 1 and tokens.strides[1] != tokens.itemsize:
        tokens = np.ascontiguousarray(tokens)
    addresses = np.full(num_rows, NO_ROW, dtype=np.int64)
    addresses[: len(tokens)] = tokens.ctypes.data + np.arange(len(tokens)) * tokens.strides[0]
    load_kernel(tokens.dtype, next(iter(columns.values())).dtype)
    fill_from_addresses(addresses, tokens.dtype, columns, eos_id=eos_id, padding_id=padding_id)


def fill_from_addresses(
    addresses: np.ndarray, dtype: np.dtype, columns: dict[str, np.ndarray], *, eos_id: int, padding_id: int
) -> None:
    """Fills row i of each column from the seq_len tokens of `dtype` at memory address `addresses[i]`.

    addresses: int64, NO_ROW for filler; the caller keeps what they point at alive. Reading by address saves a copy of
    every row on the way from the page cache into the batch.
    """
    first = next(iter(columns.values()))
    assert len(first) == len(addresses)
    kernel = _kernel.loaded.get((dtype.itemsize, first.itemsize))
    if kernel is None:
        fill_plainly(addresses, dtype, columns, eos_id=eos_id, padding_id=padding_id)
        _kernel.load_beside(dtype, first.dtype)
        return
    absent = _absent(first.shape[1], first.dtype)
    kernel(
        addresses,
        _EMPTY[dtype.itemsize],
        columns.get("input_ids", absent),
        columns.get("labels", absent),
        columns.get("position_ids", absent),
        columns.get("document_ids", absent),
        eos_id,
        padding_id,
    )


def fill_plainly(
    addresses: np.ndarray, dtype: np.dtype, columns: dict[str, np.ndarray], *, eos_id: int, padding_id: int
) -> None:
    """What the kernel does, in numpy, at a tenth of its speed: the first batches should not wait for a compiler."""
    seq_len = next(iter(columns.values())).shape[1]
    # Filler is a row of padding alone.
    tokens = np.full((len(addresses), seq_len), padding_id, dtype=dtype)
    for row in np.flatnonzero(addresses != NO_ROW).tolist():
        ctypes.memmove(tokens[row].ctypes.data, int(addresses[row]), tokens[row].nbytes)
    is_eos, is_padding = tokens == eos_id, tokens == padding_id
    if "input_ids" in columns:
        columns["input_ids"][...] = np.where(is_padding, eos_id, tokens)
    if "labels" in columns:
        labels = columns["labels"]
        labels[:, :-1] = tokens[:, 1:]
        labels[:, :-1][is_eos[:, :-1] | is_padding[:, :-1] | is_padding[:, 1:]] = IGNORED_LABEL
        labels[:, -1] = IGNORED_LABEL
    if "position_ids" in columns:
        place = np.arange(seq_len)
        begins = np.zeros(tokens.shape, dtype=np.int64)
        begins[:, 1:] = np.where(is_eos[:, :-1], place[1:], 0)
        columns["position_ids"][...] = np.where(is_padding, 0, place - np.maximum.accumulate(begins, axis=1))
    if "document_ids" in columns:
        document = np.cumsum(is_eos, axis=1) - is_eos
        columns["document_ids"][...] = np.where(is_padding, NO_DOCUMENT, document)


def load_kernel(dtype: np.dtype, column_dtype: np.dtype) -> None:
    """Makes the kernel ready now, so that processes forked later have it; 0.4 s of CPU time, once a process.

    The first time on a machine it is compiled: some seconds.
    """
    _kernel.load(dtype, column_dtype)


class _Kernel:
    """The compiled kernel, for the types it is loaded for."""

    def __init__(self) -> None:
        self.loaded: dict[tuple[int, int], Callable[..., None]] = {}
        self._loading = threading.Lock()
        self._begun: set[tuple[int, int]] = set()
        self._process: int | None = None

    def load(self, dtype: np.dtype, column_dtype: np.dtype) -> None:
        sizes = dtype.itemsize, column_dtype.itemsize
        with self._loading:
            if sizes not in self.loaded:
                from loader import kernel

                # Called once with nothing to do, since that is what loads its machine code.
                none = np.empty((0, 1), dtype=column_dtype)
                kernel.fill(np.empty(0, dtype=np.int64), _EMPTY[dtype.itemsize], none, none, none, none, 0, 0)
                self.loaded[sizes] = kernel.fill

    def load_beside(self, dtype: np.dtype, column_dtype: np.dtype) -> None:
        """Begins to load it in a thread. Not in a process forked while its parent did: imports never end there."""
        self._process = self._process or os.getpid()
        sizes = dtype.itemsize, column_dtype.itemsize
        if sizes not in self._begun and self._process == os.getpid():
            self._begun.add(sizes)
            threading.Thread(target=self.load, args=(dtype, column_dtype), name="load-kernel", daemon=True).start()


_kernel = _Kernel()

# Tells the kernel the tokens' type.
_EMPTY: dict[int, np.ndarray] = {2: np.empty(0, dtype=np.uint16), 4: np.empty(0, dtype=np.uint32)}


@lru_cache(maxsize=8)
def _absent(seq_len: int, dtype: np.dtype) -> np.ndarray:
    """An absent column is an empty array of the same type: one compiled kernel serves every choice of columns."""
    return np.empty((0, seq_len), dtype=dtype)
