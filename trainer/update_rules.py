"""The update rules by name. Adding one is one entry of OPTIMIZERS, and its name in config.py's help.

All of them are other people's: torch's AdamW and Adafactor, lion-pytorch's Lion (an extra: lion). What is ours is the
state they begin with, made before the first step: a checkpoint then always finds a state to save or to load into (torch
would otherwise make a dummy step at load time, which counts as one, accelerate#4289), a sharded parameter's state is
sharded as it should be, and the planner can count its bytes on parameters without memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch

from manifests.yaml_config import ConfigError
from trainer.config import OptimizerConfig
from trainer.sharded_adafactor import ShardedAdafactor, factored_state

Groups = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """make: the optimizer over parameter groups, from a config with betas and eps filled in; its rate is set later.

    state: what it keeps of a parameter, before the first step. betas, eps: where the config says null; None: the rule
    has none. traffic_bytes: of memory read and written a parameter in a step, for the planner. package: to be
    installed, and its name on the registry.
    """

    make: Callable[[Groups, OptimizerConfig], torch.optim.Optimizer]
    state: Callable[[torch.Tensor], dict[str, torch.Tensor]]
    betas: tuple[float, float] | None
    eps: float | None
    traffic_bytes: int
    package: tuple[str, str] | None = None

    def settle(self, config: OptimizerConfig) -> OptimizerConfig:
        """`config` with this rule's own values where it leaves them open. Raises ConfigError for what it has not."""
        for name in ("betas", "eps"):
            if getattr(config, name) is not None and getattr(self, name) is None:
                value = getattr(config, name)
                raise ConfigError(f"optimizer.{name}", f"{value} is given and {config.name} has none; leave it out")
        return replace(
            config,
            betas=self.betas if config.betas is None else config.betas,
            eps=self.eps if config.eps is None else config.eps,
        )


def update_rule(config: OptimizerConfig) -> UpdateRule:
    """The rule of config.name. Raises ConfigError where there is none or its package is not installed."""
    if config.name not in OPTIMIZERS:
        raise ConfigError("optimizer.name", f"{config.name!r} is not one of {', '.join(sorted(OPTIMIZERS))}")
    rule = OPTIMIZERS[config.name]
    if rule.package is not None and find_spec(rule.package[0]) is None:
        raise ConfigError(
            "optimizer.name",
            f"{config.name} needs the package {rule.package[1]}, which is not installed;"
            f" python -m pip install {rule.package[1]}",
        )
    rule.settle(config)
    return rule


def _adamw(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; fused: one kernel over all parameters."""
    assert config.betas is not None
    assert config.eps is not None
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


def _two_moments(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _lion(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Lion, Chen et al. 2023, arXiv:2302.06675: the sign of a blend of momentum and gradient. Takes 3 to 10 times less
    lr than AdamW and as much more weight decay (section 5 there).

    The plain form, not the package's foreach one, which would hold all updates at once: 4 bytes a parameter.
    """
    from lion_pytorch import Lion

    assert config.betas is not None
    return Lion(groups, betas=config.betas)


def _momentum(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"exp_avg": torch.zeros_like(parameter)}


OPTIMIZERS: Mapping[str, UpdateRule] = {
    # Value, gradient and two moments read once, three of them written.
    "adamw": UpdateRule(make=_adamw, state=_two_moments, betas=(0.9, 0.95), eps=1e-8, traffic_bytes=28),
    # fp32. Five passes read and write one tensor (8 bytes), three read a second one as well (12).
    "lion": UpdateRule(
        make=_lion,
        state=_momentum,
        betas=(0.9, 0.99),
        eps=None,
        traffic_bytes=76,
        package=("lion_pytorch", "lion-pytorch"),
    ),
    # fp32. Four norms (4 bytes), one product written (4), four passes in place (8), two with a second tensor (12),
    # and weight decay (8).
    "adafactor": UpdateRule(
        make=lambda groups, _: ShardedAdafactor(groups), state=factored_state, betas=None, eps=None, traffic_bytes=76
    ),
}
