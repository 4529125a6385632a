"""The trained model as one Hugging Face directory that `transformers` loads with equal logits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from manifests import storage
from manifests.manifest import Dataset
from manifests.yaml_config import ConfigError
from trainer.model import ModelPlan, skeleton
from trainer.parallel import Ranks

# In each exported folder: what it was trained on, and the mark that it is ours to replace.
_ORIGIN = "shardmill.json"


def check_target(target: Path, where: str) -> None:
    """Raises ConfigError under the name `where` if `target`, whose place an export takes, holds anything else."""
    is_ours = (target / _ORIGIN).is_file()
    is_empty = target.is_dir() and not any(target.iterdir())
    if target.exists() and not is_ours and not is_empty:
        raise ConfigError(
            where, f"{target} is there and is no model exported by Shardmill, which would replace it; give another"
        )


def export(model: nn.Module, plan: ModelPlan, dataset: Dataset, target: Path, ranks: Ranks) -> None:
    """Collective. Writes `target` (write_model) from sharded weights. Raises RankError on all ranks where that fails.

    Gathers the full weights in rank 0's host memory: 4 bytes a parameter.
    """
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    ranks.together(lambda: write_model(weights, plan, dataset, target) if ranks.is_first else None)


def write_model(weights: dict[str, Any], plan: ModelPlan, dataset: Dataset, target: Path) -> None:
    """`target` whole or not at all: fp32 safetensors, config, tokenizer, and where it came from.

    weights: by the model's names, whole tensors in host memory.
    """
    unfinished = target.with_name(target.name + ".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _write(weights, plan, dataset, unfinished)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)  # on a full disk room is what is needed
        raise
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)


def _write(weights: dict[str, Any], plan: ModelPlan, dataset: Dataset, folder: Path) -> None:
    # A module without memory gives the names, the ties and the config; the weights come from the shards.
    model = skeleton(plan)
    # assign: the gathered tensors themselves become the parameters, so memory holds them once.
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # of a full disk, which it does not tell from others
        raise OSError(f"cannot write the weights into {folder}: {error}") from error
    manifest = dataset.manifest
    tokenizer = storage.read_bytes(dataset.resolve(manifest.tokenizer.path))
    (folder / "tokenizer.json").write_bytes(tokenizer)
    settings = _tokenizer_settings(json.loads(tokenizer), manifest.tokenizer.eos_id, manifest.tokenizer.bos_id)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")
    origin = {"name": manifest.name, "version": manifest.version, "digest": manifest.digest}
    (folder / _ORIGIN).write_text(json.dumps({"trained_on": origin}, indent=2) + "\n", "utf-8")


def _tokenizer_settings(tokenizer: dict[str, Any], eos_id: int, bos_id: int | None) -> dict[str, Any]:
    """tokenizer_config.json, which names the special tokens that tokenizer.json only numbers."""
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, token_id in (("eos_token", eos_id), ("bos_token", bos_id)):
        content = [token["content"] for token in tokenizer.get("added_tokens", ()) if token["id"] == token_id]
        if content:
            settings[name] = content[0]
    return settings
