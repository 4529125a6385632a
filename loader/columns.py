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
from dataclasses import dataclass

import numpy as np

from loader import machine_code

COLUMNS = ("input_ids", "labels", "position_ids", "document_ids")
# Made of document_ids where it is asked for, and of another shape: see cumulative_lengths.
CUMULATIVE_LENGTHS = "cumulative_lengths"
IGNORED_LABEL = -100
NO_DOCUMENT = -1
# The address of a row that no shard holds: its columns are filler.
NO_ROW = 0


class RowPlaces:
    """Where rows lie in memory: row i at bases[files[i]] + examples[i] * stride, and nowhere where that base is NO_ROW.

    bases, files, examples: int64 arrays; who makes this keeps what they point at alive. stride: bytes. Reading by
    address saves a copy of every row on the way from the page cache into the batch.
    """

    __slots__ = ("_addresses", "bases", "examples", "files", "stride")

    def __init__(self, bases: np.ndarray, files: np.ndarray, examples: np.ndarray, stride: int) -> None:
        self.bases, self.files, self.examples = (np.ascontiguousarray(of, np.int64) for of in (bases, files, examples))
        self.stride = stride
        # Asked for once, not with every batch: numpy takes half a microsecond to say one.
        self._addresses = self.bases.ctypes.data, self.files.ctypes.data, self.examples.ctypes.data

    def addresses_from(self, first: int) -> tuple[int, int, int]:
        """Of the bases, and of the files and examples of row number `first`."""
        bases, files, examples = self._addresses
        return bases, files + 8 * first, examples + 8 * first


@dataclass(frozen=True, slots=True)
class ColumnMemory:
    """The columns to fill, all (num_rows, seq_len) and of one signed dtype; addresses: of COLUMNS, 0 where not made."""

    arrays: dict[str, np.ndarray]
    addresses: tuple[int, int, int, int]

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray]) -> ColumnMemory:
        found = [arrays[name].ctypes.data if name in arrays else 0 for name in COLUMNS]
        return cls(arrays, (found[0], found[1], found[2], found[3]))


class ColumnFiller:
    """Fills columns from rows of one kind: by the compiled kernel, by numpy while this machine still compiles it.

    stored: the dtype of the rows. column: of the columns. padding_id: the id that marks padding.
    """

    def __init__(self, stored: np.dtype, column: np.dtype, seq_len: int, *, eos_id: int, padding_id: int) -> None:
        self._types = stored.name, column.name
        self._stored, self._seq_len, self._eos_id, self._padding_id = stored, seq_len, eos_id, padding_id
        self._kernel: Callable[..., None] | None = None

    def fill(self, places: RowPlaces, first: int, num_examples: int, num_rows: int, columns: ColumnMemory) -> None:
        """Rows 0 .. num_examples - 1 of the columns from rows first .. of `places`; the rest of num_rows is filler."""
        if self._kernel is None:
            self._kernel = _kernels.get_or_begin(self._types)
        if self._kernel is None:
            rows = slice(first, first + num_examples)
            bases = places.bases[places.files[rows]]
            addresses = np.where(bases == NO_ROW, NO_ROW, bases + places.examples[rows] * places.stride)
            fill_plainly(
                addresses, num_rows, self._stored, columns.arrays, eos_id=self._eos_id, padding_id=self._padding_id
            )
            return
        self._kernel(
            *places.addresses_from(first),
            num_examples,
            num_rows,
            places.stride,
            self._seq_len,
            *columns.addresses,
            self._eos_id,
            self._padding_id,
        )


def fill_columns(
    tokens: np.ndarray, num_rows: int, columns: dict[str, np.ndarray], *, eos_id: int, padding_id: int
) -> None:
    """Fills each array of `columns`, all (num_rows, seq_len), from `tokens`, (k, seq_len); rows k .. are filler.

    columns: any of COLUMNS, all of one signed dtype. padding_id: the id that marks padding.
    """
    if tokens.shape[1] > 1 and tokens.strides[1] != tokens.itemsize:
        tokens = np.ascontiguousarray(tokens)
    column = next(iter(columns.values())).dtype
    load_kernel(tokens.dtype, column)
    filler = ColumnFiller(tokens.dtype, column, tokens.shape[1], eos_id=eos_id, padding_id=padding_id)
    files = np.zeros(len(tokens), dtype=np.int64)
    places = RowPlaces(np.array([tokens.ctypes.data]), files, np.arange(len(tokens)), tokens.strides[0])
    filler.fill(places, 0, len(tokens), num_rows, ColumnMemory.of(columns))


def fill_plainly(
    addresses: np.ndarray,
    num_rows: int,
    dtype: np.dtype,
    columns: dict[str, np.ndarray],
    *,
    eos_id: int,
    padding_id: int,
) -> None:
    """What the kernel does, in numpy, at a tenth of its speed: no batch should wait for a compiler.

    addresses: of the rows, of `dtype`, NO_ROW for filler.
    """
    seq_len = next(iter(columns.values())).shape[1]
    # Filler is a row of padding alone.
    tokens = np.full((num_rows, seq_len), padding_id, dtype=dtype)
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


def cumulative_lengths(document_ids: np.ndarray) -> np.ndarray:
    """Where documents begin in a batch whose rows are laid end to end, and after them its length: int32, rising from 0.

    document_ids: (num_rows, seq_len). What attention over sequences of variable length takes as `cu_seqlens`: a row's
    end cuts a document, and the padding at a row's end, or a filler row, counts as one document.

    >>> cumulative_lengths(np.array([[0, 0, 1, -1], [0, 0, 0, 0]])).tolist()
    [0, 2, 3, 4, 8]
    """
    begins = np.ones(document_ids.shape, dtype=bool)
    np.not_equal(document_ids[:, 1:], document_ids[:, :-1], out=begins[:, 1:])
    return np.append(np.flatnonzero(begins), document_ids.size).astype(np.int32)


def load_kernel(stored: np.dtype, column: np.dtype) -> None:
    """Makes the kernel ready now, so that processes forked later have it; under 1 ms.

    The first time on a machine it is compiled: some seconds.
    """
    _kernels.load((stored.name, column.name))


class _Kernels:
    """The compiled kernels, by the names of the types they are loaded for."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str], Callable[..., None]] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        """For a process forked while its parent compiles: the thread that does is not in it, and frees no lock."""
        self._compiling = threading.Lock()
        self._begun: set[tuple[str, str]] = set()

    def get_or_begin(self, types: tuple[str, str]) -> Callable[..., None] | None:
        """The kernel where it is loaded or kept on disk. Otherwise begins to compile it in a thread."""
        if types not in self._loaded and types not in self._begun:
            kept = machine_code.kept_kernel(*types)
            if kept is not None:
                self._loaded[types] = kept
            else:
                self._begun.add(types)
                threading.Thread(target=self.load, args=(types,), name="compile-kernel", daemon=True).start()
        return self._loaded.get(types)

    def load(self, types: tuple[str, str]) -> None:
        with self._compiling:
            if types not in self._loaded:
                self._loaded[types] = machine_code.kept_kernel(*types) or machine_code.compiled_kernel(*types)


_kernels = _Kernels()
os.register_at_fork(after_in_child=_kernels.begin_anew)
