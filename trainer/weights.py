"""Where parameters get their values: safetensors files, or random draws. No rank ever holds more than it must.

    read   each rank reads from the files only the rows that are its own: no full copy anywhere, nothing sent
    draw   rank 0 makes one module's parameters at a time and sends them; the others cut out their rows

Both fill plain parameters too, whole, which is how a single process gets a model to compare with.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from manifests.canonical import derived_seed
from manifests.yaml_config import ConfigError
from trainer.deferred import Box, Deferred

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


def read_weights(model: PreTrainedModel, twin: PreTrainedModel, folder: Path) -> list[str]:
    """Fill `model` from a Hugging Face directory; names of the tensors there that transformers leaves out on purpose
    (DeepSeek's layers for several tokens ahead). Raises ConfigError where names or sizes do not fit it exactly.

    What transformers' own from_pretrained makes of the files is what is read: renamed, fused, turned, tied as it does
    (deferred.py), a rank's share only. Stored precision is converted to the parameter's. `twin`: the same model,
    unsharded: FSDP renames the class, by which transformers finds its conversions.
    """
    with ExitStack() as files:
        stored = _stored(folder, files)
        _check_types(twin, stored, folder)
        as_loaded = _as_loaded(twin, folder, stored)
        _check_ties(twin, as_loaded, folder)
        loaded = dict(_tensors(as_loaded))
        with torch.no_grad():
            for name, target in _tensors(model):
                local, box = _local(target), _own_box(target)
                source = loaded[name]
                if local.numel():
                    # Plain where transformers knows that files may lack it, and made it by its own rule.
                    local.copy_(source.read(box) if isinstance(source, Deferred) else source[box])
        return _left_out(twin, stored)


def _left_out(twin: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """Those that transformers ignores and that lie in no part of the model: an old file's tables of positions lie in
    one, and are made anew.
    """
    patterns = twin._keys_to_ignore_on_load_unexpected or ()
    parts = {name for name, _ in twin.named_modules()}
    return sorted(
        name
        for name in names
        if any(re.search(pattern, name) for pattern in patterns) and _numbered_part(name) not in parts
    )


def _numbered_part(name: str) -> str:
    """model.layers.61 of model.layers.61.mlp.gate.weight; mtp of mtp.norm.weight."""
    numbered = re.match(r".*?\.\d+(?=\.)", name)
    return numbered[0] if numbered else name.partition(".")[0]


def _check_types(twin: PreTrainedModel, stored: Mapping[str, Deferred], folder: Path) -> None:
    """transformers would take whole numbers for the values themselves."""
    for name, _ in twin.named_parameters():
        if name in stored and not stored[name].is_floating_point():
            kind = str(stored[name].dtype).removeprefix("torch.")
            raise ConfigError(
                "model.path",
                f"{name} in {folder} is {kind}: whole numbers, quantized; give the model in 16 or 32 bits",
            )


def _check_ties(twin: PreTrainedModel, loaded: PreTrainedModel, folder: Path) -> None:
    """transformers unties what the config ties and the files hold with two values; of ours one would be lost."""
    for (first, *others), _ in _parameters(twin):
        for other in others:
            if loaded.get_parameter(other) is not loaded.get_parameter(first):
                raise ConfigError(
                    "model.path",
                    f"{folder} holds {first} and {other} with different values, and its config.json makes them one;"
                    " set tie_word_embeddings to false there, or remove the one that is not meant from the files",
                )


def _as_loaded(twin: PreTrainedModel, folder: Path, stored: dict[str, Deferred]) -> PreTrainedModel:
    """The model that transformers makes of `stored`, its tensors recipes. ConfigError where it is not this model."""
    report: dict[str, Any]
    load: Any = type(twin).from_pretrained  # annotated in part
    with quiet_transformers():
        try:
            model, report = load(
                None,
                config=twin.config,
                state_dict=stored,
                dtype=torch.float32,
                attn_implementation=twin.config._attn_implementation,
                ignore_mismatched_sizes=True,  # they are reported, and refused below
                output_loading_info=True,
            )
        except RuntimeError as error:  # a conversion that failed, in a table of several lines
            raise ConfigError(
                "model.path", f"the tensors in {folder} do not fit together: {' '.join(str(error).split())[:300]}"
            ) from error
    if report["mismatched_keys"]:
        name, has, wanted = min(report["mismatched_keys"])
        raise ConfigError(
            "model.path",
            f"{name} in {folder} is {list(has)} and config.json asks for {list(wanted)};"
            " give the files that belong to it",
        )
    if report["missing_keys"]:
        raise ConfigError(
            "model.path",
            f"{folder} has no tensor {min(report['missing_keys'])}; its config.json describes another model than its"
            " files hold",
        )
    if report["unexpected_keys"]:
        left = sorted(report["unexpected_keys"])
        raise ConfigError(
            "model.path",
            f"{folder} holds {len(left)} tensors that config.json has no place for, the first {left[0]}; give the"
            " config.json that belongs to the files (quantized weights must be converted to 16 or 32 bits first)",
        )
    return cast(PreTrainedModel, model)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without its remarks, where what matters of them is said in a line of ours."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _stored(folder: Path, files: ExitStack) -> dict[str, Deferred]:
    """The tensors in `folder`, read while `files` are open."""
    handles: dict[str, Any] = {}
    tensors = {}
    for name, file in _stored_names(folder).items():
        try:
            if file not in handles:
                handles[file] = files.enter_context(safe_open(folder / file, framework="pt"))
            part = handles[file].get_slice(name)
        except (SafetensorError, OSError) as error:
            raise _unreadable(folder / file, error) from error
        shape = part.get_shape()
        dtype = part[0:0].dtype if shape else part[...].dtype  # safetensors has names of its own for types
        tensors[name] = Deferred(shape, dtype, part.__getitem__)
    return tensors


def _unreadable(path: Path, error: Exception) -> ConfigError:
    return ConfigError("model.path", f"cannot read {path}: {' '.join(str(error).split())}; copy it again, whole")


def draw_weights(model: PreTrainedModel, twin: PreTrainedModel, made: PreTrainedModel, *, seed: int) -> None:
    """Fill `model` with random weights by the architecture's own rule. Collective where its parameters are sharded.

    `twin`: the same model, unsharded and without memory; `made`: as its constructor left it (model.make_model), taken
    apart here. What a parameter gets follows from the seed and its module's name, so it is the same for any number of
    ranks.
    """
    targets = {names[0]: parameter for names, parameter in _parameters(model)}
    sharded = any(isinstance(parameter, DTensor) for parameter in targets.values())
    first = not sharded or dist.get_rank() == 0
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for module_name, module in twin.named_modules():
            own = {name for name, _ in module.named_parameters(recurse=False) if _join(module_name, name) in targets}
            if own and first:
                torch.manual_seed(derived_seed("weights", seed, module_name))
            for name, drawn in _drawn(twin, made, module_name, own):
                target = targets[name]
                whole = drawn.to(_device(target)) if first else torch.empty(drawn.shape, device=_device(target))
                if sharded:
                    dist.broadcast(whole, src=0)
                _local(target).copy_(whole[_own_box(target)])


def _drawn(
    twin: PreTrainedModel, made: PreTrainedModel, module_name: str, own: set[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and CPU value of the parameters `own` of a module.

    First come the constructor's values, which some rules leave alone (an activation's slopes), then the rule for the
    module, then for those around it, which some rules name its parameters from (GPT-2: projections by depth). The rest
    of `twin` has no memory, so rules for it cost nothing.
    """
    module, source = twin.get_submodule(module_name), made.get_submodule(module_name)
    empty = {name: module.get_parameter(name) for name in sorted(own)}
    for name in empty:
        setattr(module, name, source.get_parameter(name))
    for around, owner in _and_those_around(twin, module_name) if own else ():
        owner._init_weights(around)  # type: ignore[no-untyped-call]  # transformers annotates a part
    for name, parameter in empty.items():
        yield _join(module_name, name), module.get_parameter(name).detach()
        for holder in (module, source):
            setattr(holder, name, parameter)  # without memory again


def _and_those_around(twin: PreTrainedModel, module_name: str) -> list[tuple[nn.Module, PreTrainedModel]]:
    """The module and what contains it, from the inside out, each with the model that has the rule for it: the nearest
    at or around it, as in transformers' smart_apply.
    """
    owner = twin
    path: list[tuple[nn.Module, PreTrainedModel]] = [(twin, twin)]
    parts = module_name.split(".") if module_name else []
    for depth in range(1, len(parts) + 1):
        module = twin.get_submodule(".".join(parts[:depth]))
        owner = module if isinstance(module, PreTrainedModel) else owner
        path.append((module, owner))
    return path[::-1]


def _join(module_name: str, name: str) -> str:
    return f"{module_name}.{name}" if module_name else name


def _parameters(model: nn.Module) -> list[tuple[list[str], nn.Parameter]]:
    """Each parameter once, with all the names it goes by, in the model's order."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [(names[id(parameter)], parameter) for parameter in model.parameters()]


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, a tied one under its first name, and the buffers that belong to files, by name."""
    for names, parameter in _parameters(model):
        yield names[0], parameter
    kept = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if name in kept:
            yield name, buffer


def _stored_names(folder: Path) -> dict[str, str]:
    """Tensor name -> file in `folder`."""
    if (folder / _INDEX).exists():
        try:
            index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
            index = {name: str(file) for name, file in index.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(folder / _INDEX, error) from error
        missing = sorted(file for file in set(index.values()) if not (folder / file).exists())
        if missing:
            raise ConfigError("model.path", f"{folder} lacks {missing[0]}, which its {_INDEX} names; copy it whole")
        return index
    if (folder / _SINGLE).exists():
        try:
            with safe_open(folder / _SINGLE, framework="pt") as file:
                return dict.fromkeys(file.keys(), _SINGLE)
        except (SafetensorError, OSError) as error:
            raise _unreadable(folder / _SINGLE, error) from error
    raise ConfigError(
        "model.path", f"{folder} holds neither {_INDEX} nor {_SINGLE}; convert its weights to safetensors first"
    )


def _own_box(tensor: torch.Tensor) -> Box:
    """What this rank keeps of the whole tensor: all of a plain one, FSDP2's share of a sharded one.

    fully_shard cuts one dimension as torch.chunk does: pieces of ceil(size / ranks), the last ones short or empty.
    """
    box = [slice(0, size) for size in tensor.shape]
    if isinstance(tensor, DTensor):
        for side, placement in enumerate(tensor.placements):
            if isinstance(placement, Shard):
                size = tensor.shape[placement.dim]
                piece = -(-size // tensor.device_mesh.size(side))
                start = min(size, tensor.device_mesh.get_local_rank(side) * piece)
                box[placement.dim] = slice(start, min(size, start + piece))
    return tuple(box)


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _device(parameter: torch.Tensor) -> torch.device:
    """Where a whole tensor can be sent to all ranks: the mesh's device, which under CPU offload is not the shard's."""
    return torch.device(parameter.device_mesh.device_type) if isinstance(parameter, DTensor) else parameter.device
