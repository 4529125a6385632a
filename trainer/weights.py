"""Where parameters get their values: safetensors files, or random draws. No rank ever holds more than it must.

    read   each rank reads from the files only the rows that are its own: no full copy anywhere, nothing sent
    draw   rank 0 makes one module's parameters at a time and sends them; the others cut out their rows

Both fill plain parameters too, whole, which is how a single process gets a model to compare with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from manifests.canonical import derived_seed
from manifests.yaml_config import ConfigError

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


def read_weights(model: PreTrainedModel, twin: PreTrainedModel, folder: Path) -> None:
    """Fill `model` from a Hugging Face directory. Raises ConfigError where names or sizes do not fit it exactly.

    Stored precision is converted to the parameter's. A name may stand with or without the model's own prefix
    ("model."), as in files of a model saved without its head; a tied parameter under either of its names. `twin`: the
    same model, unsharded and without memory: FSDP renames the class, by which transformers finds its own renamings.
    """
    stored = _stored_names(folder)
    used = set()
    handles: dict[str, Any] = {}
    prefix = f"{model.base_model_prefix}."
    renamed = stored_names(twin)
    for names, parameter in _parameters(model):
        known = [*names, *(renamed[name] for name in names)]
        candidates = [candidate for name in known for candidate in (name, name.removeprefix(prefix))]
        found = [name for name in candidates if name in stored]
        if not found:
            raise ConfigError(
                "model.path",
                f"{folder} has no tensor {names[0]}; its config.json describes another model than its files hold",
            )
        used.update(found)
        file = stored[found[0]]
        if file not in handles:
            handles[file] = safe_open(folder / file, framework="pt")
        tensor = handles[file].get_slice(found[0])
        if tuple(tensor.get_shape()) != tuple(parameter.shape):
            raise ConfigError(
                "model.path",
                f"{found[0]} in {folder} is {list(tensor.get_shape())} and config.json asks for"
                f" {list(parameter.shape)}; give the files that belong to it",
            )
        rows = _own_rows(parameter)
        with torch.no_grad():
            _local(parameter).copy_(tensor[rows.start : rows.stop])
    left = sorted(name for name in stored.keys() - used if not name.endswith("rotary_emb.inv_freq"))
    if left:
        raise ConfigError(
            "model.path",
            f"{folder} holds {len(left)} tensors that config.json has no place for, the first {left[0]}; give the"
            " config.json that belongs to the files (quantized weights must be converted to 16 or 32 bits first)",
        )


def stored_names(model: PreTrainedModel) -> dict[str, str]:
    """Parameter name -> its name in files that transformers writes. Raises ConfigError where that is not one to one.

    transformers renames on saving what it calls otherwise by now (gpt_neox: lm_head -> embed_out); fused parameters it
    takes apart (mixtral: the experts), which cannot be read by rows: better refused before than after days of training.
    """
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        empty = torch.empty(parameter.shape, device="meta")
        stored: dict[str, torch.Tensor] = revert_weight_conversion(model, {name: empty})
        if [tuple(tensor.shape) for tensor in stored.values()] != [tuple(empty.shape)]:
            raise ConfigError(
                "model",
                f"files of a {model.config.model_type} hold {name} in parts ({sorted(stored)[0]} ...), which is not"
                " supported; give a dense model such as llama, mistral, qwen2 or qwen3",
            )
        names[name] = next(iter(stored))
    return names


def draw_weights(model: PreTrainedModel, twin: PreTrainedModel, *, seed: int) -> None:
    """Fill `model` with random weights by the architecture's own rule. Collective where its parameters are sharded.

    `twin`: the same model, unsharded and without memory (model.build_model). What a parameter gets follows from the
    seed and its module's name, so it is the same for any number of ranks.
    """
    targets = {names[0]: parameter for names, parameter in _parameters(model)}
    sharded = any(isinstance(parameter, DTensor) for parameter in targets.values())
    first = not sharded or dist.get_rank() == 0
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for module_name, module in twin.named_modules():
            for name, drawn in _drawn(twin, module_name, module, seed=seed, first=first):
                target = targets.get(name)  # None: the second name of a tied parameter
                if target is not None:
                    whole = drawn.to(_device(target))
                    if sharded:
                        dist.broadcast(whole, src=0)
                    _local(target).copy_(whole[_own_rows(target)] if whole.ndim else whole)


def _drawn(
    twin: PreTrainedModel, module_name: str, module: nn.Module, *, seed: int, first: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and CPU value of each parameter that `module` itself owns; a value means something only where `first`."""
    empty = dict(module.named_parameters(recurse=False))
    if not empty:
        return
    for name, parameter in empty.items():
        setattr(module, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
    if first:
        torch.manual_seed(derived_seed("weights", seed, module_name))
        twin._init_weights(module)  # type: ignore[no-untyped-call]  # transformers annotates a part
    for name, parameter in empty.items():
        yield f"{module_name}.{name}", getattr(module, name).detach()
        setattr(module, name, parameter)


def _parameters(model: nn.Module) -> list[tuple[list[str], nn.Parameter]]:
    """Each parameter once, with all the names it goes by, in the model's order."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [(names[id(parameter)], parameter) for parameter in model.parameters()]


def _stored_names(folder: Path) -> dict[str, str]:
    """Tensor name -> file in `folder`."""
    if (folder / _INDEX).exists():
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        missing = sorted(file for file in set(index.values()) if not (folder / file).exists())
        if missing:
            raise ConfigError("model.path", f"{folder} lacks {missing[0]}, which its {_INDEX} names; copy it whole")
        return dict(index)
    if (folder / _SINGLE).exists():
        with safe_open(folder / _SINGLE, framework="pt") as file:
            return dict.fromkeys(file.keys(), _SINGLE)
    raise ConfigError(
        "model.path", f"{folder} holds neither {_INDEX} nor {_SINGLE}; convert its weights to safetensors first"
    )


def _own_rows(parameter: torch.Tensor) -> slice:
    """The rows of the whole parameter that this rank keeps: all of a plain one, FSDP2's share of a sharded one.

    fully_shard cuts dimension 0 as torch.chunk does: pieces of ceil(rows / ranks), the last ones short or empty.
    """
    num_rows = parameter.shape[0] if parameter.ndim else 0
    if not isinstance(parameter, DTensor):
        return slice(0, num_rows)
    for dimension, placement in enumerate(parameter.placements):
        if isinstance(placement, Shard):
            assert placement.dim == 0
            piece = -(-num_rows // parameter.device_mesh.size(dimension))
            start = min(num_rows, parameter.device_mesh.get_local_rank(dimension) * piece)
            return slice(start, min(num_rows, start + piece))
    return slice(0, num_rows)


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _device(parameter: torch.Tensor) -> torch.device:
    """Where a whole tensor can be sent to all ranks: the mesh's device, which under CPU offload is not the shard's."""
    return torch.device(parameter.device_mesh.device_type) if isinstance(parameter, DTensor) else parameter.device
