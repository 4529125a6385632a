"""Llama, Mistral and Qwen from files and back: transformers' logits, no code but transformers' own, no silent gap."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from manifests import Dataset, load
from manifests.yaml_config import ConfigError
from tests.trainer.family_sizes import small_config
from tests.trainer.trainer_datasets import SEQ_LEN, TINY_MODEL, VOCAB_SIZE, write_dataset
from trainer.config import MeshConfig, ModelConfig
from trainer.export import export
from trainer.loss import token_loss_sum
from trainer.model import (
    ModelPlan,
    build_model,
    fill,
    logits_of,
    loss_sum_of,
    plan_model,
    use_cross_entropy,
    whole_model,
)
from trainer.parallel import make_mesh, materialize, process_group, shard_model

FAMILIES = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": False, "attention_bias": True}),
    ("mistral", {"sliding_window": None, "tie_word_embeddings": False}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 16, "tie_word_embeddings": False}),
    # Its files say embed_out where the model says lm_head.
    ("gpt_neox", {"tie_word_embeddings": False}),
]
BATCH = {
    "input_ids": torch.arange(2, 34)[None],
    "position_ids": torch.cat([torch.arange(20), torch.arange(12)])[None],
    "document_ids": torch.cat([torch.zeros(20), torch.ones(12)])[None].long(),
    "labels": torch.cat([torch.arange(3, 34), torch.tensor([-100])])[None],
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load(write_dataset(tmp_path_factory.mktemp("data"), train=(3,), validation=(1,)))


def make_files(folder: Path, family: str, keys: dict[str, Any], **saving: Any) -> PreTrainedModel:
    """A directory as transformers writes it, and the model in it."""
    config = AutoConfig.for_model(
        family, vocab_size=VOCAB_SIZE, max_position_embeddings=SEQ_LEN, **{**TINY_MODEL, **keys}
    )
    torch.manual_seed(4)
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model.save_pretrained(folder, **saving)
    return model


@pytest.mark.parametrize(("family", "keys"), FAMILIES)
def test_a_family_comes_from_its_files_and_goes_back_with_equal_logits(
    dataset: Dataset, tmp_path: Path, family: str, keys: dict[str, Any]
) -> None:
    theirs = make_files(tmp_path / "model", family, keys, max_shard_size="20KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 2
    plan = plan_model(ModelConfig(path=str(tmp_path / "model")), dataset.manifest)
    with process_group() as ranks, torch.no_grad():
        model = build_model(plan)
        shard_model(model, make_mesh(MeshConfig(), ranks), "fp32")
        fill(model, plan, seed=0)
        expected = logits_of(theirs, BATCH)
        assert torch.equal(logits_of(model, BATCH), expected)
        model.reshard()  # type: ignore[operator]  # shard_model made it an FSDPModule
        export(model, plan, dataset, tmp_path / "final", ranks)
        back = AutoModelForCausalLM.from_pretrained(tmp_path / "final", attn_implementation="sdpa")
        assert torch.equal(logits_of(back, BATCH), expected)
        ours = whole_model(plan_model(ModelConfig(path=str(tmp_path / "final")), dataset.manifest), seed=0)
        assert torch.equal(logits_of(ours, BATCH), expected)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_the_chunked_loss_of_a_family_is_the_loss_of_its_own_logits(dataset: Dataset, family: str) -> None:
    keys = {"model_type": family, "sliding_window": None} if family == "mistral" else {"model_type": family}
    model = whole_model(plan_model(ModelConfig(config={**TINY_MODEL, **keys}), dataset.manifest), seed=0)
    expected = token_loss_sum(logits_of(model, BATCH), BATCH["labels"])
    use_cross_entropy(model, "chunked")
    assert float(loss_sum_of(model, BATCH).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)


def test_random_weights_follow_the_architectures_rule(dataset: Dataset) -> None:
    keys = {**TINY_MODEL, "hidden_size": 256, "initializer_range": 0.05}
    weights = whole_model(plan_model(ModelConfig(config=keys), dataset.manifest), seed=0).state_dict()
    matrix = weights["model.layers.1.mlp.up_proj.weight"]
    assert float(matrix.std()) == pytest.approx(0.05, rel=0.05)
    assert float(matrix.mean()) == pytest.approx(0.0, abs=0.002)
    assert bool((weights["model.norm.weight"] == 1).all())
    assert not torch.equal(matrix, weights["model.layers.0.mlp.up_proj.weight"])


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gpt2", "transformer.h.1.attn.c_proj.weight"),  # its rule stands with the whole model
        ("apertus", "model.layers.1.mlp.act_fn.alpha_p"),  # it has no rule: the constructor's value
        ("qwen3_moe", "model.layers.1.mlp.experts.down_proj"),  # all experts in one tensor
        ("gemma3n_text", "model.layers.1.laurel.linear_left.weight"),  # its rule stands with a model inside
    ],
)
def test_random_weights_are_spread_as_transformers_spreads_them(family: str, name: str) -> None:
    config = small_config(family, {})
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(config).get_parameter(name).detach().float()
    ours = whole_model(ModelPlan(config=config, weights=None, words=""), seed=0).get_parameter(name).detach()
    if theirs.numel() == 1:
        assert float(ours) == pytest.approx(float(theirs), abs=0.01)  # theirs is kept in bf16
    else:
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.1)
        assert abs(float(ours.mean())) < 0.2 * float(ours.std())


def refusal(folder: Path, dataset: Dataset) -> str:
    with pytest.raises(ConfigError) as caught:
        whole_model(plan_model(ModelConfig(path=str(folder)), dataset.manifest), seed=0)
    return str(caught.value)


def test_files_that_do_not_belong_to_the_config_are_refused_by_name(dataset: Dataset, tmp_path: Path) -> None:
    make_files(tmp_path, "llama", {"tie_word_embeddings": False})
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    up = "model.layers.0.mlp.up_proj.weight"

    save_file({name: value for name, value in tensors.items() if name != "lm_head.weight"}, file)
    assert "has no tensor lm_head.weight; its config.json describes another model" in refusal(tmp_path, dataset)
    save_file({**tensors, up: torch.zeros(63, 32)}, file)
    assert f"{up} in {tmp_path} is [63, 32] and config.json asks for [64, 32]" in refusal(tmp_path, dataset)
    save_file({**tensors, up: tensors[up].to(torch.int8)}, file)
    assert f"{up} in {tmp_path} is int8: whole numbers, quantized; give the model in 16 or 32 bits" in (
        refusal(tmp_path, dataset)
    )
    save_file({**tensors, "model.layers.0.mlp.up_proj.weight_scale": torch.zeros(1)}, file)
    assert "holds 1 tensors that config.json has no place for, the first model.layers.0.mlp.up_proj.weight_scale" in (
        refusal(tmp_path, dataset)
    )
    file.unlink()
    assert "holds neither model.safetensors.index.json nor model.safetensors" in refusal(tmp_path, dataset)


def test_a_missing_file_of_several_is_named(dataset: Dataset, tmp_path: Path) -> None:
    make_files(tmp_path, "llama", {}, max_shard_size="20KB")
    gone = sorted(tmp_path.glob("*.safetensors"))[1]
    gone.unlink()
    assert f"lacks {gone.name}, which its model.safetensors.index.json names" in refusal(tmp_path, dataset)


def test_a_damaged_file_is_named(dataset: Dataset, tmp_path: Path) -> None:
    make_files(tmp_path, "llama", {})
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-100], b"", b"version https://git-lfs.github.com/spec/v1\n"):
        file.write_bytes(damaged)
        assert f"model.path: cannot read {file}: " in refusal(tmp_path, dataset)
    file.write_bytes(whole)
    index = tmp_path / "model.safetensors.index.json"
    for text in ("{", "{}", '{"weight_map": 5}'):
        index.write_text(text)
        assert f"model.path: cannot read {index}: " in refusal(tmp_path, dataset)
    index.write_text(json.dumps({"weight_map": {"model.no.weight": file.name}}))
    assert f"model.path: cannot read {file}: " in refusal(tmp_path, dataset)


def test_a_tie_that_files_hold_twice_must_hold(dataset: Dataset, tmp_path: Path) -> None:
    theirs = make_files(tmp_path, "llama", {"tie_word_embeddings": True})
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    embedding = tensors["model.embed_tokens.weight"]
    save_file({**tensors, "lm_head.weight": embedding.clone()}, file)
    ours = whole_model(plan_model(ModelConfig(path=str(tmp_path)), dataset.manifest), seed=0)
    assert ours.lm_head.weight is ours.model.embed_tokens.weight
    assert torch.equal(ours.lm_head.weight, theirs.lm_head.weight)
    save_file({**tensors, "lm_head.weight": embedding + 1}, file)
    assert "with different values, and its config.json makes them one; set tie_word_embeddings to false" in (
        refusal(tmp_path, dataset)
    )


def test_tensors_that_transformers_leaves_out_are_named(dataset: Dataset, tmp_path: Path) -> None:
    model: Any = AutoModelForCausalLM.from_config(small_config("deepseek_v3", {}))
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    ahead = "model.layers.61.eh_proj.weight"
    inside = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({**tensors, ahead: torch.zeros(2, 2), inside: torch.zeros(4)}, file)
    plan = plan_model(ModelConfig(path=str(tmp_path)), dataset.manifest)
    model = build_model(plan)
    materialize(model, torch.device("cpu"), {})
    assert fill(model, plan, seed=0) == [ahead]


def test_a_headless_models_names_and_half_precision_files_are_read(dataset: Dataset, tmp_path: Path) -> None:
    theirs = make_files(tmp_path, "llama", {})
    file = tmp_path / "model.safetensors"
    save_file({name.removeprefix("model."): value.bfloat16() for name, value in load_file(file).items()}, file)
    ours = whole_model(plan_model(ModelConfig(path=str(tmp_path)), dataset.manifest), seed=0)
    assert torch.equal(ours.model.norm.weight, theirs.model.norm.weight)
    assert ours.lm_head.weight is ours.model.embed_tokens.weight
    assert torch.equal(ours.lm_head.weight, theirs.lm_head.weight.bfloat16().float())


def test_code_that_lies_beside_the_weights_is_never_run(dataset: Dataset, tmp_path: Path) -> None:
    make_files(tmp_path, "llama", {})
    config = json.loads((tmp_path / "config.json").read_text())
    trap = tmp_path / "trap"
    (tmp_path / "modeling_own.py").write_text(f"open({str(trap)!r}, 'w').close()\n")
    own = {"AutoConfig": "modeling_own.Config", "AutoModelForCausalLM": "modeling_own.Model"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": own}))
    model = whole_model(plan_model(ModelConfig(path=str(tmp_path)), dataset.manifest), seed=0)
    assert type(model).__name__ == "LlamaForCausalLM"
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": own}))
    assert "transformers refuses model_type 'own'" in refusal(tmp_path, dataset)
    assert not trap.exists()
