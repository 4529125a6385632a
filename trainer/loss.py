"""Next-token loss as a sum, so that the caller divides once by the labelled tokens of the whole global step.

A mean per micro-batch would weigh a row with 3 labelled tokens like a row with 4,000 (transformers PR#34191).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

# torch's own default; the loader marks padding, document ends and filler rows with it.
IGNORED_LABEL = -100


def token_loss_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum of cross entropies in nats: a float64 scalar with gradient.

    logits (rows, seq_len, vocab) in any float type; labels (rows, seq_len), already shifted: labels[t] is the target of
    logits[t]. Each token's loss is made in fp32, the sum in fp64: thousands of small terms are not rounded away.
    Rows without any label give 0 and a zero gradient.
    """
    losses = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="none"
    )
    return losses.sum(dtype=torch.float64)


def count_labels(labels: torch.Tensor) -> int:
    """Labelled tokens: those that take part in the loss."""
    return int((labels != IGNORED_LABEL).sum())
