"""Any family that keeps documents apart is trained, from files to files; any other is refused before the first step.

The whole table: python -m tests.trainer.family_trial.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from manifests.yaml_config import ConfigError
from tests.trainer.family_sizes import small_config
from tests.trainer.family_trial import try_it
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TRAIN, figures, train_arguments
from trainer import attention
from trainer.attention import Attention, Reach
from trainer.families import Family, try_family
from trainer.model import ModelPlan
from trainer.small_copy import small_copies


@pytest.fixture(scope="module")
def ranks() -> Iterator[ForkedRanks]:
    started = ForkedRanks()
    yield started
    started.close()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data"), train=(13,), validation=(1,))


@pytest.mark.parametrize(
    "family",
    [
        "mixtral",  # experts that files hold one by one, windows in every layer, 5 experts on 4 ranks
        "deepseek_v3",  # latent attention, a first layer without experts, a buffer that files hold
        "gpt_oss",  # sinks: eager; experts turned in the file; windows in every other layer
        "gemma3_text",  # two kinds of layers, two kinds of positions
        "llama4_text",  # chunks, layers without positions
        "phi",  # a head with a bias
        "mpt",  # slopes in place of positions
    ],
)
def test_a_family_has_transformers_logits_and_gradients_over_ranks_and_goes_back_to_its_files(
    family: str, manifest: str, tmp_path: Path, ranks: ForkedRanks
) -> None:
    outcome = try_it(family, manifest, tmp_path / family, ranks, sizes=(4,))
    assert outcome.works, outcome.words
    # Experts too are cut evenly; what is not divisible by 4 costs some rank a little more.
    assert outcome.largest_share < 0.27


def test_a_model_of_experts_goes_on_from_2_ranks_on_4_with_the_same_data_and_nearly_the_same_loss(
    manifest: str, tmp_path: Path, ranks: ForkedRanks
) -> None:
    """The routers' loss is on; 6 experts are cut in two by the first dimension, and over 4 ranks by the second."""
    small_config("qwen3_moe", {"output_router_logits": True, "router_aux_loss_coef": 0.01}).save_pretrained(tmp_path)
    whole, broken = tmp_path / "whole", tmp_path / "broken"

    def run(output: Path, num_ranks: int, *settings: str) -> list[str]:
        config = [
            f"model.config={tmp_path / 'config.json'}",
            "global_batch=4",
            "lr=1e-2",
            "seed=3",
            "hang_minutes=null",
        ]
        options = [text for one in [*config, f"output={output}", *settings] for text in ("--set", one)]
        codes, log = ranks.run(["--manifest", manifest, *options], tmp_path / "log", ranks=num_ranks)
        assert codes == [0] * num_ranks, log
        return log

    log = run(whole, 2, "steps=4")
    assert "router: 0.01 x the balance of its experts is added to the loss, as its config asks" in log
    run(broken, 2, "steps=4", "checkpoint.steps=2")
    shutil.rmtree(broken / "checkpoints" / "step-4")
    assert any(
        line.startswith(f"resumed from {broken / 'checkpoints' / 'step-2'}") for line in run(broken, 4, "steps=4")
    )
    for here, there in zip(figures(broken), figures(whole), strict=True):
        assert here["batch_digest"] == there["batch_digest"]
        assert here["loss"] == pytest.approx(there["loss"], abs=1e-5)
    assert AutoModelForCausalLM.from_pretrained(broken / "final").config.output_router_logits is True
    with safe_open(broken / "final" / "model.safetensors", framework="pt") as file:
        assert file.get_slice("model.layers.1.mlp.experts.5.gate_proj.weight").get_shape() == [24, 32]


def tried(plan: ModelPlan, order: list[Attention]) -> Family:
    return try_family(plan, order, torch.device("cpu"))


def plan_of(family: str, **keys: Any) -> ModelPlan:
    return ModelPlan(config=small_config(family, keys), weights=None, words="")


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2", "opt", "gemma", "olmo2"])
def test_families_whose_documents_stay_apart_pass_and_their_heads_are_plain(family: str) -> None:
    assert tried(plan_of(family), ["sdpa", "eager"]) == Family(attention="sdpa", plain_head=True)


@pytest.mark.parametrize("family", ["phi", "gptj", "cohere", "granite"])
def test_heads_that_scale_shift_or_cap_are_found_out(family: str) -> None:
    assert not tried(plan_of(family), ["sdpa"]).plain_head


