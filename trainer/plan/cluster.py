"""The question: machines, and how a run is cut over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GB = 1e9
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal nodes. Bandwidths are what a large exchange reaches, in bytes a second and one direction.

    usable_fraction: of a GPU's memory; the CUDA context, NCCL's buffers and fragmentation take the rest. gpu_link: of
    one GPU to its neighbours (NVLink). node_link: of all network cards of a node together. host_link: of one GPU to
    host memory. host_memory: of a node's memory to its processors.
    """

    num_nodes: int = 8
    gpus_per_node: int = 8
    gpu_bytes: float = 80 * GIB
    usable_fraction: float = 0.92
    host_bytes: float = 1024 * GIB
    gpu_link: float = 300 * GB
    node_link: float = 50 * GB
    host_link: float = 20 * GB
    host_memory: float = 300 * GB

    @property
    def num_gpus(self) -> int:
        return self.num_nodes * self.gpus_per_node

    @property
    def usable_bytes(self) -> float:
        return self.gpu_bytes * self.usable_fraction


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a step is made. seq_len in tokens; global_batch and micro_batch in examples, the latter on one GPU.

    compute_bytes: of a number in the forward pass: 2 (bf16, fp16) or 4 (fp32). optimizer: of update_rules.OPTIMIZERS.
    """

    seq_len: int = 4096
    global_batch: int = 1024
    micro_batch: int = 2
    recompute: Literal["none", "selective", "full"] = "selective"
    cross_entropy: Literal["plain", "chunked"] = "chunked"
    compute_bytes: int = 2
    optimizer: str = "adamw"

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch * self.seq_len

    @property
    def micro_batch_tokens(self) -> int:
        return self.micro_batch * self.seq_len

    def accumulation(self, num_gpus: int) -> int:
        """Passes a GPU makes a step; the last may hold filler rows."""
        return -(-self.global_batch // (num_gpus * self.micro_batch))
