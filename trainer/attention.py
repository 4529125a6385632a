"""Who may look at whom: the masks that keep packed documents apart, for each kind of layer a model has.

transformers derives a mask from position ids only where no mask is given and drops it in other cases
(transformers PR#46634), so we build our own and pass it 4-D, which every model uses as it stands.

    sdpa   a mask of booleans: rows * seq_len^2 bytes, 16 MiB a row at 4,096 tokens, and every pair is computed
    flex   blocks of 128 x 128 that hold nothing to see are skipped: time and memory go by the documents' lengths
    eager  a mask of numbers, and all scores of all heads: for what the others cannot do (capped scores, sinks)

    layers                what a token sees of its own document, itself and before it
    (full_)attention      all
    sliding_attention     the last `sliding_window` tokens, itself included
    chunked_attention     those of its own chunk of `attention_chunk_size`, counted from the document's start
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import PretrainedConfig

from manifests.yaml_config import ConfigError

Attention = Literal["sdpa", "flex", "eager"]
Mask = torch.Tensor | BlockMask
# What transformers calls them.
IMPLEMENTATIONS: dict[Attention, str] = {"sdpa": "sdpa", "flex": "flex_attention", "eager": "eager"}
# What the mask of numbers adds where nothing may be seen; bf16 and fp32 can both say it.
NEVER = torch.finfo(torch.bfloat16).min


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far a layer looks back inside a document, in tokens; None: no bound."""

    window: int | None = None
    chunk: int | None = None

    def within(self, seq_len: int) -> Reach:
        """The same, without bounds that no document of seq_len tokens meets."""
        window, chunk = self.window, self.chunk
        return Reach(
            window=window if window is not None and window < seq_len else None,
            chunk=chunk if chunk is not None and chunk < seq_len else None,
        )


EVERYTHING = Reach()


def choices(asked: Literal["auto", "sdpa", "flex", "eager"], device: torch.device) -> list[Attention]:
    """The implementations to try, the best first. On CPU flex has no backward pass."""
    if asked != "auto":
        return [asked]
    return ["flex", "sdpa", "eager"] if device.type == "cuda" else ["sdpa", "eager"]


def reaches(config: PretrainedConfig) -> dict[str, Reach]:
    """Kind of layer -> how far it looks. Raises ConfigError for kinds that no mask reaches."""
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    known = {
        "full_attention": Reach(),
        "attention": Reach(),
        "sliding_attention": Reach(window=window),
        "chunked_attention": Reach(chunk=chunk),
    }
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))
    if not kinds:
        kinds = ["full_attention" if window is None else "sliding_attention"]
    other = [kind for kind in kinds if kind not in known]
    if other:
        raise ConfigError(
            "model",
            f"{config.model_type} has layers of kind {', '.join(other)}, which no document mask is known for;"
            " give a model of full, sliding or chunked attention",
        )
    return {kind: known[kind] for kind in kinds}


def attention_mask(
    config: PretrainedConfig, document_ids: torch.Tensor, position_ids: torch.Tensor
) -> Mask | dict[str, Mask]:
    """The mask of config's implementation and layers for (rows, seq_len) document and position ids.

    A model with several kinds of layers takes one mask for each, by name.
    """
    kind, seq_len = config._attn_implementation, document_ids.shape[1]
    makers: dict[str, Callable[..., Mask]] = {
        "sdpa": document_mask,
        "flex_attention": document_block_mask,
        "eager": _mask_of_numbers,
    }
    make = makers[str(kind)]
    by_reach: dict[Reach, Mask] = {}
    masks = {}
    for name, reach in reaches(config).items():
        near = reach.within(seq_len)
        if near not in by_reach:
            by_reach[near] = make(document_ids, position_ids, near)
        masks[name] = by_reach[near]
    return masks if len(masks) > 1 else next(iter(masks.values()))


def document_mask(document_ids: torch.Tensor, position_ids: torch.Tensor, reach: Reach = EVERYTHING) -> torch.Tensor:
    """(rows, seq_len) ids -> (rows, 1, seq_len, seq_len) bool; [r, 0, q, k] says that q may look at k.

    A token sees itself and what precedes it in its own document. Padding (id -1) sees padding: a query that sees
    nothing at all would make softmax divide by zero.
    """
    rows, seq_len = document_ids.shape
    visible = _rule(document_ids, position_ids, reach)
    places = torch.arange(seq_len, device=document_ids.device)
    row = torch.arange(rows, device=document_ids.device)[:, None, None]
    return visible(row, None, places[:, None], places[None, :])[:, None]


def document_block_mask(document_ids: torch.Tensor, position_ids: torch.Tensor, reach: Reach = EVERYTHING) -> BlockMask:
    """The same rule as flex attention takes it."""
    rows, seq_len = document_ids.shape
    # Uncompiled, the rule is evaluated for every pair at once: fine on CPU, where this is for tests.
    compiled = document_ids.device.type == "cuda"
    rule = _rule(document_ids, position_ids, reach)
    return create_block_mask(rule, rows, None, seq_len, seq_len, device=document_ids.device, _compile=compiled)


def _mask_of_numbers(document_ids: torch.Tensor, position_ids: torch.Tensor, reach: Reach) -> torch.Tensor:
    mask = document_mask(document_ids, position_ids, reach)
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, NEVER)


def _rule(document_ids: torch.Tensor, position_ids: torch.Tensor, reach: Reach) -> Callable[..., torch.Tensor]:
    """Whether `query` may look at `key` in `row`, for numbers and for tensors of them."""

    def visible(row: Any, head: Any, query: Any, key: Any) -> Any:  # noqa: ARG001 - the signature flex attention calls
        seen = (query >= key) & (document_ids[row, query] == document_ids[row, key])
        if reach.window is not None:
            seen = seen & (query - key < reach.window)
        if reach.chunk is not None:
            seen = seen & (position_ids[row, query] // reach.chunk == position_ids[row, key] // reach.chunk)
        return seen

    return visible
