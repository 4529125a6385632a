"""Next-token loss from hidden states, without ever holding all logits: a few hundred tokens' worth at a time.

At a vocabulary of 128,000 one row of 4,096 tokens has 2.1 GB of fp32 logits, and as much again of their gradient. Here
a chunk's logits become its share of both gradients at once and are dropped: the memory is one chunk's, and one fp32
matrix of the head's size where its gradient is summed.

torch has F.linear_cross_entropy with chunks since 2.13, but rounds loss and sums of gradients to the input's type: in
bf16 the loss was off by 0.5 %, the head's gradient by 0.5 % instead of 0.1 % (2026-11-29).
"""

from __future__ import annotations

from typing import Any

import torch

from trainer.loss import IGNORED_LABEL

# Logits of a chunk: 2^26 fp32 numbers are 256 MiB, 512 tokens at a vocabulary of 131,072.
_CHUNK_LOGITS = 2**26


def linear_loss_sum(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What loss.token_loss_sum gives for the logits hidden @ weight.T: a float64 scalar with gradient.

    hidden (rows, seq_len, size); weight (vocabulary, size), of hidden's type; labels (rows, seq_len).
    """
    chunk = max(1, _CHUNK_LOGITS // weight.shape[0])
    apply: Any = _LinearLossSum.apply  # torch leaves it unannotated
    result: torch.Tensor = apply(hidden.flatten(0, 1), weight, labels.flatten(), chunk)
    return result


class _LinearLossSum(torch.autograd.Function):
    """Gradients are made in the forward pass, of the sum; the backward pass multiplies by what comes from above."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, chunk: int) -> torch.Tensor:
        of_hidden, of_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if of_hidden else None
        # fp32: in 16 bits the sum over chunks would lose what each of them adds.
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if of_weight else None
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        for start in range(0, hidden.shape[0], chunk):
            part = hidden[start : start + chunk]
            targets = labels[start : start + chunk, None]
            counted = targets != IGNORED_LABEL
            places = targets.clamp(min=0)  # of an ignored label any place does: its row is multiplied by 0
            logits = (part @ weight.T).float()
            log_sum = logits.logsumexp(dim=1, keepdim=True)
            total += ((log_sum - logits.gather(1, places)) * counted).sum(dtype=torch.float64)
            if grad_hidden is None and grad_weight is None:
                continue
            # d loss / d logits = probabilities - 1 at the target.
            gradient = logits.sub_(log_sum).exp_()
            gradient.scatter_(1, places, gradient.gather(1, places) - 1.0)
            gradient = gradient.mul_(counted).to(weight.dtype)
            if grad_hidden is not None:
                torch.mm(gradient, weight, out=grad_hidden[start : start + chunk])
            if grad_weight is not None:
                if weight.dtype == torch.float32:
                    grad_weight.addmm_(gradient.T, part)
                else:
                    grad_weight += gradient.T @ part
        ctx.gradients = (grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *from_above: Any) -> tuple[torch.Tensor | None, ...]:
        factor = from_above[0].float()
        grad_hidden, grad_weight = ctx.gradients
        ctx.gradients = (None, None)
        return (
            None if grad_hidden is None else grad_hidden.mul_(factor),
            None if grad_weight is None else grad_weight.mul_(factor),
            None,
            None,
        )
