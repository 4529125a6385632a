"""BOS and EOS stand around every document, and come out of no text."""

import numpy as np

from pipeline.tokenization.plain import SpecialIds


def check_no_specials(ids: np.ndarray, offsets: np.ndarray, special_ids: SpecialIds) -> None:
    """ValueError, naming the document's index, when EOS or BOS came out of its text.

    Args:
        ids: tokens of all documents end to end.
        offsets: int64 (n + 1,), where each begins and ends in `ids`.
        special_ids: what must not be among them.
    """
    for special in (special_ids.eos, special_ids.bos):
        if special is None:
            continue
        found = ids == special
        if found.any():
            document = int(np.searchsorted(offsets, found.argmax(), side="right")) - 1
            raise ValueError(f"document {document} of the batch: its text was encoded to the special id {special}")


def frame(tokens: np.ndarray, offsets: np.ndarray, special_ids: SpecialIds) -> None:
    """Put BOS at the first place of every document of `tokens`, in place, and EOS at its last.

    >>> frame([., 5, 6, ., ., .], [0, 4, 6], eos 0, bos 9)  ->  [9, 5, 6, 0, 9, 0]
    """
    if special_ids.bos is not None:
        tokens[offsets[:-1]] = special_ids.bos
    tokens[offsets[1:] - 1] = special_ids.eos
