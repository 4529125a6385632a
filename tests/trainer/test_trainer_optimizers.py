"""Every optimizer over every mesh: updates as in one process, state as planned, resumed as if never stopped."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from manifests.yaml_config import ConfigError
from tests.trainer import optimizer_trial
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_gradient_batch import make_reference
from tests.trainer.trainer_processes import figures, train_arguments
from trainer import update_rules
from trainer.config import OptimizerConfig
from trainer.optimizer import make_optimizer
from trainer.plan.optimizer_state import StateBytes, state_bytes
from trainer.signals import EXIT_RESUME_ME

HAS_LION = importlib.util.find_spec("lion_pytorch") is not None
lion = pytest.mark.skipif(not HAS_LION, reason="lion-pytorch is an extra")
NAMES = ["adamw", "adafactor", pytest.param("lion", marks=lion)]
# Ranks, replicate, offload: FSDP, replication, HSDP, and 101 rows, 8 examples over 3 ranks.
MESHES = [(1, 1, False), (2, 1, True), (2, 2, False), (3, 1, False), (4, 1, False), (4, 2, False)]


@pytest.fixture(scope="module", params=MESHES, ids=str)
def results(request: pytest.FixtureRequest, forked: ForkedRanks, tmp_path_factory: pytest.TempPathFactory) -> Any:
    ranks, replicate, offload = request.param
    folder = tmp_path_factory.mktemp("updates")
    names = [name for name in update_rules.OPTIMIZERS if name != "lion" or HAS_LION]
    codes, lines = forked.run(
        [str(folder / "out.pt"), str(replicate), str(offload), *names],
        folder / "log",
        ranks=ranks,
        call="tests.trainer.optimizer_trial:steps_over_ranks",
    )
    assert codes == [0] * ranks, lines
    return {"ranks": ranks, "replicate": replicate, **torch.load(folder / "out.pt", weights_only=True)}


@pytest.mark.parametrize("name", NAMES)
def test_updates_over_any_mesh_equal_the_single_process(name: str, results: dict[str, Any]) -> None:
    start, expected = dict(make_reference().named_parameters()), optimizer_trial.reference(name)
    found = results[name]["values"]
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        off = found[key] - value
        if name == "lion":  # the sign of a blend that is zero but for rounding may fall either way
            off[off.abs() == off.abs().max()] = 0.0
        error = off.norm() / (value - start[key]).norm()
        assert error < 2e-5, f"{key} {error:.2e}"


@pytest.mark.parametrize("name", NAMES)
def test_ranks_hold_the_bytes_the_planner_says(name: str, results: dict[str, Any]) -> None:
    planned = state_bytes(make_reference().parameters())[name]
    assert results[name]["state_bytes"] == results["replicate"] * planned.split + results["ranks"] * planned.whole


def test_each_rule_keeps_what_its_algorithm_says() -> None:
    matrix, vector, experts = torch.zeros(6, 10), torch.zeros(7), torch.zeros(4, 6, 10)
    assert state_bytes([matrix, vector]) == {
        "adamw": StateBytes(split=2 * 4 * 67, whole=0),
        "lion": StateBytes(split=4 * 67, whole=0),
        # Six rows and the vector are split as the parameters are, ten columns are not.
        "adafactor": StateBytes(split=4 * (6 + 7), whole=4 * 10),
    }
    assert state_bytes([experts])["adafactor"] == StateBytes(split=4 * 4 * (6 + 10), whole=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_keeps_the_state_it_was_given(name: str) -> None:
    """Our state has torch's names: a rule that did not find it would make another one."""
    model = make_reference()
    optimizer = make_optimizer(model, OptimizerConfig(name=name))
    before = {key: set(state) for key, state in optimizer.state.items()}
    planned = state_bytes(model.parameters())[name].total
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert {key: set(state) for key, state in optimizer.state.items()} == before
    held = sum(value.nbytes for state in optimizer.state.values() for value in state.values() if value.ndim)
    assert held == planned


