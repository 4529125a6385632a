"""Families that cannot be trained here are refused at the start, in one line; others pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from manifests import Dataset, load
from manifests.yaml_config import ConfigError
from tests.trainer.trainer_datasets import TINY_MODEL, write_dataset
from tests.trainer.trainer_processes import TRAIN, train_arguments
from trainer.config import MeshConfig, ModelConfig
from trainer.families import TRIED, check_documents_stay_apart
from trainer.model import build_model, fill, plan_model, use_cross_entropy
from trainer.parallel import make_mesh, process_group, shard_model

KEYS = {**TINY_MODEL, "pad_token_id": None}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load(write_dataset(tmp_path_factory.mktemp("data"), train=(3,), validation=(1,)))


def check(dataset: Dataset, family: str) -> None:
    """What a start does, on one rank."""
    plan = plan_model(ModelConfig(config={**KEYS, "model_type": family}), dataset.manifest)
    model = build_model(plan)
    use_cross_entropy(model, "plain")
    with process_group() as ranks:
        shard_model(model, make_mesh(MeshConfig(), ranks), "bf16")
        fill(model, plan, seed=0)
        check_documents_stay_apart(model, seq_len=32, device=torch.device("cpu"))
        assert all(parameter.grad is None for parameter in model.parameters())
        assert model.training == build_model(plan).training


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "opt", "gemma", "olmo2"])
def test_families_whose_documents_stay_apart_pass(dataset: Dataset, family: str) -> None:
    assert family not in TRIED
    check(dataset, family)


@pytest.mark.parametrize("family", TRIED)
def test_the_tried_families_would_pass_if_they_were_asked(
    dataset: Dataset, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.families.TRIED", ())
    monkeypatch.setitem(KEYS, "sliding_window", None)
    check(dataset, family)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("recurrent_gemma", r"recurrent_gemma lets a document see the one before it"),
        ("bart", r"bart is an encoder with a decoder"),
        ("mixtral", r"files of a mixtral hold .*experts.* in parts"),
        ("qwen3_moe", r"files of a qwen3_moe hold .*experts.* in parts"),
        ("bloom", r"transformers makes no bloom: .*does not support"),
        ("gpt_oss", r"gpt_oss"),
        ("gemma2", r"gemma2|attention of kind"),
        ("mamba", r"attention of kind|mamba"),
    ],
)
def test_families_that_cannot_be_trained_are_refused_before_the_first_step(
    dataset: Dataset, family: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        check(dataset, family)
    assert "\n" not in str(refused.value)


def test_the_command_refuses_such_a_family_in_one_line(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "data", train=(3,), validation=(1,))
    arguments = train_arguments(manifest, tmp_path / "out", "global_batch=2", "model.config.model_type=recurrent_gemma")
    done = subprocess.run(
        [sys.executable, str(TRAIN), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("train.py: model: recurrent_gemma lets a document see")
    assert "Traceback" not in done.stderr
