"""One optimizer step over the micro-batches of a rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from trainer.model import loss_sum_of
from trainer.optimizer import clip, set_rate
from trainer.parallel import exchange_on
from trainer.phases import PhaseClock, Phases


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Equal on all ranks, but for phases. loss: nats a labelled token; grad_norm: before clipping; applied: the weights
    moved.
    """

    loss: float
    grad_norm: float
    applied: bool
    phases: Phases = field(default_factory=Phases, compare=False)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[dict[str, torch.Tensor]],
    *,
    num_tokens: int,
    rate: float,
    clip_norm: float | None,
    device: torch.device,
    loss_scale: float = 1.0,
) -> StepResult:
    """Forward, backward, clip, update. `num_tokens`: labelled tokens of the step over all ranks. loss_scale: of fp16.

    Every rank must pass equally many micro-batches. A loss or norm that is not finite leaves the weights as they are;
    all ranks decide alike, since both figures come out of an all-reduce, which spreads a NaN to everyone.
    """
    total = torch.zeros((), dtype=torch.float64, device=device)
    clock = PhaseClock(device)
    for index, batch in enumerate(micro_batches):
        if isinstance(model, FSDPModule):
            exchange_on(model, last=index == len(micro_batches) - 1)
        on_device = {name: column.to(device, non_blocking=True) for name, column in batch.items()}
        # A step of filler only (no label anywhere) has loss 0, not 0 / 0.
        loss = loss_sum_of(model, on_device) / max(1, num_tokens)
        clock.ends("forward")
        (loss * loss_scale).backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        clock.ends("backward")
        total += loss.detach()
    dist.all_reduce(total)
    grad_norm = clip(model.parameters(), clip_norm, loss_scale)
    loss_value = float(total)
    applied = math.isfinite(loss_value) and math.isfinite(grad_norm)
    if applied:
        set_rate(optimizer, rate)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    clock.ends("update")
    return StepResult(loss=loss_value, grad_norm=grad_norm, applied=applied, phases=clock.read())
