"""The model: a Hugging Face directory, or random weights from a config, or a small Llama for a first try."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils.logging import disable_progress_bar

from manifests.manifest import Manifest
from manifests.yaml_config import ConfigError
from trainer.attention import IMPLEMENTATIONS, Attention, attention_mask, reaches
from trainer.config import ModelConfig
from trainer.cross_entropy import linear_loss_sum
from trainer.loss import token_loss_sum
from trainer.parallel import materialize
from trainer.router_loss import RouterLoss, asks_for_balance
from trainer.weights import draw_weights, read_weights

# Small enough that a laptop makes several steps a second, large enough that the loss falls visibly within minutes.
SMALL_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


# What transformers raises over keys of a config that do not go together.
UNMAKEABLE = (
    *(ValueError, TypeError, AttributeError, AssertionError, ImportError),
    *(LookupError, RuntimeError, ArithmeticError),
)

# Bars redraw a line; in the log of a cluster job each redrawing is a line of its own.
disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers annotates a part of its functions


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """What will be built. `words` is the line a person reads."""

    config: PretrainedConfig
    weights: Path | None
    words: str

    @property
    def architecture(self) -> dict[str, Any]:
        """The config's keys, defaults filled in; where it was read from and by which transformers left out."""
        keys: dict[str, Any] = json.loads(self.config.to_json_string(use_diff=False))
        return {name: value for name, value in keys.items() if not name.startswith(("_", "transformers_version"))}


def plan_model(config: ModelConfig, manifest: Manifest) -> ModelPlan:
    """The architecture for this data set. Raises ConfigError where model and data set do not fit."""
    vocab_size, seq_len = manifest.tokenizer.vocab_size, manifest.example.seq_len
    if config.path is not None:
        weights: Path | None = Path(config.path)
        architecture = read_architecture(Path(config.path), "model.path")
        words = f"weights from {config.path}"
    else:
        weights = None
        if isinstance(config.config, str):
            architecture = read_architecture(Path(config.config), "model.config")
            words = f"random weights, architecture from {config.config}"
        else:
            given = SMALL_LLAMA if config.config is None else config.config
            defaults = {"model_type": "llama", "vocab_size": vocab_size, "max_position_embeddings": seq_len}
            architecture = _from_keys({**defaults, **given})
            words = (
                f"random weights, {given.get('model_type', 'llama')} of model.config"
                if config.config is not None
                else f"random weights, a small Llama-shaped model for this tokenizer of {vocab_size:,} tokens"
                " (give model.path to fine-tune a real one)"
            )
    _check(architecture, vocab_size, seq_len)
    architecture.eos_token_id = manifest.tokenizer.eos_id
    architecture.bos_token_id = manifest.tokenizer.bos_id
    return ModelPlan(config=architecture, weights=weights, words=words)


def read_architecture(path: Path, where: str) -> PretrainedConfig:
    """The config of a Hugging Face directory or a config.json. Raises ConfigError under the name `where`."""
    if not path.exists():
        raise ConfigError(where, f"{path} does not exist; give a Hugging Face directory or a config.json")
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"), object_hook=special_float)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(where, f"cannot read {file}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(where, f"{file} holds no object of keys; give the config.json of a Hugging Face model")
    return _from_keys(values)


def special_float(keys: dict[str, Any]) -> Any:
    """transformers writes what JSON lacks as {"__float__": "Infinity"}."""
    return float(keys["__float__"]) if keys.keys() == {"__float__"} else keys


def _from_keys(values: dict[str, Any]) -> PretrainedConfig:
    keys = dict(values)
    model_type = keys.pop("model_type", None)
    try:
        return AutoConfig.for_model(model_type, **keys)
    except (*UNMAKEABLE, StrictDataclassError) as error:
        raise ConfigError(
            "model.config", f"transformers refuses model_type {model_type!r}: {in_a_line(error)}"
        ) from error


def check_kind(config: PretrainedConfig) -> None:
    """Raises ConfigError where no family of this kind can be trained, whatever its code does."""
    if config.is_encoder_decoder:
        raise ConfigError("model", f"{config.model_type} is an encoder with a decoder; give a decoder-only model")
    inner = config.get_text_config()
    if inner is not config:
        raise ConfigError(
            "model",
            f"{config.model_type} is a language model ({inner.model_type}) among other parts, such as images; save that"
            " part alone with transformers and give its directory",
        )
    if getattr(config, "quantization_config", None) is not None:
        raise ConfigError(
            "model",
            "its weights are quantized (quantization_config); load it with transformers, dequantized, save that"
            " and give its directory",
        )
    reaches(config)


def _check(config: PretrainedConfig, vocab_size: int, seq_len: int) -> None:
    check_kind(config)
    if config.vocab_size < vocab_size:
        raise ConfigError(
            "model",
            f"its vocabulary has {config.vocab_size} entries and the manifest's tokenizer {vocab_size};"
            " build the data set with the model's own tokenizer",
        )
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and longest < seq_len:
        raise ConfigError(
            "model",
            f"it knows {longest} positions and the manifest's examples have {seq_len} tokens;"
            " build with example.seq_len at most that, or raise max_position_embeddings",
        )