def test_adafactor_is_not_changed_by_the_scale_of_small_gradients() -> None:
    """torch's default epsilon would drown squares below 1e-7: gradients below 3e-4, as all are of a large model."""
    moved = []
    for scale in (1.0, 2.0**-20):
        weight = torch.nn.Linear(8, 4, bias=False)
        torch.nn.init.constant_(weight.weight, 1.0)
        optimizer = make_optimizer(weight, OptimizerConfig(name="adafactor", weight_decay=0.0))
        optimizer.param_groups[0]["lr"] = 0.01
        weight.weight.grad = scale * torch.arange(32.0).reshape(4, 8)
        optimizer.step()
        moved.append(weight.weight.detach())
    torch.testing.assert_close(moved[0], moved[1])


def test_adafactor_updates_a_matrix_of_fewer_rows_than_ranks(forked: ForkedRanks, tmp_path: Path) -> None:
    """A router's, over many ranks: torch multiplies its row and column means out whole."""
    codes, lines = forked.run(
        [str(tmp_path / "out.pt")], tmp_path / "log", ranks=4, call="tests.trainer.optimizer_trial:few_rows"
    )
    assert codes == [0] * 4, lines
    linear = torch.nn.Linear(8, 3, bias=False)
    optimizer_trial.few_rows_start(linear)
    optimizer = torch.optim.Adafactor(linear.parameters(), eps=(1e-15, 1e-3), weight_decay=0.1)
    optimizer_trial.few_rows_steps(linear, optimizer)
    torch.testing.assert_close(torch.load(tmp_path / "out.pt", weights_only=True), linear.weight.detach())


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_stopped_run_goes_on_bit_for_bit_and_on_other_numbers_of_ranks_with_the_same_loss(
    name: str, forked: ForkedRanks, manifest: str, tmp_path: Path
) -> None:
    settings = (f"optimizer.name={name}", "global_batch=8", "micro_batch=2", "steps=6", "lr=1e-3")

    def run(output: str, ranks: int, *, stop_at: int | None = None) -> None:
        stop = None if stop_at is None else {"call": "trainer.train:train_step", "nth": stop_at, "rank": ranks - 1}
        arguments = train_arguments(manifest, tmp_path / output, *settings)
        codes, lines = forked.run(arguments, tmp_path / "log", ranks=ranks, stop=stop)
        assert codes == [0 if stop is None else EXIT_RESUME_ME] * ranks, lines

    run("unbroken", 2)
    run("again", 2, stop_at=3)
    run("again", 2)
    assert figures(tmp_path / "again") == figures(tmp_path / "unbroken")
    for path in ("final/model.safetensors", "checkpoints/step-6/__0_0.distcp", "checkpoints/step-6/__1_0.distcp"):
        assert (tmp_path / "again" / path).read_bytes() == (tmp_path / "unbroken" / path).read_bytes(), path

    run("elastic", 4, stop_at=2)
    run("elastic", 2, stop_at=2)
    run("elastic", 3)
    same = ("step", "lr", "num_tokens", "batch_digest")
    assert figures(tmp_path / "elastic", same) == figures(tmp_path / "unbroken", same)
    for here, there in zip(figures(tmp_path / "elastic"), figures(tmp_path / "unbroken"), strict=True):
        assert here["loss"] == pytest.approx(there["loss"], abs=1e-5)


def test_a_rule_that_is_not_there_or_has_no_such_setting_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(**settings: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            update_rules.update_rule(OptimizerConfig(**settings))
        return str(caught.value)

    assert refusal(name="adam") == "optimizer.name: 'adam' is not one of adafactor, adamw, lion"
    assert refusal(name="adafactor", betas=(0.9, 0.95)) == (
        "optimizer.betas: (0.9, 0.95) is given and adafactor has none; leave it out"
    )
    monkeypatch.setattr(update_rules, "find_spec", lambda _: None)
    assert refusal(name="lion") == (
        "optimizer.name: lion needs the package lion-pytorch, which is not installed;"
        " python -m pip install lion-pytorch"
    )
    update_rules.update_rule(OptimizerConfig(name="adafactor"))
