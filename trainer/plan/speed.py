"""Seconds of a step: its arithmetic, and what of the exchanges does not hide behind it."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.plan.cluster import Cluster, Cut
from trainer.plan.shape import Shape
from trainer.update_rules import OPTIMIZERS


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds. compute: arithmetic at the given rate. shard: gathers and reduce-scatters of all micro-batches.

    replica: the one all-reduce between copies. moves: of weights and gradients to host memory and back, and update: of
    the weights there, both under offload only.
    """

    compute: float
    shard: float
    replica: float
    moves: float
    update: float
    last_backward: float

    @property
    def total(self) -> float:
        """Shards travel while blocks compute. Copies are reduced behind the last backward pass; what is left shows."""
        hidden = max(self.compute, self.shard + self.moves)
        return hidden + max(0.0, self.replica - self.last_backward) + self.update

    @property
    def efficiency(self) -> float:
        """Of the arithmetic alone: E = T1 / (N x TN) where one GPU could hold it all."""
        return self.compute / self.total


def step_time(scheme: str, shape: Shape, cluster: Cluster, cut: Cut, *, tokens_per_gpu_s: float) -> StepTime:
    """tokens_per_gpu_s: what one GPU gets through when nothing is exchanged, recomputation included.

    Worked example: 7e9 parameters, hsdp on 8 x 8, 50 GB/s a node: 2 x 7/8 x 4 x 7e9 = 49 GB a node and step, 0.98 s.
    """
    n, b = shape.num_parameters, cut.compute_bytes
    passes = cut.accumulation(cluster.num_gpus)
    compute = passes * cut.micro_batch_tokens / tokens_per_gpu_s
    inside, nodes = cluster.gpus_per_node, cluster.num_nodes
    # Gathered forward and backward as computed, gradients scattered in fp32, each micro-batch.
    a_pass = (2 * b + 4) * n
    shard = moves = update = 0.0
    if scheme in ("hsdp", "offload"):
        shard = passes * a_pass * (inside - 1) / inside / cluster.gpu_link
    elif scheme == "fsdp":
        # Rings that cross nodes move as much through a node's network cards as each GPU receives.
        link = cluster.node_link if nodes > 1 else cluster.gpu_link
        shard = passes * a_pass * (cluster.num_gpus - 1) / cluster.num_gpus / link
    if scheme == "offload":
        # Shards up in each of two gathers and gradients down, each micro-batch, in fp32.
        moves = passes * 12 * n / inside / cluster.host_link
        # A node's processors update its copy.
        update = OPTIMIZERS[cut.optimizer].traffic_bytes * n / cluster.host_memory
    if scheme in ("zero1", "zero2", "replicated"):
        # 16-bit gradients reduced over all GPUs, and (ZeRO) as much again to spread the new parameters.
        link = cluster.node_link if nodes > 1 else cluster.gpu_link
        replica = 2 * (cluster.num_gpus - 1) / cluster.num_gpus * 2 * n / link
    else:
        copies = nodes if scheme != "fsdp" else 1
        replica = 2 * (copies - 1) / copies * 4 * n / cluster.node_link
    return StepTime(
        compute=compute,
        shard=shard,
        replica=replica,
        moves=moves,
        update=update,
        last_backward=2 / 3 * compute / passes,
    )


def tokens_per_gpu_s(shape: Shape, cut: Cut, *, peak_flops: float, mfu: float) -> float:
    """Tokens a second at a share of the peak; full recomputation makes a forward pass more: 4/3 of the arithmetic."""
    extra = 4 / 3 if cut.recompute == "full" else 1.0
    return mfu * peak_flops / shape.flops_per_token(cut.seq_len) / extra