def build_model(plan: ModelPlan, *, attention: Attention = "sdpa") -> PreTrainedModel:
    """The module, fp32, its parameters on the meta device: names, sizes and ties without memory. Buffers are real.

    shard_model or `materialize` gives the parameters memory, `fill` their values.
    """
    model = make_model(plan, attention=attention)
    materialize(model, torch.device("meta"), {})
    return model


def make_model(plan: ModelPlan, *, attention: Attention) -> PreTrainedModel:
    """What the architecture's constructor makes, fp32, on CPU: memory that it does not write is only reserved."""
    make: Any = AutoModelForCausalLM.from_config  # transformers leaves it unannotated
    try:
        with no_init_weights():
            model: PreTrainedModel = make(
                # transformers notes the implementation in the config, which models would otherwise share.
                copy.deepcopy(plan.config),
                dtype=torch.float32,
                attn_implementation=IMPLEMENTATIONS[attention],
            )
    except UNMAKEABLE as error:
        raise unmakeable(plan.config, error) from error
    # Skipping the values skips the tie as well.
    model.tie_weights()
    return model


def unmakeable(config: PretrainedConfig, error: Exception) -> ConfigError:
    return ConfigError("model", f"transformers makes no {config.model_type}: {in_a_line(error)}")


def skeleton(plan: ModelPlan) -> PreTrainedModel:
    """The module for its names, sizes and ties only: with eager attention, which every family has."""
    return build_model(plan, attention="eager")


def in_a_line(error: Exception) -> str:
    """Of a library's message, at most 200 characters: what fits into a line of ours."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def fill(model: PreTrainedModel, plan: ModelPlan, *, seed: int) -> list[str]:
    """Values for the parameters, sharded (collective) or plain: from plan.weights, or random ones by the seed.

    Returns the names of tensors in plan.weights that are left out (weights.read_weights).
    """
    if plan.weights is not None:
        return read_weights(model, skeleton(plan), plan.weights)
    draw_weights(model, skeleton(plan), make_model(plan, attention="eager"), seed=seed)
    return []


def whole_model(plan: ModelPlan, *, seed: int) -> PreTrainedModel:
    """The model on CPU in one process, filled; for those who need no ranks."""
    model = build_model(plan)
    materialize(model, torch.device("cpu"), {})
    fill(model, plan, seed=seed)
    return model


def num_parameters(model: nn.Module) -> int:
    """Parameters, a tied one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def use_cross_entropy(model: PreTrainedModel, kind: Literal["plain", "chunked"]) -> None:
    """Make `model(..., labels=labels)` return the sum of token losses (loss.py), computed as `kind` says.

    plain: all logits at once. chunked: cross_entropy.py. Inside the model's own forward, since FSDP holds the head's
    weights together only there. A router's own loss is added where a gradient is asked for (router_loss.py). Without
    labels the model answers as before.
    """
    answer: Callable[..., Any] = model.forward
    router_loss = RouterLoss(model) if asks_for_balance(model.config) else None

    def token_losses(labels: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        if kind == "plain":
            return token_loss_sum(answer(**inputs).logits, labels)
        head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        return linear_loss_sum(model.base_model(**inputs).last_hidden_state, head.weight, labels)

    def forward(*, labels: torch.Tensor | None = None, **inputs: Any) -> Any:
        if labels is None:
            return answer(**inputs)
        loss = token_losses(labels, inputs)
        return loss if router_loss is None else loss + router_loss(labels)

    model.forward = forward


def choose_cross_entropy(
    asked: Literal["auto", "plain", "chunked"], *, plain_head: bool
) -> Literal["plain", "chunked"]:
    """auto: chunked where the head is plain (families.Family); asked for elsewhere it is a ConfigError."""
    if asked == "chunked" and not plain_head:
        raise ConfigError(
            "cross_entropy",
            "chunked needs logits that are hidden states times the head, and this model scales, caps or shifts them;"
            " give plain or auto",
        )
    if asked == "auto":
        return "chunked" if plain_head else "plain"
    return asked


def loss_sum_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The sum of token losses of a loader batch on the model's device: float64, with gradient (use_cross_entropy)."""
    loss: torch.Tensor = model(**_inputs(model, batch), labels=batch["labels"])
    return loss


def logits_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(rows, seq_len, vocab) logits of a loader batch on the model's device; no token sees another document."""
    logits: torch.Tensor = model(**_inputs(model, batch)).logits
    return logits


def _inputs(model: nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    config: Any = model.config
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": attention_mask(config, batch["document_ids"], batch["position_ids"]),
        "position_ids": batch["position_ids"],
        "use_cache": False,
        # transformers would make a router's loss of them, from a mask that is not ours (router_loss.py).
        **({"output_router_logits": False} if asks_for_balance(config) else {}),
    }
