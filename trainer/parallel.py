"""Ranks, the device mesh, and FSDP2 over it: one code path for gloo on CPU and NCCL on CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # public, missing from torch's stubs
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, Shard
from transformers import PreTrainedModel

from manifests.errors import UserError
from manifests.yaml_config import ConfigError
from trainer.blocks import Recompute, blocks, prepare_block
from trainer.config import MeshConfig
from trainer.rendezvous import fresh_store

T = TypeVar("T")
Precision = Literal["fp32", "bf16", "fp16"]
Memory = dict[nn.Parameter, nn.Parameter]


class RankError(RuntimeError):
    """Some rank could not do its part of common work; which, and why. Raised on all of them."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Who this process is among all of them, as torchrun says; alone, it is rank 0 of 1.

    group: the processes' way to each other; None is the default group. Two threads must not share one.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[int]) -> list[int]:
        """Whole numbers summed over all ranks, through host memory: no wait for the GPU."""
        tensor = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(tensor, group=self.group)
        return [int(value) for value in tensor]

    def each(self, values: Sequence[int]) -> list[list[int]]:
        """Every rank's whole numbers, equally many, in rank order; through host memory as well."""
        mine = torch.tensor(values, dtype=torch.int64)
        all_of_them = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(all_of_them, mine, group=self.group)
        return [[int(value) for value in tensor] for tensor in all_of_them]

    def share(self, value: Any) -> Any:
        """Rank 0's value on every rank; what other ranks pass is ignored."""
        box = [value if self.is_first else None]
        dist.broadcast_object_list(box, src=0, group=self.group, device=torch.device("cpu"))
        return box[0]

    def decide(self, choose: Callable[[], T]) -> T:
        """On every rank what `choose` returns on rank 0, which alone calls it; its UserError is raised on all."""
        outcome: tuple[T | None, UserError | None] = (None, None)
        if self.is_first:
            try:
                outcome = (choose(), None)
            except UserError as error:
                outcome = (None, error)
        value, failure = self.share(outcome)
        if failure is not None:
            raise failure
        return cast(T, value)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order, on every rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def all_or_none(self, choose: Callable[[], T]) -> T:
        """Collective: `choose` on every rank, each its own value; a UserError of any of them is raised on all."""
        mine, problem = None, None
        try:
            mine = choose()
        except UserError as error:
            problem = error
        for found in self.gather(problem):
            if found is not None:
                raise found
        return cast(T, mine)

    def together(self, work: Callable[[], T]) -> list[T]:
        """Collective: `work` on every rank, the results in rank order. Where one fails, RankError on every rank."""
        try:
            mine: tuple[T | None, str | None] = (work(), None)
        except Exception as error:
            mine = (None, f"rank {self.rank}: {type(error).__name__}: {error}")
        outcomes = self.gather(mine)
        failures = [failure for _, failure in outcomes if failure is not None]
        if failures:
            raise RankError("; ".join(failures))
        return [value for value, _ in outcomes]

    def beside(self) -> Ranks:
        """Collective: the same ranks with a group of their own over host memory, for a thread beside the training."""
        return replace(self, group=dist.new_group(backend="gloo"))


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Join the ranks torchrun started (or be the only one) and leave them at the end."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        # gloo stays beside NCCL for the small host-side exchanges: counts, flags, file lists.
        backend = "cpu:gloo,cuda:nccl"
    else:
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend, store=_store(rank, world_size), rank=rank, world_size=world_size)
    try:
        yield Ranks(rank=rank, local_rank=local_rank, world_size=world_size, device=device)
    finally:
        dist.destroy_process_group()


def _store(rank: int, world_size: int) -> Store:
    if "RANK" not in os.environ:
        return HashStore()
    shared, _, _ = next(rendezvous("env://"))
    return fresh_store(shared, rank, world_size)


def grid(config: MeshConfig, world_size: int) -> tuple[int, int]:
    """(replicate, shard), what was left open filled in. Raises ConfigError when the product is not the world."""
    replicate = config.replicate if config.replicate is not None else max(1, world_size // (config.shard or world_size))
    shard = config.shard if config.shard is not None else max(1, world_size // replicate)
    if replicate * shard != world_size:
        raise ConfigError(
            "mesh",
            f"replicate {replicate} x shard {shard} is {replicate * shard} ranks and torchrun"
            f" started {world_size}; make the product equal",
        )
    return replicate, shard


def make_mesh(config: MeshConfig, ranks: Ranks) -> DeviceMesh:
    """The (replicate, shard) mesh as FSDP2 wants it. Raises ConfigError when the grid is not the world."""
    replicate, shard = grid(config, ranks.world_size)
    mesh = init_device_mesh(ranks.device.type, (replicate, shard), mesh_dim_names=("replicate", "shard"))
    # One copy: the flat mesh is plain FSDP; the 2-D one would add an all-reduce among one rank to every step.
    return mesh if replicate > 1 else mesh["shard"]


def shard_model(
    model: PreTrainedModel,
    mesh: DeviceMesh,
    precision: Precision,
    *,
    offload: bool = False,
    recompute: Recompute = "none",
    compiled: bool = False,
) -> FSDPModule:
    """Split `model` (model.build_model) over `mesh`, in place, as fp32 shards without values: a group a block, one for
    the rest. The device holds at most one group of whole parameters at a time.

    precision: of compute. offload: shards and moments live in host memory. recompute, compiled: blocks.prepare_block.
    """
    compute = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    settings: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy(),
        "shard_placement_fn": partial(_cut, num_ranks=mesh.size(mesh.ndim - 1)),
    }
    device = torch.device(mesh.device_type)
    memory: Memory = {}
    for block in blocks(model):
        prepare_block(block, recompute=recompute, compiled=compiled)
        materialize(block, device, memory)
        fully_shard(block, **settings)
    materialize(model, device, memory)
    fully_shard(model, **settings)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Our loss is already divided by the global token count, so gradients are summed, never averaged. Both
            # calls act on one module only. A factor of 1.0 alone asks gloo for PREMUL_SUM, which it lacks; without
            # either, gloo sums where NCCL averages (pytorch#162338).
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return cast(FSDPModule, model)


def _cut(parameter: nn.Parameter, *, num_ranks: int) -> Shard:
    """The dimension to cut: the first, in pieces as even as they get. Experts in one tensor (experts, out, in), which 8
    experts would put on 8 of 64 ranks, by one that comes out even; FSDP2 cuts no later dimension unevenly.
    """
    if parameter.ndim > 2 and parameter.shape[0] % num_ranks:
        return Shard(next((dim for dim, size in enumerate(parameter.shape) if size % num_ranks == 0), 0))
    return Shard(0)


def materialize(module: nn.Module, device: torch.device, memory: Memory) -> None:
    """Replace parameters of `module` by ones without values on `device`: of none, from the meta device, or back to it.

    memory: what was replaced by what, filled here; the same one for a whole model keeps tied parameters tied (a tie is
    one object under two names, and torch's to_empty makes two of it).
    """
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            if parameter.device == device or isinstance(parameter, DTensor):
                continue
            if parameter not in memory:
                memory[parameter] = nn.Parameter(torch.empty_like(parameter, device=device))
            setattr(part, name, memory[parameter])


def exchange_on(model: FSDPModule, *, last: bool) -> None:
    """Call before each micro-batch's forward. Replicas all-reduce once a step, after the last one.

    Gradients are still reduce-scattered inside a replica each time, so memory holds shards of them, never the whole.
    """
    model.set_requires_all_reduce(last)
    model.set_is_last_backward(last)
