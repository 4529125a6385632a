"""The loss that keeps a router's experts in equal use, where the model's config asks for it.

transformers adds `router_aux_loss_coef` times its load_balancing_loss_func to the loss when `output_router_logits` is
true, and not otherwise; as here. E experts, T tokens, over all layers with a router together:

    experts * sum over e of (share of choices that fell on e) * (mean probability of e)         least: experts chosen

transformers takes it over a micro-batch, so it changes with the cut of the batch. Here it is taken over each row's
labelled tokens, weighted by their number: the same for any micro-batch and any ranks, and for one row the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from trainer.experts import experts_of
from trainer.loss import IGNORED_LABEL


def asks_for_balance(config: PretrainedConfig) -> bool:
    return bool(getattr(config, "output_router_logits", False)) and bool(getattr(config, "router_aux_loss_coef", 0.0))


def balance_words(config: PretrainedConfig) -> str | None:
    """The line a person reads; None for a model without such a loss."""
    coefficient = getattr(config, "router_aux_loss_coef", None)
    if coefficient is None:
        return None
    if asks_for_balance(config):
        return f"router: {coefficient:g} x the balance of its experts is added to the loss, as its config asks"
    return (
        "router: nothing is added to the loss to keep its experts in equal use;"
        f" output_router_logits: true in its config adds {coefficient:g} x their balance (router_aux_loss_coef)"
    )


class RouterLoss:
    """Adds the balance term of a model whose config asks for it; call it after a forward pass of the base model."""

    def __init__(self, model: PreTrainedModel) -> None:
        config: Any = model.config
        self._coefficient = float(config.router_aux_loss_coef)
        experts = experts_of(config)
        assert experts is not None  # families.py has looked
        self._top_k = experts.chosen
        self._logits: Sequence[torch.Tensor] = ()
        base = model.base_model
        base.register_forward_pre_hook(
            lambda _module, inputs, named: (inputs, {**named, "output_router_logits": torch.is_grad_enabled()}),
            with_kwargs=True,
        )
        base.register_forward_hook(self._keep)

    def _keep(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._logits = output.router_logits if torch.is_grad_enabled() else ()

    def __call__(self, labels: torch.Tensor) -> torch.Tensor | float:
        """The term of the last pass, weighted like a sum of token losses; 0 where no gradient is asked for."""
        logits, self._logits = self._logits, ()
        return self._coefficient * balance_sum(logits, labels, self._top_k) if logits else 0.0


def balance_sum(router_logits: Sequence[torch.Tensor], labels: torch.Tensor, top_k: int) -> torch.Tensor:
    """Each row's balance times its labelled tokens, summed: a float64 scalar with gradient.

    router_logits: a layer each, (rows * seq_len, experts); labels (rows, seq_len).
    """
    counted = (labels != IGNORED_LABEL).float()[..., None]
    num_experts = router_logits[0].shape[-1]
    shares = torch.zeros(len(labels), num_experts, device=labels.device)
    chances = torch.zeros_like(shares)
    for layer in router_logits:
        probabilities = layer.float().softmax(-1).view(*labels.shape, num_experts)
        chosen = probabilities.topk(top_k).indices
        shares = shares + (torch.zeros_like(probabilities).scatter(-1, chosen, 1.0) * counted).sum(1)
        chances = chances + (probabilities * counted).sum(1)
    tokens = counted.sum((1, 2))
    seen = (tokens * len(router_logits)).clamp(min=1.0)[:, None]
    balance = num_experts * (shares / seen * (chances / seen)).sum(1)
    return (balance * tokens).sum(dtype=torch.float64)
