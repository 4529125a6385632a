"""The optimizer of a model: parameter groups, rate, and clipping by the global gradient norm."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from trainer.config import OptimizerConfig
from trainer.update_rules import update_rule


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of config.name over `model`'s parameters; its rate is 0 until the loop sets one.

    Raises ConfigError where there is none of that name, or not with these settings.
    """
    rule = update_rule(config)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = rule.make([group for group in groups if group["params"]], rule.settle(config))
    for group in optimizer.param_groups:  # in the order a checkpoint gives them back: equal states are equal files
        for parameter in group["params"]:
            optimizer.state[parameter] = rule.state(parameter)
    set_rate(optimizer, 0.0)
    return optimizer


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
