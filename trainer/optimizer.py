"""The update rule, its parameter groups, and clipping by the global gradient norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from manifests.yaml_config import ConfigError
from trainer.config import OptimizerConfig


def _adamw(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; fused: one kernel over all parameters."""
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=config.betas, eps=config.eps, fused=True)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            # Made here, not at the first step: a checkpoint then always finds a state to save or to load into. torch
            # would otherwise make a dummy step at load time, which counts as one (accelerate#4289).
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimizer


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], OptimizerConfig], torch.optim.Optimizer]] = {"adamw": _adamw}


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of config.name over `model`'s parameters; its rate is 0 until the loop sets one."""
    if config.name not in OPTIMIZERS:
        raise ConfigError("optimizer.name", f"{config.name!r} is not one of {', '.join(sorted(OPTIMIZERS))}")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return OPTIMIZERS[config.name]([group for group in groups if group["params"]], config)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip(parameters: Iterable[nn.Parameter], largest: float | None, loss_scale: float = 1.0) -> float:
    """The norm of the whole gradient over all ranks (the same float on each), and gradients scaled down to `largest`.

    loss_scale: what the loss was multiplied by; gradients are divided by it first.

    A NaN or infinity anywhere makes the norm NaN or infinite on every rank: it is made by an all-reduce.
    """
    with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
    if loss_scale != 1.0:
        for parameter in with_gradient:
            assert parameter.grad is not None
            parameter.grad.mul_(1.0 / loss_scale)
    norm = torch.nn.utils.get_total_norm([p.grad for p in with_gradient if p.grad is not None])
    if isinstance(norm, DTensor):
        # Without this each rank would see, and clip by, the norm of its own shard (pytorch#170862).
        norm = norm.full_tensor()
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(with_gradient, largest, norm)
    return float(norm)
