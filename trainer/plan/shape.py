"""The numbers of a model that decide its memory and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from trainer.blocks import blocks
from trainer.plan.optimizer_state import StateBytes, state_bytes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder of equal blocks. Counts are parameters, a tied one once; sizes are elements.

    embedding: the table of input tokens; head: the matrix of output tokens, 0 where it is that table. largest_block:
    parameters of the largest block, which FSDP gathers as one. state: by optimizer.
    """

    num_parameters: int
    embedding: int
    head: int
    largest_block: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    state: Mapping[str, StateBytes]

    @property
    def matrix_parameters(self) -> int:
        """Those that multiply each token: all but an embedding that is only looked up. Norms, a trifle, are in."""
        return self.num_parameters - (self.embedding if self.head else 0)

    @property
    def root_parameters(self) -> int:
        """Those outside the blocks, which FSDP gathers as one group: embedding, last norm, head."""
        return self.num_parameters - self.num_layers * self.largest_block

    def flops_per_token(self, seq_len: int) -> float:
        """Forward and backward of one token, nothing recomputed: 6 a matrix parameter, and attention.

        Attention: 2 products x 2 FLOPs x 3 (backward costs two forwards) x heads x head_dim x seq_len / 2, the half
        that is causal. PaLM's formula counts the whole square; this one gives the lower MFU of the two.
        """
        attention = 6 * self.num_layers * self.num_heads * self.head_dim * seq_len
        return 6.0 * self.matrix_parameters + attention


def shape_of(model: PreTrainedModel) -> Shape:
    """The shape of a model, on any device, meta included."""
    config = model.config
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers annotates a part
    tied = head is None or head.weight is embedding.weight
    return Shape(
        num_parameters=_count(model),
        embedding=embedding.weight.numel(),
        head=0 if tied else head.weight.numel(),
        largest_block=max((_count(block) for block in blocks(model)), default=0),
        num_layers=int(config.num_hidden_layers),
        hidden_size=hidden,
        intermediate_size=int(getattr(config, "intermediate_size", 4 * hidden)),
        num_heads=heads,
        num_kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or hidden // heads),
        vocab_size=int(config.vocab_size),
        state=state_bytes(model.parameters()),
    )


def shape_of_config(config: PretrainedConfig) -> Shape:
    """The shape of the model that `config` describes; nothing is allocated."""
    make: Any = AutoModelForCausalLM.from_config  # transformers leaves it unannotated
    with torch.device("meta"), no_init_weights():
        model: PreTrainedModel = make(config)
    model.tie_weights()
    return shape_of(model)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
