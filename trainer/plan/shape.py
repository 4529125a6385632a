"""The numbers of a model that decide its memory and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from manifests.yaml_config import ConfigError
from trainer.attention import reaches
from trainer.blocks import blocks
from trainer.experts import Experts, experts_of
from trainer.model import UNMAKEABLE, unmakeable
from trainer.plan.optimizer_state import StateBytes, state_bytes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder of blocks. Counts are parameters, a tied one once; sizes are elements.

    active: parameters that a token passes, all of them but for experts not chosen. embedding: the table of input
    tokens; head: the matrix of output tokens, 0 where it is that table. largest_block: parameters of the largest block,
    which FSDP gathers as one; in_blocks: of all. windows: tokens seen at most, for each layer with such a bound.
    state: of an optimizer, by its name.
    """

    num_parameters: int
    active: int
    embedding: int
    head: int
    largest_block: int
    in_blocks: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    state: Mapping[str, StateBytes]
    windows: tuple[int, ...] = ()

    @property
    def matrix_parameters(self) -> int:
        """Those that multiply each token: all it passes but an embedding that is only looked up. Norms are in."""
        return self.active - (self.embedding if self.head else 0)

    @property
    def root_parameters(self) -> int:
        """Those outside the blocks, which FSDP gathers as one group: embedding, last norm, head."""
        return self.num_parameters - self.in_blocks

    def flops_per_token(self, seq_len: int) -> float:
        """Forward and backward of one token, nothing recomputed: 6 a matrix parameter, and attention.

        Attention: 2 products x 2 FLOPs x 3 (backward costs two forwards) x heads x head_dim x tokens seen, which are
        seq_len / 2 on average, the half that is causal, and with a window w < seq_len, w - w^2 / (2 seq_len). PaLM's
        formula counts the whole square; this one gives the lower MFU of the two.
        """
        seen = (self.num_layers - len(self.windows)) * seq_len / 2
        for window in self.windows:
            near = min(window, seq_len)
            seen += near - near * near / (2 * seq_len)
        return 6.0 * self.matrix_parameters + 12.0 * self.num_heads * self.head_dim * seen


def shape_of(model: PreTrainedModel) -> Shape:
    """The shape of a model, on any device, meta included. Raises ConfigError where its experts cannot be told."""
    config = model.config
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers annotates a part
    tied = head is None or head.weight is embedding.weight
    experts = experts_of(config)
    if experts is None and any(parameter.ndim == 3 for parameter in model.parameters()):
        raise ConfigError("model", f"how many experts of a {config.model_type} a token passes is not known here")
    found = blocks(model)
    largest = max(found, key=_count, default=None)
    return Shape(
        num_parameters=_count(model),
        active=_count(model) if experts is None else experts.active(model),
        embedding=embedding.weight.numel(),
        head=0 if tied else head.weight.numel(),
        largest_block=0 if largest is None else _count(largest),
        in_blocks=sum(_count(block) for block in found),
        num_layers=int(config.num_hidden_layers),
        hidden_size=hidden,
        intermediate_size=_intermediate_size(config, hidden, largest, experts),
        num_heads=heads,
        num_kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=_head_dim(config, hidden // heads),
        vocab_size=int(config.vocab_size),
        state=state_bytes(model.parameters()),
        windows=_windows(config),
    )


def _intermediate_size(config: Any, hidden: int, block: nn.Module | None, experts: Experts | None) -> int:
    """Of the matrices a token passes between attention layers. With experts, as of one gated MLP of as many."""
    if experts is not None and block is not None and any(experts.holds(parameter) for parameter in block.parameters()):
        attention = sum(_count(part) for name, part in block.named_children() if "attn" in name or "attention" in name)
        return (experts.active(block) - attention) // (3 * hidden)
    given = getattr(config, "intermediate_size", None) or 4 * hidden
    return int(max(given) if isinstance(given, (list, tuple)) else given)


def _head_dim(config: Any, default: int) -> int:
    """Where keys and values differ in size (DeepSeek's latent attention), the mean: it costs one product of each."""
    if getattr(config, "qk_nope_head_dim", None):
        return int(config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim) // 2
    return int(getattr(config, "head_dim", None) or default)


def _windows(config: Any) -> tuple[int, ...]:
    bounds = {kind: reach.window or reach.chunk for kind, reach in reaches(config).items()}
    kinds = getattr(config, "layer_types", None) or list(bounds) * int(config.num_hidden_layers)
    return tuple(bound for kind in kinds if (bound := bounds[kind]) is not None)


def shape_of_config(config: PretrainedConfig) -> Shape:
    """The shape of the model that `config` describes; nothing is allocated. Raises ConfigError where there is none."""
    make: Any = AutoModelForCausalLM.from_config  # transformers leaves it unannotated
    try:
        with torch.device("meta"), no_init_weights():
            model: PreTrainedModel = make(config)
        model.tie_weights()
    except UNMAKEABLE as error:
        raise unmakeable(config, error) from error
    return shape_of(model)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
