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

import numba
import numpy as np

COLUMNS = ("input_ids", "labels", "position_ids", "document_ids")
IGNORED_LABEL = -100
NO_DOCUMENT = -1


def fill_columns(
    tokens: np.ndarray, num_rows: int, columns: dict[str, np.ndarray], *, eos_id: int, padding_id: int
) -> None:
    """Fills each array of `columns`, all (num_rows, seq_len), from `tokens`, (k, seq_len); rows k .. are filler.

    columns: any of COLUMNS, all of one signed dtype. padding_id: the id that marks padding.
    """
    num_real = len(tokens)
    filler = {"input_ids": eos_id, "labels": IGNORED_LABEL, "position_ids": 0, "document_ids": NO_DOCUMENT}
    for name, array in columns.items():
        assert array.shape[0] == num_rows
        array[num_real:] = filler[name]
    if not num_real:
        return
    # An absent column is an empty array of the same dtype: one compiled kernel serves every choice of columns.
    absent = np.empty((0, tokens.shape[1]), dtype=next(iter(columns.values())).dtype)
    input_ids, labels, position_ids, document_ids = (columns.get(name, absent) for name in COLUMNS)
    _fill(tokens, input_ids, labels, position_ids, document_ids, eos_id, padding_id)


# cache=True keeps the machine code beside the source: compiling takes a second, loading it a few milliseconds.
@numba.njit(cache=True, nogil=True)
def _fill(
    tokens: np.ndarray,
    input_ids: np.ndarray,
    labels: np.ndarray,
    position_ids: np.ndarray,
    document_ids: np.ndarray,
    eos_id: int,
    padding_id: int,
) -> None:
    num_rows, seq_len = tokens.shape
    want_ids, want_labels = len(input_ids) > 0, len(labels) > 0
    want_positions, want_documents = len(position_ids) > 0, len(document_ids) > 0
    for row in range(num_rows):
        document = 0
        position = 0
        for place in range(seq_len):
            token = np.int64(tokens[row, place])
            is_padding = token == padding_id
            if want_ids:
                input_ids[row, place] = eos_id if is_padding else token
            if want_labels:
                label = np.int64(IGNORED_LABEL)
                if not is_padding and token != eos_id and place + 1 < seq_len:
                    following = np.int64(tokens[row, place + 1])
                    if following != padding_id:
                        label = following
                labels[row, place] = label
            if want_positions:
                position_ids[row, place] = 0 if is_padding else position
            if want_documents:
                document_ids[row, place] = NO_DOCUMENT if is_padding else document
            position += 1
            if token == eos_id:
                document += 1
                position = 0
