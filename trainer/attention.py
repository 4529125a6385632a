"""The attention mask that keeps packed documents apart.

transformers derives a mask from position ids only where no mask is given and drops it in other cases
(transformers PR#46634), so we build our own and pass it 4-D, which every model uses as it stands.
Cost: rows * seq_len^2 bytes; 16 MiB a row at 4,096 tokens.
"""

from __future__ import annotations

import torch


def document_mask(document_ids: torch.Tensor) -> torch.Tensor:
    """(rows, seq_len) document ids -> (rows, 1, seq_len, seq_len) bool; [r, 0, q, k] says that q may look at k.

    A token sees itself and what precedes it in its own document. Padding (id -1) sees padding: a query that sees
    nothing at all would make softmax divide by zero.
    """
    seq_len = document_ids.shape[1]
    same_document = document_ids[:, :, None] == document_ids[:, None, :]
    causal = torch.ones(seq_len, seq_len, dtype=torch.bool, device=document_ids.device).tril()
    return (same_document & causal)[:, None]
