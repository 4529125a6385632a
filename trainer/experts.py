"""How many experts a model's layers have and how many of them a token passes, whatever its config calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PretrainedConfig

_NUM = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_k", "moe_top_k", "moe_topk", "num_experts_per_token")


@dataclass(frozen=True, kw_only=True)
class Experts:
    num: int
    chosen: int

    def holds(self, parameter: nn.Parameter) -> bool:
        """Whether `parameter` is the matrices of all experts in one: transformers keeps them as (experts, ., .)."""
        return parameter.ndim == 3 and parameter.shape[0] == self.num

    def active(self, module: nn.Module) -> int:
        """Parameters of `module` that one token passes."""
        return sum(
            parameter.numel() * self.chosen // self.num if self.holds(parameter) else parameter.numel()
            for parameter in module.parameters()
        )


def experts_of(config: PretrainedConfig) -> Experts | None:
    """None for a dense model, and for one whose experts go by names not known here."""
    inner = getattr(config, "ffn_config", None) or config  # dbrx
    num, chosen = _first(inner, _NUM), _first(inner, _CHOSEN)
    if not isinstance(num, int) or not isinstance(chosen, int):
        return None
    return Experts(num=num, chosen=chosen)


def _first(config: Any, names: Sequence[str]) -> Any:
    return next((value for name in names if (value := getattr(config, name, None))), None)
