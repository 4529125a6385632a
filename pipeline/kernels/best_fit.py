"""Best fit: each piece into the row with the least space that still takes it. O(log seq_len) a piece."""

from typing import Any

import numpy as np

from pipeline.kernels.compiled import kernel
from pipeline.kernels.hashing import mix64


def best_fit_rows(lengths: np.ndarray, seq_len: int) -> tuple[np.ndarray, int]:
    """The row of each piece, int64 (n,), numbered in the order they were opened, and how many rows there are.

    Args:
        lengths: int64 (n,), 1 .. seq_len each, in the order to place them: decreasing, for best fit decreasing.
        seq_len: places in a row.

    Of several rows with equal space, the one that came to it last is taken.
    """
    rows = np.empty(len(lengths), np.int64)
    return rows, int(_best_fit(np.ascontiguousarray(lengths, np.int64), seq_len, rows))


@kernel
def _best_fit(lengths: Any, seq_len: Any, rows: Any) -> Any:
    # has_row is a tree over spaces 0 .. size - 1, leaf `size + space`: whether any row below has that much space left.
    size = 1
    while size < seq_len:
        size *= 2
    has_row = np.zeros(2 * size, np.bool_)
    newest = np.full(size, -1, np.int64)  # by space: the row that came to it last
    older = np.empty(len(lengths), np.int64)  # by row: the one that came to the same space before it
    num_rows = 0
    for i in range(len(lengths)):
        length = lengths[i]
        # The leaf with the smallest space >= length: up until there is one to the right, then down its left edge.
        node = size + length if length < size else 1
        found = node > 1 and has_row[node]
        while node > 1 and not found:
            if node % 2 == 0 and has_row[node + 1]:
                node += 1
                found = True
            else:
                node //= 2
        if found:
            while node < size:
                node *= 2
                if not has_row[node]:
                    node += 1
            space = node - size
            row = newest[space]
            newest[space] = older[row]
            if newest[space] < 0:
                has_row[node] = False
                node //= 2
                while node >= 1 and not (has_row[2 * node] or has_row[2 * node + 1]):
                    has_row[node] = False
                    node //= 2
        else:
            row, space = num_rows, seq_len
            num_rows += 1
        rows[i] = row
        left = space - length
        older[row] = newest[left]
        newest[left] = row
        node = size + left
        while node >= 1 and not has_row[node]:
            has_row[node] = True
            node //= 2
    return num_rows


def scrambled(numbers: np.ndarray) -> np.ndarray:
    """A hash of each number, uint64 (n,): one to one, so that equal ones come from equal numbers only."""
    hashes = np.empty(len(numbers), np.uint64)
    _scramble(numbers.astype(np.uint64), hashes)
    return hashes


@kernel
def _scramble(numbers: Any, hashes: Any) -> None:
    for i in range(len(numbers)):
        hashes[i] = mix64(numbers[i] + np.uint64(1))  # zero would stay zero
