"""The model: documents do not see each other, a data set that does not fit is refused, the loss is a sum."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from manifests import Manifest, load
from manifests.yaml_config import ConfigError
from tests.trainer.trainer_datasets import TINY_MODEL, VOCAB_SIZE, write_dataset
from trainer.attention import NEVER, Reach, attention_mask, document_mask
from trainer.config import ModelConfig
from trainer.loss import count_labels, token_loss_sum
from trainer.model import build_model, logits_of, num_parameters, plan_model, whole_model

PACKED = {
    "document_ids": torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]]),
    "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0]]),
}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return load(write_dataset(tmp_path_factory.mktemp("data"))).manifest


@pytest.fixture(scope="module")
def model(manifest: Manifest) -> torch.nn.Module:
    return whole_model(plan_model(ModelConfig(config=TINY_MODEL), manifest), seed=0).eval()


DOCUMENTS = torch.tensor([[0, 0, 0, 1, -1]])
POSITIONS = torch.tensor([[0, 1, 2, 0, 0]])


@pytest.mark.parametrize(
    ("reach", "third"),
    [
        (Reach(), [1, 1, 1, 0, 0]),
        (Reach(window=2), [0, 1, 1, 0, 0]),
        (Reach(window=1), [0, 0, 1, 0, 0]),
        (Reach(chunk=2), [0, 0, 1, 0, 0]),
        (Reach(chunk=3), [1, 1, 1, 0, 0]),
    ],
)
def test_the_mask_lets_a_token_see_its_own_document_up_to_itself_as_far_as_its_layer_looks(
    reach: Reach, third: list[int]
) -> None:
    mask = document_mask(DOCUMENTS, POSITIONS, reach)
    assert mask.shape == (1, 1, 5, 5)
    assert mask[0, 0, 2].int().tolist() == third
    assert mask[0, 0, 3].int().tolist() == [0, 0, 0, 1, 0]
    assert mask[0, 0, 4].int().tolist() == [0, 0, 0, 0, 1]


def test_padding_sees_the_padding_before_it() -> None:
    mask = document_mask(torch.tensor([[0, -1, -1]]), torch.tensor([[0, 0, 0]]))
    assert mask[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]


def test_a_model_of_two_kinds_of_layers_gets_a_mask_for_each_and_one_where_the_window_holds_the_row() -> None:
    config = AutoConfig.for_model("gemma3_text", sliding_window=2, num_hidden_layers=6, attn_implementation="sdpa")
    masks = attention_mask(config, DOCUMENTS, POSITIONS)
    assert isinstance(masks, dict)
    assert {name: int(mask[0, 0].sum()) for name, mask in masks.items()} == {
        "full_attention": 8,
        "sliding_attention": 7,
    }
    config.sliding_window = 5
    masks = attention_mask(config, DOCUMENTS, POSITIONS)
    assert isinstance(masks, dict)
    assert masks["full_attention"] is masks["sliding_attention"]


def test_eager_attention_gets_numbers_to_add() -> None:
    config = AutoConfig.for_model("llama", attn_implementation="eager")
    mask = attention_mask(config, DOCUMENTS, POSITIONS)
    assert isinstance(mask, torch.Tensor)
    assert mask[0, 0, 1].tolist() == [0.0, 0.0, NEVER, NEVER, NEVER]
    assert torch.tensor(NEVER).bfloat16().isfinite()


@torch.no_grad()
def test_the_second_documents_logits_do_not_change_with_the_first_document(model: torch.nn.Module) -> None:
    ids = torch.tensor([[5, 6, 7, 20, 21, 22, 23, 40]])
    other = ids.clone()
    other[0, :3] = torch.tensor([90, 91, 92])
    before, after = (logits_of(model, {"input_ids": tokens, **PACKED}) for tokens in (ids, other))
    assert torch.equal(before[0, 3:], after[0, 3:])
    assert not torch.equal(before[0, :3], after[0, :3])


@torch.no_grad()
def test_a_packed_document_has_the_logits_it_has_alone(model: torch.nn.Module) -> None:
    ids = torch.tensor([[5, 6, 7, 20, 21, 22, 23, 40]])
    packed = logits_of(model, {"input_ids": ids, **PACKED})[0, 3:7]
    alone = model(input_ids=ids[:, 3:7], use_cache=False).logits[0]
    torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_padding_gives_finite_logits(model: torch.nn.Module) -> None:
    batch = {
        "input_ids": torch.ones(1, 8, dtype=torch.int64),
        "document_ids": torch.full((1, 8), -1),
        "position_ids": torch.zeros(1, 8, dtype=torch.int64),
    }
    assert bool(torch.isfinite(logits_of(model, batch)).all())


def test_random_weights_follow_from_the_seed_alone_and_leave_the_global_generator_alone(manifest: Manifest) -> None:
    plan = plan_model(ModelConfig(config=TINY_MODEL), manifest)
    torch.manual_seed(1)
    expected_draw = torch.rand(1)
    torch.manual_seed(1)
    first = whole_model(plan, seed=7).state_dict()
    assert torch.equal(torch.rand(1), expected_draw)
    again, other = (whole_model(plan, seed=seed).state_dict() for seed in (7, 8))
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_without_memory_has_the_parameters_of_a_filled_one_tied_or_not(manifest: Manifest, tied: bool) -> None:
    plan = plan_model(ModelConfig(config={**TINY_MODEL, "tie_word_embeddings": tied}), manifest)
    empty, filled = build_model(plan), whole_model(plan, seed=0)
    assert {parameter.device.type for parameter in empty.parameters()} == {"meta"}
    names = [name for name, _ in empty.named_parameters()]
    assert names == [name for name, _ in filled.named_parameters()]
    assert ("lm_head.weight" in names) is not tied
    assert num_parameters(empty) == num_parameters(filled)


def test_without_a_model_a_small_llama_for_the_tokenizer_is_planned_and_said(manifest: Manifest) -> None:
    plan = plan_model(ModelConfig(), manifest)
    assert (plan.config.model_type, plan.config.vocab_size, plan.config.eos_token_id) == ("llama", VOCAB_SIZE, 1)
    assert plan.words == (
        "random weights, a small Llama-shaped model for this tokenizer of 101 tokens"
        " (give model.path to fine-tune a real one)"
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"vocab_size": 100}, "model: its vocabulary has 100 entries and the manifest's tokenizer 101;"),
        ({"max_position_embeddings": 16}, "model: it knows 16 positions and the manifest's examples have 32 tokens;"),
        ({"model_type": "lama"}, "model.config: transformers refuses model_type 'lama'"),
        ({"model_type": "lfm2", "layer_types": ["conv", "conv"]}, "model: lfm2 has layers of kind conv, which no"),
        ({"model_type": "gemma3"}, "model: gemma3 is a language model (gemma3_text) among other parts, such as images"),
        ({"quantization_config": {"quant_method": "fp8"}}, "model: its weights are quantized (quantization_config)"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_with_both_values(
    manifest: Manifest, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_model(ModelConfig(config={**TINY_MODEL, **keys}), manifest)
    assert message in str(caught.value)


def test_a_missing_model_directory_is_named(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.path: .*/none does not exist"):
        plan_model(ModelConfig(path=str(tmp_path / "none")), manifest)


def test_the_loss_is_a_sum_over_labelled_tokens_only() -> None:
    logits = torch.zeros(2, 3, 7)
    labels = torch.tensor([[1, -100, 2], [-100, -100, -100]])
    assert float(token_loss_sum(logits, labels)) == pytest.approx(2 * math.log(7))
    assert count_labels(labels) == 2


def test_a_batch_of_filler_has_no_loss_and_no_gradient() -> None:
    logits = torch.randn(1, 3, 7, requires_grad=True)
    loss = token_loss_sum(logits, torch.full((1, 3), -100))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()
