"""columns.py's one pass over the tokens, compiled. Imported when it is first needed: numba takes 0.7 s to be ready.

_fill reads rows by their address, so that a row goes straight from the page cache into the batch.
"""

from __future__ import annotations

from typing import Any

import numba
import numba.extending
import numpy as np

from loader.columns import IGNORED_LABEL, NO_DOCUMENT, NO_ROW

# Tokens looked at in one vectorised comparison: documents are longer, so most blocks hold no EOS and are done.
_SCAN = 64


def _generate_pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - numba passes it
    """An address as a pointer, which numba.carray makes an array of."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001 - numba passes it
        return builder.inttoptr(arguments[0], context.get_value_type(numba.types.voidptr))

    return numba.types.voidptr(numba.types.int64), generate


# Any: in Python they take and give nothing that a checker knows, in the kernel they are one instruction.
_pointer: Any = numba.extending.intrinsic(_generate_pointer)
_carray: Any = getattr(numba, "carray")  # noqa: B009 - numba's stubs leave it out


# cache=True keeps the machine code beside the source: compiling takes seconds, loading it a few milliseconds.
# nogil: batches are made beside the thread that trains.
@numba.njit(cache=True, nogil=True)
def fill(
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