def test_capped_scores_take_the_first_attention_that_can_cap_them() -> None:
    orders: list[tuple[list[Attention], Attention]] = [(["sdpa", "eager"], "eager"), (["flex", "sdpa"], "flex")]
    for order, taken in orders:
        found = tried(plan_of("gemma2"), order)
        assert (found.attention, found.plain_head) == (taken, False)
        assert (found.passed_over or "").startswith("sdpa: model: transformers makes no gemma2") == (taken == "eager")
    with pytest.raises(ConfigError, match=r"transformers makes no gemma2: .*does not support"):
        tried(plan_of("gemma2"), ["sdpa"])


def test_flex_is_passed_over_where_it_would_fail_in_training_and_where_it_is_missing() -> None:
    found = tried(plan_of("llama", attention_dropout=0.1), ["flex", "sdpa"])
    assert found.attention == "sdpa"
    assert "`flex_attention` does not support `dropout`" in (found.passed_over or "")
    assert tried(plan_of("llama"), ["flex", "sdpa"]).attention == "flex"
    assert tried(plan_of("falcon"), ["flex", "sdpa"]).attention == "sdpa"


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("recurrent_gemma", "recurrent_gemma has layers of kind linear_attention, which no document mask is known"),
        ("mamba2", "mamba2 has layers of kind linear_attention"),
        ("rwkv", r"rwkv with eager attention gives a document in a packed row other logits .*off by [\d.]+ of"),
        ("bart", "bart with eager attention gives a document in a packed row other logits than it has alone"),
        ("bloom", r"bloom cannot be trained on packed documents: transformers' code .*\(ValueError: too many values"),
    ],
)
def test_families_that_cannot_be_trained_are_refused_in_one_line(family: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        tried(plan_of(family), ["sdpa", "eager"])
    assert "\n" not in str(refused.value)


def sees_the_row(*_: Any) -> Any:
    return lambda row, _head, query, key: (query >= key) & (row >= 0)


RULE = attention._rule


def sees_the_document(documents: Any, positions: Any, _reach: Reach) -> Any:
    return RULE(documents, positions, Reach())


@pytest.mark.parametrize("wrong", [sees_the_row, sees_the_document])
def test_a_wrong_mask_would_be_found_out(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("mistral")
    assert tried(plan, ["sdpa"]).attention == "sdpa"
    monkeypatch.setattr(attention, "_rule", wrong)
    with pytest.raises(ConfigError, match="other logits than it has alone"):
        tried(plan, ["sdpa"])


def test_positions_that_do_not_restart_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = lambda model, batch: model(input_ids=batch["input_ids"], use_cache=False).logits  # noqa: E731
    monkeypatch.setattr("trainer.families.logits_of", ignored)
    with pytest.raises(ConfigError, match="other logits than it has alone"):
        tried(plan_of("llama"), ["sdpa"])


@pytest.mark.parametrize(
    ("family", "num_layers"), [("llama", 2), ("mixtral", 2), ("deepseek_v3", 4), ("gemma3_text", 6), ("llama4_text", 4)]
)
def test_the_copy_of_a_large_model_is_small_and_has_a_layer_of_each_sort(family: str, num_layers: int) -> None:
    large = AutoConfig.for_model(family)
    small = next(small_copies(large))
    assert small.num_hidden_layers == num_layers
    assert set(getattr(small, "layer_types", None) or [0]) == set(getattr(large, "layer_types", None) or [0])
    assert (small.vocab_size, large.vocab_size > 1000, small.num_attention_heads) == (96, True, 4)


def test_a_router_without_logits_cannot_be_balanced() -> None:
    with pytest.raises(ConfigError, match=r"asks for a router's loss .* set output_router_logits to false"):
        tried(plan_of("llama", output_router_logits=True, router_aux_loss_coef=0.1), ["sdpa"])


def test_the_command_refuses_such_a_family_in_one_line(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "data", train=(3,), validation=(1,))
    arguments = train_arguments(manifest, tmp_path / "out", "global_batch=2", "model.config.model_type=bloom")
    done = subprocess.run(
        [sys.executable, str(TRAIN), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("train.py: model: bloom cannot be trained on packed documents")
    assert "Traceback" not in done.stderr


def test_files_that_would_not_come_back_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_one(_model: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value + 1 if name == "model.norm.weight" else value for name, value in state.items()}

    monkeypatch.setattr("trainer.families.revert_weight_conversion", lose_one)
    with pytest.raises(ConfigError, match=r"files of a llama do not give model\.norm\.weight back"):
        tried(plan_of("llama"), ["sdpa"])
