"""Gradients over any mesh and any cut of the global batch equal those of one process that knows nothing of ranks."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.trainer_gradient_batch import make_model, make_rows
from trainer.loss import count_labels, token_loss_sum
from trainer.model import logits_of

# REPLICATE:MICRO_BATCH by number of ranks: plain FSDP, 2 x 2 HSDP, pure replication; 1 x 8, 2 x 4, 8 x 1 micro-batches.
CASES = {1: ["1:8", "1:4", "1:1"], 2: ["1:4", "1:1", "2:2"], 4: ["1:2", "2:2", "2:1", "4:1"]}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    model, rows = make_model(first=True), make_rows()
    loss = token_loss_sum(logits_of(model, rows), rows["labels"]) / count_labels(rows["labels"])
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"loss": float(loss.detach()), "gradients": gradients}


@pytest.fixture(scope="module", params=sorted(CASES))
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world_size: int = request.param
    target = tmp_path_factory.mktemp("gradients") / "results.pt"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world_size)]
    worker = ["--module", "tests.trainer.trainer_gradient_worker", str(target), *CASES[world_size]]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, *launch, *worker], check=True, env=environment, cwd=root, timeout=240)
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
    assert cases["2:2"]["all_reduces"] == cases["2:1"]["all_reduces"]
    assert cases["2:2"]["all_reduces"] - cases["1:2"]["all_reduces"] >= cases["2:2"]["groups"]


def test_a_nan_on_one_rank_makes_all_ranks_skip_the_step(results: dict[str, Any]) -> None:
    assert results["applied"] == [False] * results["world_size"]
