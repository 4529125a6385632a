"""columns.py's one pass over the tokens, for numba to compile: machine_code.py imports this only where it must compile.

All arguments are whole numbers, addresses among them: so a row goes straight from the page cache into the batch, and
the machine code needs neither numba nor Python when it runs. An address of 0 stands for a column nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending

from loader.columns import IGNORED_LABEL, NO_DOCUMENT, NO_ROW
from loader.machine_code import NUM_ARGUMENTS

# Tokens looked at in one vectorised comparison: documents are longer, so most blocks hold no EOS and are done.
_SCAN = 64


def compiled(stored: str, column: str) -> tuple[str, str, Any]:
    """(LLVM's words for the kernel, its name in them, numba's function of it).

    stored: "uint16" or "uint32"; column: "int32" or "int64".
    """
    fill = _fill_of(_pointer_to(getattr(numba.types, stored)), _pointer_to(getattr(numba.types, column)))
    # numpy's error model: nothing here raises, and inlined into its entry that is seen, so no code for it is made.
    signature = numba.types.void(*[numba.types.int64] * NUM_ARGUMENTS)
    function = numba.cfunc(signature, error_model="numpy", forceinline=True)(fill)
    return function.inspect_llvm(), function.native_name, function


def _pointer_to(element: Any) -> Any:
    """A function of the kernel: an address -> a pointer, to be read and written by index."""
    pointer = numba.types.CPointer(element)  # type: ignore[no-untyped-call]  # numba leaves it untyped

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001 - numba passes it
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return numba.extending.intrinsic(lambda _, address: (pointer(numba.types.int64), generate))  # noqa: ARG005


_int64s: Any = _pointer_to(numba.types.int64)


def _fill_of(stored: Any, column: Any) -> Callable[..., None]:
    inline = numba.njit(error_model="numpy", forceinline=True)

    @inline
    def mark_run(begin: int, end: int, row: int, document: int, position_ids: int, document_ids: int) -> None:
        if position_ids:
            positions = column(position_ids)
            for place in range(begin, end):
                positions[row + place] = place - begin
        if document_ids:
            documents = column(document_ids)
            for place in range(begin, end):
                documents[row + place] = document

    @inline
    def count(tokens: Any, begin: int, end: int, first: int, second: int) -> int:
        hits = 0
        for place in range(begin, end):
            hits += (tokens[place] == first) | (tokens[place] == second)
        return hits

    def fill(
        bases: int,
        files: int,
        examples: int,
        num_examples: int,
        num_rows: int,
        stride: int,
        seq_len: int,
        input_ids: int,
        labels: int,
        position_ids: int,
        document_ids: int,
        eos_id: int,
        padding_id: int,
    ) -> None:
        base_of, file_of, example_of = _int64s(bases), _int64s(files), _int64s(examples)
        ids, targets = column(input_ids), column(labels)
        positions, documents = column(position_ids), column(document_ids)
        for number in range(num_rows):
            row = number * seq_len
            base = NO_ROW
            if number < num_examples:
                base = base_of[file_of[number]]
            if base == NO_ROW:
                for place in range(row, row + seq_len):
                    if input_ids:
                        ids[place] = eos_id
                    if labels:
                        targets[place] = IGNORED_LABEL
                    if position_ids:
                        positions[place] = 0
                    if document_ids:
                        documents[place] = NO_DOCUMENT
                continue
            tokens = stored(base + example_of[number] * stride)
            if input_ids:
                for place in range(seq_len):
                    ids[row + place] = tokens[place]
            if labels:
                for place in range(seq_len - 1):
                    targets[row + place] = tokens[place + 1]
                targets[row + seq_len - 1] = IGNORED_LABEL
            has_padding = False
            if labels or position_ids or document_ids:
                # What depends on where documents end: jumps from EOS to EOS and writes whole documents at once.
                document = begin = end = 0
                while end < seq_len:
                    block, end = end, min(end + _SCAN, seq_len)
                    if count(tokens, block, end, eos_id, padding_id):
                        for place in range(block, end):
                            has_padding |= tokens[place] == padding_id
                            if tokens[place] == eos_id:
                                mark_run(begin, place + 1, row, document, position_ids, document_ids)
                                if labels:
                                    targets[row + place] = IGNORED_LABEL
                                document += 1
                                begin = place + 1
                mark_run(begin, seq_len, row, document, position_ids, document_ids)
            else:
                has_padding = count(tokens, 0, seq_len, padding_id, padding_id) > 0
            if not has_padding:
                continue
            for place in range(seq_len):
                if tokens[place] == padding_id:
                    if input_ids:
                        ids[row + place] = eos_id
                    if labels:
                        targets[row + place] = IGNORED_LABEL
                        targets[row + max(0, place - 1)] = IGNORED_LABEL
                    if position_ids:
                        positions[row + place] = 0
                    if document_ids:
                        documents[row + place] = NO_DOCUMENT

    return fill
