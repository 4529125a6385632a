"""The planner's shape of models with experts and windows, against published counts and FLOPs that torch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from tests.trainer.family_sizes import small_config
from trainer.experts import experts_of
from trainer.model import ModelPlan, whole_model
from trainer.plan.shape import shape_of, shape_of_config


def test_of_experts_only_the_chosen_ones_are_active_and_every_block_is_counted_as_it_is() -> None:
    shape = shape_of_config(AutoConfig.for_model("mixtral"))
    expert = 3 * 4096 * 14_336
    attention = 2 * 4096**2 + 2 * 4096 * 1024
    assert shape.largest_block == attention + 8 * expert + 8 * 4096 + 2 * 4096
    assert shape.num_parameters == 32 * shape.largest_block + 2 * 32_000 * 4096 + 4096 == 46_702_792_704
    assert shape.active == shape.num_parameters - 32 * 6 * expert == 12_879_925_248
    assert shape.intermediate_size == pytest.approx(2 * 14_336, rel=0.001)

    # Three dense layers, then 58 of 256 experts and a shared one: 671 billion, 37 without the embedding.
    deepseek = shape_of_config(AutoConfig.for_model("deepseek_v3"))
    assert deepseek.num_parameters == pytest.approx(671.0e9, rel=0.001)
    assert deepseek.matrix_parameters == pytest.approx(36.6e9, rel=0.005)
    assert deepseek.root_parameters == 2 * 129_280 * 7168 + 7168


def test_a_window_bounds_what_a_token_sees() -> None:
    shape = shape_of_config(AutoConfig.for_model("gemma3_text", num_hidden_layers=6, sliding_window=512))
    assert shape.windows == (512,) * 5
    heads = shape.num_heads * shape.head_dim
    per_layer = 12 * heads
    assert shape.flops_per_token(256) == 6 * shape.matrix_parameters + 6 * per_layer * 128
    # Of 1024 tokens the first 512 see 256 on average, the others 512.
    assert shape.flops_per_token(1024) == 6 * shape.matrix_parameters + per_layer * (512 + 5 * 384)


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3_moe", "gemma3_text"])
def test_flops_are_those_that_torch_counts_for_the_whole_square(family: str) -> None:
    config = small_config(family, {"tie_word_embeddings": False})
    config.sliding_window = 64  # where it has one: longer than the row
    model = whole_model(ModelPlan(config=config, weights=None, words=""), seed=0)
    model.set_attn_implementation("eager")
    if experts_of(config) is not None:
        model.set_experts_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.arange(32)[None], use_cache=False)
    shape = shape_of(model)
    # The counter sees the whole square of scores, twice our causal half. Norms are a trifle of ours.
    scores = 12 * shape.num_layers * shape.num_heads * shape.head_dim * 32
    assert 3 * counter.get_total_flops() / 32 == pytest.approx(6 * shape.matrix_parameters + scores, rel=0.02)
