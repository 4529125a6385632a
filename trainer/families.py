"""Whether an architecture can be trained here, and how: found out on a small copy of it before anything large is made.

No list of families says so. The copy has the config's layers, one of each sort, and few and narrow matrices, all drawn
at random, so that whatever its code does shows in its logits. On CPU, in a second or so, it answers:

    documents    does a document in the middle of a row get the logits it has alone, as transformers' own eager
                 attention computes them? Wrong positions, windows or masks, layers that remember: none passes.
    attention    the first of the implementations asked for of which that is true
    head         are the logits the last hidden states times the head, and nothing more? (cross_entropy.py)
    files        does transformers read what it writes of the model as the same model?
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from manifests.yaml_config import ConfigError
from trainer.attention import Attention
from trainer.experts import experts_of
from trainer.model import ModelPlan, build_model, in_a_line, logits_of
from trainer.parallel import materialize
from trainer.router_loss import asks_for_balance
from trainer.small_copy import small_copies
from trainer.weights import quiet_transformers

# Lengths of the documents in the row that is tried; the second and third are looked at.
_LENGTHS = (9, 13, 10)
# Of the largest logit. Rounding of fp32 over another length of row is some 1e-6; a wrong mask or position is 0.1 to 1.
_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Family:
    """What was found. plain_head: the logits are hidden states times the head. passed_over: why not the attention that
    would have come first, where it was not taken.
    """

    attention: Attention
    plain_head: bool
    passed_over: str | None = None


def try_family(plan: ModelPlan, choices: Sequence[Attention], device: torch.device) -> Family:
    """Raises ConfigError, one line, where none of `choices` keeps documents apart or files could not be read again.

    device: that of the training, where an attention is tried that does not run on CPU (flex with sinks).
    """
    refusals: list[ConfigError] = []
    places = [torch.device("cpu"), *([device] if device.type != "cpu" else [])]
    for attention in choices:
        try:
            with quiet_transformers(), warnings.catch_warnings(action="ignore"):  # flex: that it is not compiled
                found = _try(plan, attention, places)
        except ConfigError as refusal:
            refusals.append(refusal)
        else:
            return replace(found, passed_over=f"{choices[0]}: {refusals[0]}" if refusals else None)
    raise refusals[-1]


def _try(plan: ModelPlan, attention: Attention, places: Sequence[torch.device]) -> Family:
    family = plan.config.model_type
    failure: Exception | None = None
    for place, config in itertools.product(places, small_copies(plan.config)):
        small = replace(plan, config=config, weights=None)
        try:
            model, reference = _filled(small, attention), _filled(small, "eager")
            model.to(place)  # type: ignore[arg-type]  # transformers' wrapper hides the type of its first argument
            packed, alone = _packed_and_alone(model, reference)
        except (
            ValueError,
            TypeError,
            KeyError,
            NotImplementedError,
            AttributeError,
            RuntimeError,
            IndexError,
        ) as error:
            failure = error
            continue
        for before, after in zip(packed, alone, strict=True):
            off = float((before.cpu() - after).abs().max() / after.abs().max())
            if not off <= _TOLERANCE:  # not ">": NaN fails too
                raise ConfigError(
                    "model",
                    f"{family} with {attention} attention gives a document in a packed row other logits than it has"
                    f" alone (off by {off:.1g} of the largest): documents would see each other, or get wrong"
                    " positions. Give another family",
                )
        _check_files(reference, family)
        _check_router(reference, family)
        return Family(attention=attention, plain_head=_has_plain_head(reference))
    assert failure is not None
    if isinstance(failure, ConfigError):  # of model.make_model: a line of its own
        raise failure
    raise ConfigError(
        "model",
        f"{family} cannot be trained on packed documents: transformers' code for it fails on them"
        f" ({type(failure).__name__}: {in_a_line(failure)}). Give another family",
    ) from failure


def _filled(plan: ModelPlan, attention: Attention) -> PreTrainedModel:
    """Every parameter drawn, biases and norms too: what is 0 or 1 would hide what the code does with it."""
    model = build_model(plan, attention=attention)
    materialize(model, torch.device("cpu"), {})
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=draw)
            # Matrices keep the size of what goes through them, or add a little: norms take it back. Vectors, scales
            # and biases, are near 1 and all different.
            parameter.copy_(drawn * 1.5 * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 1.0 + 0.2 * drawn)
    return model.eval()  # type: ignore[no-untyped-call]  # transformers annotates a part


@torch.no_grad()
def _packed_and_alone(model: PreTrainedModel, reference: PreTrainedModel) -> tuple[list[Any], list[Any]]:
    """Logits of each document but the first, from a row of all and by itself; (length, vocab) each."""
    vocab, seq_len = model.config.vocab_size, sum(_LENGTHS)
    ids = torch.randint(0, vocab, (1, seq_len), generator=torch.Generator().manual_seed(1))
    batch = {
        "input_ids": ids,
        "position_ids": torch.cat([torch.arange(length) for length in _LENGTHS])[None],
        "document_ids": torch.repeat_interleave(torch.tensor(_LENGTHS))[None],
    }
    batch = {name: column.to(model.device) for name, column in batch.items()}
    # Flex attention compiles itself; a machine that trains on CUDA may have no compiler for CPUs.
    with torch.compiler.set_stance("force_eager"):
        packed = torch.split(logits_of(model, batch)[0], list(_LENGTHS))[1:]
        logits_of(model.train(), batch)  # for what only training refuses: flex has no dropout
    documents = torch.split(ids, list(_LENGTHS), dim=1)[1:]
    return list(packed), [reference(input_ids=one, use_cache=False).logits[0] for one in documents]


@torch.no_grad()
def _has_plain_head(model: PreTrainedModel) -> bool:
    ids = torch.arange(8)[None] % model.config.vocab_size
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    hidden = getattr(model.base_model(input_ids=ids, use_cache=False), "last_hidden_state", None)
    if head is None or hidden is None or hidden.shape[-1] != head.weight.shape[-1]:
        return False
    logits = model(input_ids=ids, use_cache=False).logits
    return torch.allclose(hidden @ head.weight.T, logits, rtol=1e-4, atol=1e-4 * float(logits.abs().max()))


def _check_files(model: PreTrainedModel, family: str) -> None:
    state = model.state_dict()
    try:
        files = revert_weight_conversion(model, dict(state))
        load: Any = type(model).from_pretrained
        again = load(None, config=model.config, state_dict=files, attn_implementation="eager").state_dict()
    except (ValueError, RuntimeError, KeyError) as error:
        raise ConfigError("model", f"files of a {family} cannot be read again: {in_a_line(error)}") from error
    changed = sorted(name for name, value in state.items() if not torch.equal(value, again[name]))
    if changed:
        raise ConfigError("model", f"files of a {family} do not give {changed[0]} back; an export would be lost")


@torch.no_grad()
def _check_router(model: PreTrainedModel, family: str) -> None:
    if asks_for_balance(model.config):
        answer = model.base_model(input_ids=torch.arange(8)[None], use_cache=False, output_router_logits=True)
        if not getattr(answer, "router_logits", None) or experts_of(model.config) is None:
            raise ConfigError(
                "model",
                f"config asks for a router's loss (output_router_logits) and transformers' {family} gives no logits of"
                " its router for it; set output_router_logits to false",
            )
