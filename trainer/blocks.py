"""What is done to each repeated block before it is sharded: forget activations and make them again, and compile.

    FSDP's gathering ( compiled ( recomputed ( the block's forward ) ) )

Only `forward` is replaced, so parameters keep their names and checkpoints fit with and without. The order is
torchtitan's: the compiler sees what is to be recomputed, and gathers stay outside both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

Recompute = Literal["none", "selective", "full"]

_ATEN = torch.ops.aten
# Kept by "selective": what costs matrix arithmetic. Norms, rotations and gates are made again, at next to no cost.
_KEPT = [
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_cudnn_attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.higher_order.flex_attention,
]


def blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a Hugging Face model, in order."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def prepare_block(block: nn.Module, *, recompute: Recompute, compiled: bool) -> None:
    """Change how `block` computes, not what. recompute: activations made again in the backward pass.

    none: all are kept. selective: products and attention are kept. full: only the block's input is; costs a forward.
    """
    forward: Callable[..., Any] = block.forward
    if recompute != "none":
        forward = _recomputed(forward, selective=recompute == "selective")
    if compiled:
        forward = torch.compile(forward)
    block.forward = forward


def _recomputed(forward: Callable[..., Any], *, selective: bool) -> Callable[..., Any]:
    context: dict[str, Any] = {"context_fn": partial(create_selective_checkpoint_contexts, _KEPT)} if selective else {}

    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **context, **kwargs)

    return run
