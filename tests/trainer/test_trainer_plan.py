"""The planner's arithmetic, held against numbers worked out by hand, and against a real model's bytes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig

from tests.trainer.trainer_datasets import write_dataset
from trainer.blocks import blocks, prepare_block
from trainer.model import ModelPlan, loss_sum_of, use_cross_entropy, whole_model
from trainer.plan.__main__ import SEVEN_BILLION, main
from trainer.plan.cluster import Cluster, Cut
from trainer.plan.epoch import Prices, bill, plan_epoch
from trainer.plan.memory import SCHEMES, activation_bytes, block_activation_bytes, fits, logit_bytes, memory_of
from trainer.plan.mesh import choose_replicas
from trainer.plan.optimizer_state import StateBytes
from trainer.plan.saving import checkpoint_bytes, daly_interval, plan_saving, young_interval
from trainer.plan.shape import Shape, shape_of, shape_of_config
from trainer.plan.speed import step_time, tokens_per_gpu_s

# 7e9 parameters in 32 blocks of 2e8 and a root of 6e8.
ROUND = Shape(
    num_parameters=7_000_000_000,
    active=7_000_000_000,
    embedding=300_000_000,
    head=300_000_000,
    largest_block=200_000_000,
    in_blocks=6_400_000_000,
    num_layers=32,
    hidden_size=4096,
    intermediate_size=11_008,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    vocab_size=128_000,
    state={"adamw": StateBytes(split=56_000_000_000, whole=0), "adafactor": StateBytes(split=40_000, whole=16_000)},
)
CLUSTER, CUT = Cluster(), Cut()


def test_the_shape_of_the_reference_model_is_counted_exactly() -> None:
    shape = shape_of_config(AutoConfig.for_model("llama", **SEVEN_BILLION))
    # Block: q and o 4096 x 4096, k and v 4096 x 1024, three of 4096 x 11776, two norms. Root: two tables, one norm.
    block = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 11_776 + 2 * 4096
    assert shape.largest_block == block
    assert shape.num_parameters == 32 * block + 2 * 129_280 * 4096 + 4096 == 7_032_016_896
    assert shape.matrix_parameters == shape.num_parameters - 129_280 * 4096
    assert shape.root_parameters == 2 * 129_280 * 4096 + 4096
    assert shape.flops_per_token(4096) == 6 * shape.matrix_parameters + 6 * 32 * 4096 * 4096


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_one_table_that_multiplies(tied: bool) -> None:
    keys = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AutoConfig.for_model("qwen2", vocab_size=101, tie_word_embeddings=tied, **keys)
    shape = shape_of_config(config)
    assert shape.head == (0 if tied else 101 * 32)
    assert shape.num_parameters - shape.matrix_parameters == (0 if tied else 101 * 32)
    assert shape == shape_of(whole_model(ModelPlan(config=config, weights=None, words=""), seed=0))


@pytest.mark.parametrize(
    ("scheme", "state_gb"),
    [
        ("replicated", 112.0),  # 16 bytes x 7e9
        ("zero1", 28.0 + 84 / 64),
        ("zero2", 14.0 + 14 / 64 + 84 / 64),
        ("hsdp", 112 / 8),
        ("fsdp", 112 / 64),
        ("offload", 0.0),
    ],
)
def test_each_scheme_holds_its_share_of_16_bytes_a_parameter(scheme: str, state_gb: float) -> None:
    memory = memory_of(scheme, ROUND, CLUSTER, CUT)
    assert (memory.parameters + memory.gradients + memory.optimizer) / 1e9 == pytest.approx(state_gb)
    assert memory.host / 1e9 == (14.0 if scheme == "offload" else 0.0)


def test_gathering_takes_three_groups_and_the_root_in_16_bits_and_one_group_in_fp32() -> None:
    assert memory_of("hsdp", ROUND, CLUSTER, CUT).gathered == 2 * (6e8 + 3 * 2e8) + 4 * 2e8
    assert memory_of("replicated", ROUND, CLUSTER, CUT).gathered == 0.0


def test_replication_does_not_fit_80_gib_and_sharding_inside_a_node_does() -> None:
    fitting = {scheme: fits(memory_of(scheme, ROUND, CLUSTER, CUT), CLUSTER) for scheme in SCHEMES}
    assert fitting == {
        "replicated": False, "zero1": True, "zero2": True, "hsdp": True, "fsdp": True, "offload": True
    }  # fmt: skip
    small = Cluster(host_bytes=100e9)
    assert not fits(memory_of("offload", ROUND, small, CUT), small)


def test_a_mesh_left_open_is_a_copy_a_node_where_it_fits_and_one_in_all_where_not() -> None:
    assert choose_replicas(ROUND, CLUSTER, CUT)[0] == 8
    replicas, reason = choose_replicas(ROUND, Cluster(gpu_bytes=40e9), CUT)
    assert replicas == 1
    assert reason == "a copy a node takes 44.2 of 34.3 GiB a GPU, so one copy is split over all"
    assert choose_replicas(ROUND, Cluster(num_nodes=1, gpu_bytes=1e9), CUT) == (1, "one node")


def test_logits_in_chunks_do_not_grow_with_the_batch() -> None:
    plain = [logit_bytes(ROUND, Cut(cross_entropy="plain", micro_batch=size)) for size in (1, 4)]
    assert plain == [4096 * 128_000 * 14, 4 * 4096 * 128_000 * 14]
    chunked = [logit_bytes(ROUND, Cut(micro_batch=size)) for size in (1, 4)]
    assert chunked[0] == chunked[1] == 2**26 * 10 + 128_000 * 4096 * 6


def make_model(recompute: Any, dtype: torch.dtype) -> tuple[Any, dict[str, torch.Tensor]]:
    keys = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8}
    config = AutoConfig.for_model("llama", vocab_size=101, max_position_embeddings=256, **keys)
    model = whole_model(ModelPlan(config=config, weights=None, words=""), seed=0).to(dtype)
    use_cross_entropy(model, "chunked")
    for block in blocks(model):
        prepare_block(block, recompute=recompute, compiled=False)
    ids = torch.arange(256)[None] % 101
    return model, {"input_ids": ids, "labels": ids, "position_ids": torch.arange(256)[None], "document_ids": 0 * ids}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_activations_are_within_5_percent_of_what_autograd_keeps(dtype: torch.dtype) -> None:
    model, batch = make_model("none", dtype)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights and tensor.dtype != torch.bool:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_sum_of(model, batch)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    cut = Cut(seq_len=256, micro_batch=1, recompute="none", compute_bytes=dtype.itemsize)
    assert activation_bytes(shape_of(model), cut) == pytest.approx(measured, rel=0.05)


def test_selective_recomputation_is_planned_at_exactly_what_it_keeps() -> None:
    class Kept(TorchDispatchMode):
        num_bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.mm.default or "scaled_dot_product" in func.__name__:
                outputs = result if isinstance(result, tuple) else (result,)
                self.num_bytes += sum(output.nbytes for output in outputs if isinstance(output, torch.Tensor))
            return result

    model, batch = make_model("selective", torch.bfloat16)
    with Kept() as kept:
        model.base_model(input_ids=batch["input_ids"], use_cache=False)
    inputs = 4 * 256 * 256 * 2
    assert kept.num_bytes + inputs == 4 * 256 * block_activation_bytes(shape_of(model), "selective", 2)


def test_a_step_is_its_arithmetic_and_what_exchanges_do_not_hide() -> None:
    step = step_time("hsdp", ROUND, CLUSTER, CUT, tokens_per_gpu_s=10_000)
    # 4,194,304 tokens / 64 GPUs / 10,000 a second, in 8 passes.
    assert step.compute == pytest.approx(6.5536)
    # 8 passes x 8 bytes x 7e9 x 7/8 at 300 GB/s; 2 x 7/8 x 4 bytes x 7e9 at 50 GB/s.
    assert step.shard == pytest.approx(8 * 8 * 7e9 * 7 / 8 / 300e9) == pytest.approx(1.30667, rel=1e-4)
    assert step.replica == pytest.approx(0.98)
    # The last of 8 backward passes takes 2/3 of 0.8192 s; the rest of the all-reduce shows.
    assert step.total == pytest.approx(6.5536 + 0.98 - 2 / 3 * 0.8192)
    assert step.efficiency == pytest.approx(0.938, abs=5e-4)


def test_sharding_over_all_nodes_waits_for_the_network() -> None:
    step = step_time("fsdp", ROUND, CLUSTER, CUT, tokens_per_gpu_s=10_000)
    assert step.shard == pytest.approx(8 * 8 * 7e9 * 63 / 64 / 50e9)
    assert step.total == step.shard > step.compute
    one_node = step_time("fsdp", ROUND, Cluster(num_nodes=1), Cut(global_batch=128), tokens_per_gpu_s=10_000)
    assert one_node.total == one_node.compute


def test_offload_pays_for_the_way_to_host_memory_and_for_its_update() -> None:
    step = step_time("offload", ROUND, CLUSTER, CUT, tokens_per_gpu_s=10_000)
    assert step.moves == pytest.approx(8 * 12 * 7e9 / 8 / 20e9)
    assert step.update == pytest.approx(28 * 7e9 / 300e9)
    assert step.total > step_time("hsdp", ROUND, CLUSTER, CUT, tokens_per_gpu_s=10_000).total


def test_tokens_a_second_follow_from_the_peak_and_full_recomputation_costs_a_quarter() -> None:
    rate = tokens_per_gpu_s(ROUND, CUT, peak_flops=1e15, mfu=0.4)
    assert rate == pytest.approx(0.4e15 / (6 * 6.7e9 + 6 * 32 * 4096 * 4096))
    assert tokens_per_gpu_s(ROUND, Cut(recompute="full"), peak_flops=1e15, mfu=0.4) == pytest.approx(0.75 * rate)


def test_the_interval_of_young_and_daly() -> None:
    assert young_interval(10, 86_400) == pytest.approx(1314.534, abs=1e-3)
    assert daly_interval(10, 86_400) == pytest.approx(1307.87, abs=0.01)
    assert daly_interval(3000, 1000) == 1000


@given(cost=st.floats(0.01, 600), failures=st.floats(0.01, 50))
def test_no_other_interval_loses_less_than_the_best_one(cost: float, failures: float) -> None:
    saving = plan_saving(84e9, stall=cost, write_bytes_per_s=1e15, restart=0.0, failures_per_day=failures)
    best = saving.lost_fraction(young_interval(cost, 86_400 / failures))
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert saving.lost_fraction(factor * young_interval(cost, 86_400 / failures)) > best


def test_a_checkpoint_every_25_minutes_with_a_failure_a_day() -> None:
    saving = plan_saving(84e9, stall=0.5, write_bytes_per_s=2e9, restart=300, failures_per_day=1)
    assert saving.checkpoint_bytes == checkpoint_bytes(ROUND, "adamw") == 84e9
    assert saving.write == 42.0
    # 0.5 / 1500 + (750 + 42 + 300) / 86400
    assert saving.lost_fraction(1500) == pytest.approx(0.012972, abs=1e-6)
    assert saving.mean_bandwidth(1500) == 56e6
    slow = plan_saving(84e9, stall=0.5, write_bytes_per_s=1e8, restart=300, failures_per_day=1)
    assert slow.best_interval == slow.write == 840.0


def test_the_epoch_against_the_deadline_in_words_of_share_machines_and_days() -> None:
    epoch = plan_epoch(
        tokens=1.8e12, tokens_per_step=4_000_000, step_seconds=6.25, lost_fraction=0.0,
        deadline=5 * 86_400, num_gpus=64, num_nodes=8, token_bytes=4,
    )  # fmt: skip
    assert (epoch.steps, epoch.tokens_per_s) == (450_000, 640_000)
    assert not epoch.fits
    assert epoch.share == pytest.approx(0.1536)
    assert epoch.gpus_needed == 417
    assert epoch.loader_bytes_per_s == 320_000


def test_the_bill() -> None:
    prices = Prices(gpu_hour=2.0, gb_month=0.03, gb_traffic=0.01)
    result = bill(num_gpus=64, seconds=5 * 86_400, stored_bytes=8e12, read_bytes=1e12, prices=prices)
    assert (result.gpu_hours, result.gpus, result.storage, result.traffic) == (7680, 15_360, 40.0, 10.0)
    assert result.total == 15_410


def test_the_reference_case_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tokens-per-gpu-s", "10000"]) == 1
    text = capsys.readouterr().out
    assert "7.03 billion parameters on 8 x 8 GPUs of 80 GiB, 1,818 billion tokens in 5 days" in text
    assert "hsdp               3.3        3.3        6.5       3.7         24.2     5.6   42.9   yes" in text
    assert "It does not fit the 5.0 days: by then 14.1% of the epoch is seen, 257 billion tokens." in text
    assert all(len(line) <= 130 for line in text.splitlines())


def test_the_documented_answer_is_the_programs(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    main(["--tokens-per-gpu-s", "10000"])
    page = (repository / "docs" / "planning.md").read_text(encoding="utf-8")
    shown = "\n".join(f"    {line}" if line else "" for line in capsys.readouterr().out.rstrip("\n").split("\n"))
    assert shown in page


def test_a_manifest_and_a_model_stand_before_the_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = write_dataset(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 101, "hidden_size": 64, "num_hidden_layers": 2}))
    assert main(["--model", str(config), "--manifest", manifest, "--nodes", "1", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["question"]["tokens"] == 42 * 32
    assert values["question"]["cut"]["seq_len"] == 32
    assert values["question"]["token_bytes"] == 2
    assert values["chosen"] == "replicated"
    assert values["epoch"]["fits"] is True


def test_a_wrong_request_is_one_line(tmp_path: Path, repository: Path) -> None:
    for options, message in (
        (["--nodes", "0"], "argument --nodes: 0 is not between 1 and 1e+12"),
        (["--model", str(tmp_path / "none")], "--model: "),
        (["--gpu", "H100"], "argument --gpu: invalid choice: 'H100'"),
    ):
        result = subprocess.run(
            [sys.executable, "-m", "trainer.plan", *options],
            cwd=repository,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 2
        assert result.stderr.startswith(f"python -m trainer.plan: {message}")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_attention_heads": 0}, "model.config: transformers refuses model_type 'llama': "),
        ({"dtype": "no such"}, "model.config: transformers refuses model_type 'llama': "),
        ({"hidden_act": "no such"}, "model: transformers makes no llama: 'no such'"),
    ],
)
def test_a_model_that_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], said: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **keys}))
    assert main(["--model", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"python -m trainer.plan: {said}")
    assert error.count("\n") == 1


def test_a_cluster_that_only_fails_is_no_plan_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """A failure each 216 s, after each of which 300 s are lost."""
    assert main(["--failures-per-day", "400", "--deadline-days", "1000"]) == 2
    assert "with a failure each 216 s and a checkpoint every " in capsys.readouterr().err


@pytest.mark.parametrize(
    "setting", ["--gpu-gib=nan", "--deadline-days=inf", "--corpus-tb=1e300", "--gb-month-price=-1"]
)
def test_a_number_beyond_all_reason_is_refused(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([setting])
    assert ended.value.code == 2
    name, _, value = setting.partition("=")
    assert f"argument {name}: {value} is not between " in capsys.readouterr().err


def test_a_manifest_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = str(tmp_path / "v1.json")
    assert main(["--manifest", gone]) == 2
    assert capsys.readouterr().err == (
        f"python -m trainer.plan: --manifest: {gone} does not exist; give <root>/manifests/<version>.json\n"
    )
