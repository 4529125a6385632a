"""Recomputing and compiling change memory and time, never a number; attention by blocks sees what the mask shows."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from manifests import Manifest, load
from manifests.yaml_config import ConfigError
from tests.trainer.trainer_datasets import TINY_MODEL, write_dataset
from tests.trainer.trainer_gradient_batch import make_plan, make_rows
from trainer.attention import Reach, choices, document_block_mask, document_mask
from trainer.blocks import Recompute, blocks, prepare_block
from trainer.config import ModelConfig
from trainer.model import build_model, fill, logits_of, loss_sum_of, plan_model, use_cross_entropy, whole_model
from trainer.parallel import materialize

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return load(write_dataset(tmp_path_factory.mktemp("data"), train=(3,), validation=(1,))).manifest


def gradients_and_saved_bytes(model: Any) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of one step, and bytes of activations that autograd kept for it (weights are not activations)."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    rows = make_rows()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_sum_of(model, rows)
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, sum(saved.values())


def prepared_model(*, recompute: Recompute, compiled: bool) -> Any:
    model = whole_model(make_plan(), seed=0)
    use_cross_entropy(model, "plain")
    for block in blocks(model):
        prepare_block(block, recompute=recompute, compiled=compiled)
    return model


def test_recomputation_keeps_less_and_changes_no_gradient() -> None:
    names = [name for name, _ in build_model(make_plan()).named_parameters()]
    results = {}
    for recompute in RECOMPUTE:
        model = prepared_model(recompute=recompute, compiled=False)
        assert [name for name, _ in model.named_parameters()] == names
        results[recompute] = gradients_and_saved_bytes(model)
    for recompute in RECOMPUTE:
        for name, expected in results["none"][0].items():
            assert torch.equal(results[recompute][0][name], expected), f"{recompute} {name}"
    assert results["full"][1] < results["none"][1] / 2


class ProductCounter(TorchDispatchMode):
    """Counts matrix products that are computed; those that recomputation finds kept never get here."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.mm.default
        return func(*args, **(kwargs or {}))


def test_selective_recomputation_repeats_no_matrix_product() -> None:
    products = {}
    for recompute in RECOMPUTE:
        model = prepared_model(recompute=recompute, compiled=False)
        with ProductCounter() as counter:
            loss_sum_of(model, make_rows()).backward()
        products[recompute] = counter.count
    # 2 blocks x q, k, v, o, gate, up; nothing asks again for what down gave, the block's result.
    assert products["selective"] == products["none"]
    assert products["full"] == products["none"] + 12


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_compiled_blocks_share_one_graph_and_give_the_same_gradients_under_the_same_names(
    recompute: Recompute, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the code generator, which takes a minute: what is tried is that the blocks can be captured as arranged.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    gradients, _ = gradients_and_saved_bytes(prepared_model(recompute=recompute, compiled=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    expected, _ = gradients_and_saved_bytes(prepared_model(recompute="none", compiled=False))
    assert gradients.keys() == expected.keys()
    for name, right in expected.items():
        assert (gradients[name] - right).norm() / right.norm() < 1e-5, name


@pytest.mark.parametrize("reach", [Reach(), Reach(window=2), Reach(chunk=2)])
def test_attention_by_blocks_may_look_where_the_mask_says(reach: Reach) -> None:
    document_ids = torch.tensor([[0, 0, 1, -1, -1], [0, 1, 1, 1, 2]])
    position_ids = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 1, 2, 0]])
    rule = document_block_mask(document_ids, position_ids, reach).mask_mod
    mask = document_mask(document_ids, position_ids, reach)
    for row in range(2):
        for query in range(5):
            for key in range(5):
                assert bool(rule(row, 0, torch.tensor(query), torch.tensor(key))) == bool(mask[row, 0, query, key])


@torch.no_grad()
def test_flex_attention_has_the_logits_of_sdpa(manifest: Manifest) -> None:
    plan = plan_model(ModelConfig(config={**TINY_MODEL, "num_hidden_layers": 1}), manifest)
    rows = make_rows()
    expected = logits_of(whole_model(plan, seed=0), rows)
    model = build_model(copy.deepcopy(plan), attention="flex")
    materialize(model, torch.device("cpu"), {})
    fill(model, plan, seed=0)
    torch.testing.assert_close(logits_of(model.eval(), rows), expected, rtol=1e-5, atol=1e-5)


def test_flex_comes_first_on_cuda_and_what_was_asked_for_is_kept() -> None:
    assert choices("auto", torch.device("cuda", 0)) == ["flex", "sdpa", "eager"]
    assert choices("auto", torch.device("cpu")) == ["sdpa", "eager"]
    assert choices("sdpa", torch.device("cuda", 0)) == ["sdpa"]
    with pytest.raises(ConfigError, match="flex has no backward pass on CPU; give auto, sdpa or eager"):
        choices("flex", torch.device("cpu"))
