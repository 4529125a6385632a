"""Configs of the same architecture, small: every sort of layer once, narrow matrices, short windows, few tokens."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.initialization import no_init_weights

from trainer.blocks import blocks

_VOCAB = 96
_WIDTH = 48
_EXPERTS = 8
# Below every document of families._LENGTHS, so that a window or a chunk shows.
_LOOK_BACK = 8
_INNER = re.compile(r"intermediate|ffn_(hidden_)?(dim|size)|mlp_size|n_inner")
_NUM_EXPERTS = re.compile(r"^(num|n)_.*experts$")


def small_copies(config: PretrainedConfig) -> Iterator[PretrainedConfig]:
    """From the smallest to the one that changes least: families tie some of the sizes to each other."""
    for narrow, few_experts in ((True, True), (True, False), (False, True), (False, False)):
        small = copy.deepcopy(config)
        _fewer_tokens(small)
        _fewer_layers(small)
        _look_back_less(small)
        if few_experts:
            _at_most(small, _NUM_EXPERTS, _EXPERTS)
        if narrow:
            _at_most(small, _INNER, _WIDTH)
            _fewer_heads(small)
        yield small


def _fewer_tokens(config: Any) -> None:
    config.vocab_size = min(config.vocab_size, _VOCAB)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(config, name, None)


def _fewer_layers(config: Any) -> None:
    """The first layers, as many as hold each sort once, and two at least: what passes between layers must show."""
    total = int(config.num_hidden_layers)
    sorts = _sorts(config, total)
    keep = max(2, 1 + max(sorts.index(sort) for sort in set(sorts)))
    if keep >= total:
        return
    for name, value in vars(config).items():
        if isinstance(value, (list, tuple)) and len(value) == total:
            setattr(config, name, type(value)(value[:keep]))
    config.num_hidden_layers = keep


def _sorts(config: Any, total: int) -> list[Any]:
    """For each layer, what makes it differ from others: its kind of attention, its parameters' names and shapes."""
    make: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"), no_init_weights():
        found = blocks(make(config, attn_implementation="eager"))
    lists = [value for value in vars(config).values() if isinstance(value, (list, tuple)) and len(value) == total]
    # A list of all different values (the layers' own numbers) tells no sort from another.
    telling = [value for value in lists if len({repr(one) for one in value}) < total]
    per_layer = [[value[at] for value in telling] for at in range(total)]
    if len(found) != total:
        return [repr(extra) for extra in per_layer]
    shapes = ([(name, tuple(part.shape)) for name, part in block.named_parameters()] for block in found)
    return [repr((extra, shape)) for extra, shape in zip(per_layer, shapes, strict=True)]


def _look_back_less(config: Any) -> None:
    for name in ("sliding_window", "attention_chunk_size"):
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(getattr(config, name), _LOOK_BACK))


def _at_most(config: Any, names: re.Pattern[str], largest: int) -> None:
    for name, value in vars(config).items():
        if names.search(name) and isinstance(value, int) and value > largest:
            setattr(config, name, largest)


def _fewer_heads(config: Any) -> None:
    """Four heads of the same size, or as few as groups of them (keys shared by several) need."""
    heads, hidden = int(config.num_attention_heads), int(config.hidden_size)
    size = hidden // heads
    groups = getattr(config, "num_key_value_heads", None)
    if heads <= 4:
        return
    config.num_attention_heads = 4
    config.hidden_size = 4 * size
    if isinstance(groups, int):
        config.num_key_value_heads = 4 if groups == heads else min(groups, 2)
