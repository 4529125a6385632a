"""Some steps of every optimizer over a mesh, and the same steps by a process that knows nothing of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from tests.trainer.trainer_gradient_batch import NUM_EXAMPLES, make_reference, make_rows
from tests.trainer.trainer_gradient_worker import sharded_model
from trainer.config import MeshConfig, OptimizerConfig
from trainer.loss import count_labels
from trainer.model import loss_sum_of
from trainer.optimizer import make_optimizer
from trainer.parallel import Ranks, make_mesh, process_group
from trainer.step import train_step

RATES = (3e-3, 2e-3, 1e-3, 1e-3)
WEIGHT_DECAY = 0.1
# Reached by each step of the tiny model, so clipping is tried as well.
CLIP_NORM = 0.5
# Before the second step one is skipped: a rank meets a loss that is no number.
SKIPPED_BEFORE = 1
Values = dict[str, torch.Tensor]


def reference(name: str) -> Values:
    """Every parameter after the steps, by the algorithm's text, or by torch's class on whole tensors."""
    model, rows = make_reference(), make_rows()
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    make: Any = {
        "adamw": lambda: torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=False, foreach=False),
        "lion": lambda: _Lion(groups, {}),
        "adafactor": lambda: torch.optim.Adafactor(groups, eps=(1e-15, 1e-3)),
    }[name]
    optimizer = make()
    for rate in RATES:
        (loss_sum_of(model, rows) / count_labels(rows["labels"])).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    return {key: parameter.detach() for key, parameter in model.named_parameters()}


class _Lion(torch.optim.Optimizer):
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2, line by line."""

    @torch.no_grad()
    def step(self, *_: Any) -> None:  # type: ignore[override]  # it never gets a closure
        for group in self.param_groups:
            for theta in group["params"]:
                m, g = self.state[theta].get("m", torch.zeros_like(theta)), theta.grad
                c = 0.9 * m + (1 - 0.9) * g
                theta -= group["lr"] * (c.sign() + group["weight_decay"] * theta)
                self.state[theta]["m"] = 0.99 * m + (1 - 0.99) * g


def steps_over_ranks(arguments: Sequence[str]) -> int:
    """For forked_ranks: OUT REPLICATE OFFLOAD NAME... Rank 0 writes, by name, every parameter and the bytes that all
    ranks hold of states.
    """
    target, replicate, offload, *names = arguments
    config = MeshConfig(replicate=int(replicate), offload=offload == "True")
    with process_group() as ranks:
        results = {name: _steps(name, config, ranks) for name in names}
        if ranks.is_first:
            torch.save(results, Path(target))
        ranks.sum([0])  # all leave together, as the trainer does
    return 0


def few_rows(arguments: Sequence[str]) -> int:
    """For forked_ranks: OUT. Rank 0 writes a matrix of 3 rows after two steps of Adafactor, on more ranks than rows."""
    with process_group() as ranks:
        linear = torch.nn.Linear(8, 3, bias=False)
        few_rows_start(linear)
        fully_shard(linear, mesh=make_mesh(MeshConfig(), ranks))
        optimizer = make_optimizer(linear, OptimizerConfig(name="adafactor", weight_decay=WEIGHT_DECAY))
        few_rows_steps(linear, optimizer)
        weight = linear.weight.full_tensor()
        if ranks.is_first:
            torch.save(weight.detach(), Path(arguments[0]))
        ranks.sum([0])
    return 0


def few_rows_start(linear: torch.nn.Linear) -> None:
    with torch.no_grad():
        linear.weight.copy_(torch.arange(24.0).reshape(3, 8) / 24)


def few_rows_steps(linear: torch.nn.Linear, optimizer: torch.optim.Optimizer) -> None:
    for number in (1, 2):
        optimizer.param_groups[0]["lr"] = 1e-2
        rows = torch.arange(24.0).reshape(3, 8).remainder(5 + number) - 2
        weight = linear.weight
        if isinstance(weight, DTensor):
            rows = distribute_tensor(rows, weight.device_mesh, weight.placements)
        weight.grad = rows
        optimizer.step()


def _steps(name: str, config: MeshConfig, ranks: Ranks) -> dict[str, Any]:
    """The loss is scaled as under fp16; ranks have unequally many examples where 8 do not divide."""
    model = sharded_model(ranks, config, "chunked")
    optimizer = make_optimizer(model, OptimizerConfig(name=name, weight_decay=WEIGHT_DECAY))
    for number, rate in enumerate(RATES):
        if number == SKIPPED_BEFORE:
            broken = model.get_submodule("model.norm").register_forward_hook(lambda *given: given[-1] * _nan(ranks))
            assert not _step(model, optimizer, ranks, rate)
            broken.remove()
        assert _step(model, optimizer, ranks, rate)
    return {
        "values": {key: parameter.full_tensor().detach() for key, parameter in model.named_parameters()},
        "state_bytes": ranks.sum([sum(_held(state) for state in optimizer.state.values())])[0],
    }


def _step(model: Any, optimizer: torch.optim.Optimizer, ranks: Ranks, rate: float) -> bool:
    rows = make_rows()
    mine = slice(*(NUM_EXAMPLES * edge // ranks.world_size for edge in (ranks.rank, ranks.rank + 1)))
    return train_step(
        model,
        optimizer,
        [{column: values[mine] for column, values in rows.items()}],
        num_tokens=count_labels(rows["labels"]),
        rate=rate,
        clip_norm=CLIP_NORM,
        device=ranks.device,
        loss_scale=1024.0,
    ).applied


def _nan(ranks: Ranks) -> float:
    return float("nan") if ranks.rank == ranks.world_size - 1 else 1.0


def _held(state: dict[str, torch.Tensor]) -> int:
    """Bytes of this rank's part; step counts, which are single numbers, left out."""
    parts = (value.to_local() if isinstance(value, DTensor) else value for value in state.values() if value.ndim)
    return sum(part.nbytes for part in parts)
