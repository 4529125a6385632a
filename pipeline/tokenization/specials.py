"""BOS and EOS into encoded documents."""

import numpy as np

from pipeline.kernels.ragged import framed_lists
from pipeline.tokenization.tokenizer import Tokenizer


def with_special_tokens(
    ids: np.ndarray, offsets: np.ndarray, tokenizer: Tokenizer, dtype: str = "uint32"
) -> tuple[np.ndarray, np.ndarray]:
    """Put BOS (where there is one) before and EOS after every document.

    >>> with_special_tokens([5, 6, 7], [0, 2, 3], eos 0, no BOS)  ->  [5, 6, 0, 7, 0], [0, 3, 5]

    Args:
        ids: tokens of all documents end to end.
        offsets: int64 (n + 1,), where each begins and ends in `ids`.
        tokenizer: which tokens they are.
        dtype: of the tokens returned; every id must fit, which the tokenizer's vocab_size tells.

    Raises:
        ValueError: naming the document's index, when EOS (or BOS) came out of its text.
    """
    specials = [special for special in (tokenizer.eos_id, tokenizer.bos_id) if special is not None]
    for special in specials:
        found = ids == special
        if found.any():
            document = int(np.searchsorted(offsets, found.argmax(), side="right")) - 1
            raise ValueError(f"document {document} of the batch: its text was encoded to the special id {special}")
    head = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    return framed_lists(ids, offsets, np.array(head, dtype), np.array([tokenizer.eos_id], dtype))
