"""Gradients over any mesh and any cut of the global batch equal those of one process that knows nothing of ranks."""

from typing import Any

import pytest
import torch

from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_gradient_batch import make_reference, make_rows
from trainer.loss import count_labels
from trainer.model import loss_sum_of

# REPLICATE:MICRO_BATCH:CROSS_ENTROPY:RECOMPUTE[:offload] by number of ranks: plain FSDP, 2 x 2 HSDP, pure replication;
# 1 x 8, 2 x 4, 8 x 1 micro-batches; every way to compute the loss, to recompute activations and to keep the weights.
CASES = {
    1: ["1:8:plain:none", "1:4:chunked:selective", "1:1:chunked:full", "1:8:plain:none:offload"],
    2: ["1:4:plain:none", "1:1:chunked:selective", "2:2:chunked:none", "1:2:chunked:full:offload"],
    4: ["1:2:plain:none", "2:2:chunked:none", "2:1:chunked:none", "4:1:plain:none", "2:1:chunked:selective:offload"],
}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    model, rows = make_reference(), make_rows()
    loss = loss_sum_of(model, rows) / count_labels(rows["labels"])
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"loss": float(loss.detach()), "gradients": gradients}


@pytest.fixture(scope="module", params=sorted(CASES))
def results(
    request: pytest.FixtureRequest, forked: ForkedRanks, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    world_size: int = request.param
    folder = tmp_path_factory.mktemp("gradients")
    target = folder / "results.pt"
    codes, lines = forked.run(
        [str(target), *CASES[world_size]],
        folder / "log",
        ranks=world_size,
        call="tests.trainer.trainer_gradient_worker:main",
    )
    assert codes == [0] * world_size, lines
    return {"world_size": world_size, **torch.load(target, weights_only=True)}


def test_loss_and_gradients_equal_the_single_process(results: dict[str, Any], reference: dict[str, Any]) -> None:
    for case, result in results["cases"].items():
        assert result["loss"] == pytest.approx(reference["loss"], rel=1e-6), case
        assert result["gradients"].keys() == reference["gradients"].keys()
        for name, expected in reference["gradients"].items():
            error = (result["gradients"][name] - expected).norm() / expected.norm()
            assert error < 1e-6, f"{case} {name}: {error:.2e}"


def test_every_rank_sees_the_norm_of_the_whole_gradient(results: dict[str, Any]) -> None:
    for result in results["cases"].values():
        assert len(set(result["norms"])) == 1
        assert result["norms"][0] == pytest.approx(result["norm_of_gathered"], rel=1e-6)


@pytest.mark.parametrize("results", [4], indirect=True)
def test_replicas_exchange_once_a_step_however_many_micro_batches(results: dict[str, Any]) -> None:
    cases = results["cases"]
    unreplicated, one_pass, two_passes = (cases[name] for name in CASES[4][:3])
    assert one_pass["all_reduces"] == two_passes["all_reduces"]
    assert one_pass["all_reduces"] - unreplicated["all_reduces"] >= one_pass["groups"]


def test_a_nan_on_one_rank_makes_all_ranks_skip_the_step(results: dict[str, Any]) -> None:
    assert results["applied"] == [False] * results["world_size"]
