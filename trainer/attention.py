"""The attention mask that keeps packed documents apart.

transformers derives a mask from position ids only where no mask is given and drops it in other cases
(transformers PR#46634), so we build our own and pass it 4-D, which every model uses as it stands.

    sdpa   a mask of booleans: rows * seq_len^2 bytes, 16 MiB a row at 4,096 tokens, and every pair is computed
    flex   blocks of 128 x 128 that hold nothing to see are skipped: time and memory go by the documents' lengths
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

Attention = Literal["sdpa", "flex"]
# What transformers calls them.
IMPLEMENTATIONS: dict[Attention, str] = {"sdpa": "sdpa", "flex": "flex_attention"}


def choose_attention(asked: Literal["auto", "sdpa", "flex"], device: torch.device) -> Attention:
    """auto: flex on CUDA; on CPU, where flex has no backward pass, sdpa."""
    if asked == "auto":
        return "flex" if device.type == "cuda" else "sdpa"
    return asked


def attention_mask(kind: str, document_ids: torch.Tensor) -> torch.Tensor | BlockMask:
    """The mask of the implementation that transformers calls `kind`, for (rows, seq_len) document ids."""
    return document_block_mask(document_ids) if kind == IMPLEMENTATIONS["flex"] else document_mask(document_ids)


def document_mask(document_ids: torch.Tensor) -> torch.Tensor:
    """(rows, seq_len) document ids -> (rows, 1, seq_len, seq_len) bool; [r, 0, q, k] says that q may look at k.

    A token sees itself and what precedes it in its own document. Padding (id -1) sees padding: a query that sees
    nothing at all would make softmax divide by zero.
    """
    seq_len = document_ids.shape[1]
    same_document = document_ids[:, :, None] == document_ids[:, None, :]
    causal = torch.ones(seq_len, seq_len, dtype=torch.bool, device=document_ids.device).tril()
    return (same_document & causal)[:, None]


def document_block_mask(document_ids: torch.Tensor) -> BlockMask:
    """The same rule as flex attention takes it."""

    def visible(row: Any, head: Any, query: Any, key: Any) -> Any:  # noqa: ARG001 - the signature flex attention calls
        return (query >= key) & (document_ids[row, query] == document_ids[row, key])

    rows, seq_len = document_ids.shape
    # Uncompiled, the rule is evaluated for every pair at once: fine on CPU, where this is for tests.
    compiled = document_ids.device.type == "cuda"
    return create_block_mask(visible, rows, None, seq_len, seq_len, device=document_ids.device, _compile=compiled)
