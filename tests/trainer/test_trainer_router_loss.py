"""The router's loss is transformers' own where the config asks for it, and does not change with the cut of a batch."""

from typing import Any

import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from tests.trainer.family_sizes import small_config
from tests.trainer.family_trial import make_batch
from trainer.loss import count_labels
from trainer.model import ModelPlan, logits_of, loss_sum_of, use_cross_entropy, whole_model
from trainer.router_loss import balance_sum, balance_words

ROUTED = {"output_router_logits": True, "router_aux_loss_coef": 0.5}


def make_model(**keys: Any) -> Any:
    model = whole_model(ModelPlan(config=small_config("mixtral", keys), weights=None, words=""), seed=0)
    with torch.no_grad():  # drawn weights choose experts almost evenly
        for name, parameter in model.named_parameters():
            if "gate.weight" in name:
                parameter.mul_(100.0)
    return model


def rows_of(batch: dict[str, torch.Tensor], rows: slice) -> dict[str, torch.Tensor]:
    return {name: column[rows] for name, column in batch.items()}


def test_the_balance_of_a_row_is_transformers_own() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = tuple(torch.randn(7, 5, generator=draw) for _ in range(3))
    labels = torch.tensor([[4, -100, 5, 6, -100, 7, 8]])
    expected = load_balancing_loss_func(logits, 5, 2, (labels != -100).long())
    assert isinstance(expected, torch.Tensor)
    assert float(balance_sum(logits, labels, 2)) == pytest.approx(5 * float(expected), rel=1e-6)
    even = tuple(torch.zeros(7, 5) for _ in range(3))
    assert float(balance_sum(even, labels, 2)) == pytest.approx(5 * 2.0)  # least: the number of experts chosen


def test_rows_without_labels_add_nothing() -> None:
    logits = (torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True),)
    loss = balance_sum(logits, torch.full((2, 3), -100), 2)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits[0].grad is not None
    assert not logits[0].grad.any()


@pytest.mark.parametrize("kind", ["plain", "chunked"])
def test_a_step_has_the_loss_and_gradients_of_transformers_with_its_router_loss(kind: Any) -> None:
    ours, theirs = make_model(**ROUTED), make_model(**ROUTED)
    use_cross_entropy(ours, kind)
    row = rows_of(make_batch(), slice(0, 1))
    row["document_ids"] = torch.zeros_like(row["document_ids"])
    row["position_ids"] = torch.arange(row["labels"].shape[1])[None]
    row["labels"] = row["input_ids"].roll(-1, dims=1)
    count = count_labels(row["labels"])
    loss_sum_of(ours, row).backward()
    # transformers shifts labels by itself, and means over those that are left.
    answer = theirs(input_ids=row["input_ids"], use_cache=False, output_router_logits=True)
    token_losses = torch.nn.functional.cross_entropy(answer.logits[0], row["labels"][0], reduction="sum")
    (token_losses + count * 0.5 * answer.aux_loss).backward()
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_the_loss_of_a_batch_is_that_of_its_rows_however_it_is_cut() -> None:
    model, batch = make_model(**ROUTED), make_batch()
    use_cross_entropy(model, "plain")
    whole = float(loss_sum_of(model, batch).detach())
    rows = [float(loss_sum_of(model, rows_of(batch, slice(row, row + 1))).detach()) for row in range(4)]
    assert sum(rows) == pytest.approx(whole, rel=1e-6)
    without = make_model(router_aux_loss_coef=0.5)
    use_cross_entropy(without, "plain")
    assert whole - float(loss_sum_of(without, batch).detach()) > 0.5 * 2.0 * count_labels(batch["labels"]) * 0.99


def test_validation_and_logits_know_nothing_of_it() -> None:
    model, without, batch = make_model(**ROUTED), make_model(), make_batch()
    for one in (model, without):
        use_cross_entropy(one, "chunked")
    with torch.no_grad():
        assert float(loss_sum_of(model, batch)) == float(loss_sum_of(without, batch))
        assert torch.equal(logits_of(model, batch), logits_of(without, batch))


def test_what_the_config_asks_for_is_said() -> None:
    assert balance_words(small_config("llama", {})) is None
    assert balance_words(small_config("mixtral", ROUTED)) == (
        "router: 0.5 x the balance of its experts is added to the loss, as its config asks"
    )
    assert "nothing is added to the loss" in (balance_words(small_config("mixtral", {})) or "")
