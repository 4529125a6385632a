"""The exported directory gives the trained model's logits, tied or not, without double or empty tensors."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from manifests import load
from tests.trainer.trainer_datasets import TINY_MODEL, write_dataset
from trainer.config import MeshConfig, ModelConfig
from trainer.export import export
from trainer.model import build_model, fill, logits_of, plan_model
from trainer.parallel import make_mesh, process_group, shard_model


@pytest.mark.parametrize("tied", [True, False])
def test_the_exported_model_has_equal_logits(tmp_path: Path, tied: bool) -> None:
    dataset = load(write_dataset(tmp_path / "data", train=(3,), validation=(1,)))
    plan = plan_model(ModelConfig(config={**TINY_MODEL, "tie_word_embeddings": tied}), dataset.manifest)
    batch = {
        "input_ids": torch.arange(2, 34)[None],
        "position_ids": torch.arange(32)[None],
        "document_ids": torch.zeros(1, 32, dtype=torch.int64),
    }
    with process_group() as ranks:
        model = build_model(plan)
        names_expected = [name for name, _ in model.named_parameters()]
        sharded = shard_model(model, make_mesh(MeshConfig(), ranks), "fp32")
        fill(model, plan, seed=3)
        with torch.no_grad():
            expected = logits_of(model, batch)
        sharded.reshard()
        export(model, plan, dataset, tmp_path / "final", ranks)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "final", attn_implementation="sdpa")
    with torch.no_grad():
        assert torch.equal(logits_of(exported, batch), expected)
    with safe_open(tmp_path / "final" / "model.safetensors", framework="pt") as stored:
        names = list(stored.keys())
        assert all(stored.get_tensor(name).numel() for name in names)
    assert sorted(names) == sorted(names_expected)
    assert ("lm_head.weight" in names) is not tied
