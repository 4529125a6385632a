"""16-bit steps: gradients near those of fp32, fp16 through its loss scale, and overflows that move nothing."""

import math
from typing import Any

import pytest
import torch

from tests.trainer.trainer_gradient_batch import make_plan, make_reference, make_rows
from tests.trainer.trainer_gradient_worker import Recorder
from trainer.config import MeshConfig
from trainer.loss import count_labels
from trainer.loss_scale import FIRST
from trainer.model import build_model, fill, loss_sum_of, use_cross_entropy
from trainer.parallel import make_mesh, process_group, shard_model
from trainer.step import StepResult, train_step


def one_step(precision: Any, loss_scale: float, clip_norm: float | None = None) -> tuple[StepResult, Recorder]:
    rows = make_rows()
    with process_group() as ranks:
        model = build_model(make_plan())
        use_cross_entropy(model, "chunked")
        shard_model(model, make_mesh(MeshConfig(), ranks), precision)
        fill(model, make_plan(), seed=0)
        recorder = Recorder(model)
        result = train_step(
            model,
            recorder,
            [{name: column[part : part + 4] for name, column in rows.items()} for part in (0, 4)],
            num_tokens=count_labels(rows["labels"]),
            rate=0.0,
            clip_norm=clip_norm,
            device=ranks.device,
            loss_scale=loss_scale,
        )
    return result, recorder


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    model, rows = make_reference(), make_rows()
    (loss_sum_of(model, rows) / count_labels(rows["labels"])).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(("precision", "scale", "tolerance"), [("bf16", 1.0, 3e-2), ("fp16", FIRST, 4e-3)])
def test_gradients_are_fp32_and_near_the_exact_ones(
    precision: str, scale: float, tolerance: float, expected: dict[str, torch.Tensor]
) -> None:
    result, recorder = one_step(precision, scale)
    assert result.applied
    norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in expected.values()]))
    assert result.grad_norm == pytest.approx(float(norm), rel=tolerance)
    for name, right in expected.items():
        gradient = recorder.gradients[name]
        assert gradient.dtype == torch.float32
        assert (gradient - right).norm() / right.norm() < tolerance, name


def test_a_scale_changes_no_bit_in_fp32_nor_where_gradients_are_clipped() -> None:
    plain, of_plain = one_step("fp32", 1.0, clip_norm=0.1)
    scaled, of_scaled = one_step("fp32", 2.0**16, clip_norm=0.1)
    assert scaled == plain
    for name, gradient in of_plain.gradients.items():
        assert torch.equal(of_scaled.gradients[name], gradient), name


def test_an_overflow_leaves_the_weights_and_the_loss_stays_known() -> None:
    result, recorder = one_step("fp16", 2.0**40)
    assert not result.applied
    assert recorder.gradients == {}
    assert math.isfinite(result.loss)
    assert not math.isfinite(result.grad_norm)
