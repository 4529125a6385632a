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

from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

COLUMNS = ("input_ids", "labels", "position_ids", "document_ids")
IGNORED_LABEL = -100
NO_DOCUMENT = -1
# The address of a row that no shard holds: its columns are filler.
NO_ROW = 0

# Tokens looked at in one vectorised comparison: documents are longer, so most blocks hold no EOS and are done.
_SCAN = 64


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
    absent = _absent(first.shape[1], first.dtype)
    _fill(
        addresses,
        _EMPTY[dtype.itemsize],
        columns.get("input_ids", absent),
        columns.get("labels", absent),
        columns.get("position_ids", absent),
        columns.get("document_ids", absent),
        eos_id,
        padding_id,
    )


# Tells the kernel the tokens' type.
_EMPTY: dict[int, np.ndarray] = {2: np.empty(0, dtype=np.uint16), 4: np.empty(0, dtype=np.uint32)}


@lru_cache(maxsize=8)
def _absent(seq_len: int, dtype: np.dtype) -> np.ndarray:
    """An absent column is an empty array of the same type: one compiled kernel serves every choice of columns."""
    return np.empty((0, seq_len), dtype=dtype)


def _generate_pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - numba passes it
    """An address as a pointer, which numba.carray makes an array of."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001 - numba passes it
        return builder.inttoptr(arguments[0], context.get_value_type(numba.types.voidptr))

    return numba.types.voidptr(numba.types.int64), generate


# Any: in Python they take and give nothing that a checker knows, in the kernel they are one instruction.
_pointer: Any = intrinsic(_generate_pointer)
_carray: Any = getattr(numba, "carray")  # noqa: B009 - numba's stubs leave it out


# cache=True keeps the machine code beside the source: compiling takes seconds, loading it a few milliseconds.
# nogil: batches are made beside the thread that trains.
@numba.njit(cache=True, nogil=True)
def _fill(
    addresses: np.ndarray,
    like: np.ndarray,
    input_ids: np.ndarray,
    labels: np.ndarray,
    position_ids: np.ndarray,
    document_ids: np.ndarray,
    eos_id: int,
    padding_id: int,
) -> None:
    seq_len = input_ids.shape[1]  # an absent column has it too
    for row in range(len(addresses)):
        if addresses[row] == NO_ROW:
            _fill_with_filler(row, input_ids, labels, position_ids, document_ids, eos_id)
            continue
        tokens = _carray(_pointer(addresses[row]), (seq_len,), like.dtype)
        if len(input_ids):
            ids = input_ids[row]
            for place in range(seq_len):
                ids[place] = tokens[place]
        if len(labels):
            targets = labels[row]
            for place in range(seq_len - 1):
                targets[place] = tokens[place + 1]
            targets[seq_len - 1] = IGNORED_LABEL
        if len(labels) or len(position_ids) or len(document_ids) or _holds(tokens, padding_id):
            _mark_documents(row, tokens, input_ids, labels, position_ids, document_ids, eos_id, padding_id)


@numba.njit(cache=True, nogil=True)
def _mark_documents(
    row: int,
    tokens: np.ndarray,
    input_ids: np.ndarray,
    labels: np.ndarray,
    position_ids: np.ndarray,
    document_ids: np.ndarray,
    eos_id: int,
    padding_id: int,
) -> None:
    """What depends on where documents end: jumps from EOS to EOS and writes whole documents at once."""
    seq_len = len(tokens)
    document = begin = 0
    has_padding = False
    for block in range(0, seq_len, _SCAN):
        end = min(block + _SCAN, seq_len)
        hits = 0
        for place in range(block, end):
            hits += (tokens[place] == eos_id) | (tokens[place] == padding_id)
        if hits:
            for place in range(block, end):
                has_padding |= tokens[place] == padding_id
                if tokens[place] == eos_id:
                    _mark_run(row, begin, place + 1, document, position_ids, document_ids)
                    if len(labels):
                        labels[row, place] = IGNORED_LABEL
                    document += 1
                    begin = place + 1
    _mark_run(row, begin, seq_len, document, position_ids, document_ids)
    if not has_padding:
        return
    for place in range(seq_len):
        if tokens[place] == padding_id:
            if len(input_ids):
                input_ids[row, place] = eos_id
            if len(labels):
                labels[row, place] = IGNORED_LABEL
                labels[row, max(0, place - 1)] = IGNORED_LABEL
            if len(position_ids):
                position_ids[row, place] = 0
            if len(document_ids):
                document_ids[row, place] = NO_DOCUMENT


@numba.njit(cache=True, nogil=True)
def _mark_run(
    row: int, begin: int, end: int, document: int, position_ids: np.ndarray, document_ids: np.ndarray
) -> None:
    if len(position_ids):
        positions = position_ids[row, begin:end]
        for place in range(end - begin):
            positions[place] = place
    if len(document_ids):
        document_ids[row, begin:end] = document


@numba.njit(cache=True, nogil=True)
def _holds(tokens: np.ndarray, token: int) -> bool:
    hits = 0
    for place in range(len(tokens)):
        hits += tokens[place] == token
    return hits > 0


@numba.njit(cache=True, nogil=True)
def _fill_with_filler(
    row: int,
    input_ids: np.ndarray,
    labels: np.ndarray,
    position_ids: np.ndarray,
    document_ids: np.ndarray,
    eos_id: int,
) -> None:
    if len(input_ids):
        input_ids[row, :] = eos_id
    if len(labels):
        labels[row, :] = IGNORED_LABEL
    if len(position_ids):
        position_ids[row, :] = 0
    if len(document_ids):
        document_ids[row, :] = NO_DOCUMENT
