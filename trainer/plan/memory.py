"""Bytes one GPU must hold, term by term, for each way to spread the training state.

    scheme       parameters   gradients   optimizer      this trainer: mesh.replicate x mesh.shard
    replicated   2 N          2 N         4 N + S        one copy a GPU (DDP)         all x 1
    zero1        2 N          2 N         (4 N + S) / W  not offered: zero3 costs the same traffic here
    zero2        2 N          2 N / W     (4 N + S) / W  not offered
    hsdp         4 N / g      4 N / g     S / g          a copy a node                nodes x g
    fsdp         4 N / W      4 N / W     S / W          one copy in all (ZeRO-3)     1 x all
    offload      0            0           0              hsdp with shards in host memory, mesh.offload

N parameters, W GPUs, g GPUs a node, S the optimizer's own state: 8 N for AdamW (16 bytes a parameter in all), 4 N for
Lion, next to nothing for Adafactor, of which a part is whole on every GPU (optimizer_state.py). Classic schemes keep
16-bit parameters and gradients with fp32 masters beside that state (Rajbhandari et al. 2020, arXiv:1910.02054); FSDP2
keeps fp32 shards and makes 16-bit copies of one group at a time: as many bytes. Replicated is counted the classic way.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from trainer.plan.cluster import Cluster, Cut
from trainer.plan.shape import Shape

SCHEMES = ("replicated", "zero1", "zero2", "hsdp", "fsdp", "offload")
OFFERED = ("replicated", "hsdp", "fsdp", "offload")
CHUNK_LOGITS = 2**26  # trainer.cross_entropy: logits of a chunk


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one GPU. gathered: groups made whole for a moment, their gradients and the buffer they are reduced in.

    logits: of the loss, at its peak. host: not on the GPU, a GPU's share of its node's memory.
    """

    parameters: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    logits: float
    host: float = 0.0

    @property
    def total(self) -> float:
        """On the GPU. The loss and the gathering of blocks peak at different moments; the larger one counts."""
        state = self.parameters + self.gradients + self.optimizer
        return state + self.activations + max(self.gathered, self.logits)

    def items(self) -> list[tuple[str, float]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def memory_of(scheme: str, shape: Shape, cluster: Cluster, cut: Cut) -> Memory:
    """One of SCHEMES."""
    n, w, g, b = shape.num_parameters, cluster.num_gpus, cluster.gpus_per_node, cut.compute_bytes
    state = shape.state[cut.optimizer]
    own = {
        "replicated": (2 * n, 2 * n, 4 * n + state.total),
        "zero1": (2 * n, 2 * n, 4 * n / w + state.on_one_of(w)),
        "zero2": (2 * n, 2 * n / w, 4 * n / w + state.on_one_of(w)),
        "hsdp": (4 * n / g, 4 * n / g, state.on_one_of(g)),
        "fsdp": (4 * n / w, 4 * n / w, state.on_one_of(w)),
        "offload": (0.0, 0.0, 0.0),
    }[scheme]
    parameters, gradients, optimizer = map(float, own)
    gathered = 0.0
    if scheme in ("hsdp", "fsdp", "offload"):
        # The group in use and the next one, the root's (kept through forward and backward), and on the way back a
        # group's gradients, first as computed, then in fp32 to be reduced.
        gathered = b * (shape.root_parameters + 3 * shape.largest_block) + 4.0 * shape.largest_block
    return Memory(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        gathered=gathered,
        activations=activation_bytes(shape, cut),
        logits=logit_bytes(shape, cut) + (b * shape.root_parameters if gathered else 0.0),
        host=8 * n / g + state.on_one_of(g) if scheme == "offload" else 0.0,
    )


def activation_bytes(shape: Shape, cut: Cut) -> float:
    """What backward needs of forward: what all blocks keep, and one block's made again where it is recomputed."""
    tokens = cut.micro_batch_tokens
    kept = block_activation_bytes(shape, cut.recompute, cut.compute_bytes)
    again = 0.0 if cut.recompute == "none" else block_activation_bytes(shape, "none", cut.compute_bytes)
    # Beside the blocks: the embedding's result, and the last norm's like one of a block's two.
    beside = (8 + cut.compute_bytes) * shape.hidden_size
    return tokens * (shape.num_layers * kept + again + beside)


def block_activation_bytes(shape: Shape, recompute: str, b: int) -> float:
    """Bytes a token that a Llama-shaped block keeps; h hidden, q and kv of all heads, f intermediate, b bytes a number.

    full       b h                                   the block's input
    selective  b (3 h + 2 q + 2 kv + 2 f)            input; q k v, attention, o; gate, up, down
    none       2 (4 + 2 b) h + b (2 q + 2 kv + 4 f)  two norms (fp32 input, result before and after the weight);
                                                     q k v turned, attention; gate, its silu, up, their product
    """
    h, f = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    log_sums = 4 * shape.num_heads  # of softmax, fp32
    if recompute == "full":
        return float(b * h)
    if recompute == "selective":
        return float(b * (3 * h + 2 * q + 2 * kv + 2 * f) + log_sums)
    return float(2 * (4 + 2 * b) * h + b * (2 * q + 2 * kv + 4 * f) + log_sums)


def logit_bytes(shape: Shape, cut: Cut) -> float:
    """Of the loss at its peak. plain: logits, their fp32 copy, log-softmax, gradient. chunked: one chunk's logits twice
    in fp32 and once as computed, and the head's gradient in fp32 and as computed.
    """
    head = shape.vocab_size * shape.hidden_size
    if cut.cross_entropy == "plain":
        return float(cut.micro_batch_tokens * shape.vocab_size * (12 + cut.compute_bytes))
    logits = min(CHUNK_LOGITS, cut.micro_batch_tokens * shape.vocab_size)
    return float(logits * (8 + cut.compute_bytes) + head * (4 + cut.compute_bytes))


def fits(memory: Memory, cluster: Cluster) -> bool:
    return memory.total <= cluster.usable_bytes and memory.host * cluster.gpus_per_node <= cluster.host_bytes
