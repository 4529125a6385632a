"""The mesh of a run that asks for none: a copy a node where one fits, whose gathers then never leave the node."""

from __future__ import annotations

from trainer.plan.cluster import GIB, Cluster, Cut
from trainer.plan.memory import memory_of
from trainer.plan.shape import Shape


def choose_replicas(shape: Shape, cluster: Cluster, cut: Cut) -> tuple[int, str]:
    """Copies of the model, and the reason in words: one a node if the planner finds room for it, else one in all."""
    if cluster.num_nodes == 1:
        return 1, "one node"
    needed = memory_of("hsdp", shape, cluster, cut).total
    words = f"a copy a node takes {needed / GIB:.1f} of {cluster.usable_bytes / GIB:.1f} GiB a GPU"
    if needed <= cluster.usable_bytes:
        return cluster.num_nodes, words
    return 1, f"{words}, so one copy is split over all"
