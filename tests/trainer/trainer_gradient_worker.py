"""Full gradients, loss and norm of one step, for several meshes and cuts of the same global batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from tests.trainer.trainer_gradient_batch import NUM_EXAMPLES, make_plan, make_rows
from trainer.config import MeshConfig
from trainer.loss import count_labels
from trainer.model import build_model, fill, use_cross_entropy
from trainer.parallel import Ranks, make_mesh, process_group, shard_model
from trainer.step import train_step

Gradients = dict[str, torch.Tensor]


class Recorder(torch.optim.SGD):
    """An optimizer that notes the whole gradients it is given, and moves nothing."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.0)
        self._model = model
        self.gradients: Gradients = {}

    def step(self, *_: Any) -> None:  # type: ignore[override]  # it never gets a closure
        for name, parameter in self._model.named_parameters():
            self.gradients[name] = parameter.grad.full_tensor()


class AllReduceCounter(TorchDispatchMode):
    """Counts the all-reduces of this process, those of autograd's backward included."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.__name__.startswith(("allreduce", "all_reduce"))
        return func(*args, **(kwargs or {}))


def sharded_model(ranks: Ranks, config: MeshConfig, cross_entropy: Any, **settings: Any) -> PreTrainedModel:
    plan = make_plan()
    model = build_model(plan)
    use_cross_entropy(model, cross_entropy)
    shard_model(model, make_mesh(config, ranks), "fp32", offload=config.offload, **settings)
    fill(model, plan, seed=0)
    return model


def run_case(ranks: Ranks, case: str) -> dict[str, Any]:
    replicate, micro_batch, cross_entropy, recompute, *offload = case.split(":")
    config = MeshConfig(replicate=int(replicate), offload=bool(offload))
    model = sharded_model(ranks, config, cross_entropy, recompute=recompute)
    rows, share = make_rows(), NUM_EXAMPLES // ranks.world_size
    size = int(micro_batch)
    mine = range(ranks.rank * share, (ranks.rank + 1) * share, size)
    micro_batches = [{name: column[i : i + size] for name, column in rows.items()} for i in mine]
    recorder = Recorder(model)
    with AllReduceCounter() as exchange:
        result = train_step(
            model,
            recorder,
            micro_batches,
            num_tokens=count_labels(rows["labels"]),
            rate=0.0,
            clip_norm=None,
            device=ranks.device,
        )
    norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in recorder.gradients.values()]))
    return {
        "loss": result.loss,
        "norms": ranks.gather(result.grad_norm),
        "norm_of_gathered": float(norm),
        "gradients": recorder.gradients,
        "all_reduces": exchange.count,
        "groups": sum(isinstance(module, FSDPModule) for module in model.modules()),
    }


def nan_on_the_last_rank(ranks: Ranks) -> list[bool]:
    """Whether each rank applied a step in which only the last one met a loss that is no number."""
    model = sharded_model(ranks, MeshConfig(), "chunked")
    rows = make_rows()
    share = NUM_EXAMPLES // ranks.world_size
    batch = {name: column[ranks.rank * share : (ranks.rank + 1) * share] for name, column in rows.items()}
    if ranks.rank == ranks.world_size - 1:
        norm = model.get_submodule("model.norm")
        norm.register_forward_hook(lambda *arguments: arguments[-1] * float("nan"))
    optimizer = Recorder(model)
    result = train_step(
        model, optimizer, [batch], num_tokens=count_labels(rows["labels"]), rate=0.0, clip_norm=1.0, device=ranks.device
    )
    return ranks.gather(result.applied)


def main(arguments: Sequence[str]) -> int:
    """For forked_ranks: OUT REPLICATE:MICRO_BATCH:CROSS_ENTROPY:RECOMPUTE[:offload] ...

    Rank 0 writes to OUT, by case, what test_trainer_gradients.py compares with a model that knows nothing of ranks.
    """
    target, *cases = arguments
    with process_group() as ranks:
        results: dict[str, Any] = {}
        for case in cases:
            results[case] = run_case(ranks, case)
        applied = nan_on_the_last_rank(ranks)
        if ranks.is_first:
            torch.save({"cases": results, "applied": applied}, Path(target))
        ranks.sum([0])  # all leave together, as the trainer does
    return 0
