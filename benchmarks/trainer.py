"""The trainer on one device: tokens/s, MFU, memory against the planner, data wait, checkpoint stall, GPU utilisation.

    python benchmarks/trainer.py [--manifest M] [--steps 60] [--layers N] [--set key=value]... [--save]

Trains a Llama-shaped model, the largest that the planner finds room for (GPU memory, and disk for its checkpoints), in
bf16 with compile and selective recomputation, by the real command, fed from real shards by the loader. The peak is
measured here, as the rate of large matrix products, and MFU is of that. Without a GPU a tiny model shows that the
script works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import load_in_words, save, this_machine, today
from manifests import ExampleFormat, load
from tests.datasets import EOS, no_tokenizer, write_manifest, write_split
from trainer.journal import read_rows
from trainer.observer import quantile
from trainer.plan.cluster import GIB, Cluster, Cut
from trainer.plan.memory import Memory, memory_of
from trainer.plan.shape import Shape, shape_of_config
from trainer.timeline import read_events

REPOSITORY = Path(__file__).resolve().parents[1]
# The first steps compile and fill caches.
WARM_UP = 10
DOCUMENT_TOKENS = 600
VOCAB_SIZE = 129_280
LARGE = {"hidden_size": 4096, "intermediate_size": 11_776, "num_attention_heads": 32, "num_key_value_heads": 8}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}


def main() -> int:
    options = _options()
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        manifest = options.manifest or _make_data(folder / "data", 4096 if on_gpu else 256, options.steps)
        seq_len = load(manifest).manifest.example.seq_len
        cut = Cut(seq_len=seq_len, global_batch=options.batch, micro_batch=options.micro_batch)
        cluster = Cluster(num_nodes=1, gpus_per_node=1, gpu_bytes=_device_bytes(on_gpu))
        layers = options.layers or _most_layers(LARGE if on_gpu else TINY, cluster, cut, shutil.disk_usage(folder).free)
        keys = _model_keys(LARGE if on_gpu else TINY, layers)
        shape = _shape(keys)
        planned = memory_of("fsdp", shape, cluster, cut)
        peak = _measured_peak(on_gpu)
        _train(folder / "run", manifest, keys, options, compiled=on_gpu)
        result = _figures(folder / "run", shape, cut, planned, peak)
    text = "\n".join(_table(result, shape, cut, on_gpu)) + "\n"
    sys.stdout.write(text)
    if options.save:
        sys.stdout.write(f"{save('trainer', this_machine(), text, result)}\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", help="real shards; default: random tokens written as shards here")
    parser.add_argument("--steps", type=int, default=60, help="(60)")
    parser.add_argument("--batch", type=int, default=8, help="examples a step (8)")
    parser.add_argument("--micro-batch", type=int, default=2, help="examples a pass (2)")
    parser.add_argument("--layers", type=int, help="blocks; default: as many as fit")
    parser.add_argument("--folder", help="where shards and checkpoints are kept meanwhile; default: the temporary one")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="passed on to trainer/train.py")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    return parser.parse_args()


def _device_bytes(on_gpu: bool) -> float:
    return float(torch.cuda.get_device_properties(0).total_memory) if on_gpu else 4 * GIB


def _make_data(root: Path, seq_len: int, steps: int) -> str:
    """Random tokens with a document end about every 600, in shards of 64 examples: speed does not ask what they say."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(max(2, min(steps, 32) // 8)):
        shard = random.integers(EOS + 1, VOCAB_SIZE, (64, seq_len), dtype=np.uint32)
        shard[random.random(shard.shape) < 1 / DOCUMENT_TOKENS] = EOS
        rows.append(shard)
    example = ExampleFormat(seq_len=seq_len, dtype="uint32", packing="concat")
    splits = {"train": write_split(str(root), rows, example=example, folder="shards/train")}
    manifest = write_manifest(str(root), splits, example=example, tokenizer=no_tokenizer(VOCAB_SIZE))
    tokenizer = root / load(manifest).manifest.tokenizer.path
    tokenizer.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.write_text("{}")  # the export copies it
    return manifest


def _model_keys(base: dict[str, int], layers: int) -> dict[str, Any]:
    return {"model_type": "llama", "tie_word_embeddings": False, **base, "num_hidden_layers": layers}


def _shape(keys: dict[str, Any]) -> Shape:
    values = {key: value for key, value in keys.items() if key != "model_type"}
    return shape_of_config(AutoConfig.for_model("llama", vocab_size=VOCAB_SIZE, **values))


def _most_layers(base: dict[str, int], cluster: Cluster, cut: Cut, free_disk: float) -> int:
    """As many blocks, 32 at most, as the planner fits into the GPU, and two checkpoints and the export on disk."""
    for layers in range(32, 0, -1):
        shape = _shape(_model_keys(base, layers))
        on_disk = (2 * 12 + 4) * shape.num_parameters
        if memory_of("fsdp", shape, cluster, cut).total <= cluster.usable_bytes and on_disk <= 0.8 * free_disk:
            return layers if base is LARGE else min(layers, 2)
    raise SystemExit("benchmarks/trainer.py: not even one block fits: free disk space, or give --folder elsewhere")


def _measured_peak(on_gpu: bool) -> float:
    """FLOP/s of bf16 products of two square matrices, the median of ten: what this chip reaches on arithmetic alone."""
    size, device = (8192, "cuda") if on_gpu else (512, "cpu")
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for number in range(15):
        _synchronize(on_gpu)
        started = time.perf_counter()
        torch.mm(left, right)
        _synchronize(on_gpu)
        if number >= 5:
            seconds.append(time.perf_counter() - started)
    return 2.0 * size**3 / quantile(seconds, 0.5)


def _synchronize(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def _train(run: Path, manifest: str, keys: dict[str, Any], options: argparse.Namespace, *, compiled: bool) -> None:
    settings = [
        *(f"model.config.{key}={json.dumps(value)}" for key, value in keys.items()),
        f"output={run}",
        f"steps={options.steps}",
        f"global_batch={options.batch}",
        f"micro_batch={options.micro_batch}",
        "precision=bf16",
        "recompute=selective",
        f"compile={json.dumps(compiled)}",
        f"checkpoint.steps={max(1, options.steps // 3)}",
        "checkpoint.keep=1",
        *options.settings,
    ]
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    command = [sys.executable, "trainer/train.py", "--manifest", manifest, *arguments]
    subprocess.run(command, cwd=REPOSITORY, check=True)


def _figures(run: Path, shape: Shape, cut: Cut, planned: Memory, peak: float) -> dict[str, Any]:
    """Medians of the steps after the warm-up; None where a GPU would be needed."""
    every = read_rows(run / "metrics.jsonl")
    config = json.loads((run / "run.json").read_text(encoding="utf-8"))["config"]
    rows = [row for row in every if row["step"] > WARM_UP] or every
    saves = [event["seconds"] for event in read_events(run / "timeline.jsonl") if event["kind"] == "save"]
    tokens_per_s = quantile([row["tokens_per_s"] for row in rows], 0.5)
    used = [row["memory_peak_bytes"] for row in rows if "memory_peak_bytes" in row]
    busy = [row["gpu_utilisation"] for row in rows if "gpu_utilisation" in row]
    return {
        "num_parameters": shape.num_parameters,
        "num_layers": shape.num_layers,
        "precision": config["precision"],
        "tokens_per_s": tokens_per_s,
        "measured_peak_flops": peak,
        "mfu_of_measured_peak": tokens_per_s * shape.flops_per_token(cut.seq_len) / peak,
        "step_s_p50": quantile([row["seconds"] for row in rows], 0.5),
        "step_s_p95": quantile([row["seconds"] for row in rows], 0.95),
        "data_wait_fraction": sum(row["data_wait_s"] for row in rows) / sum(row["seconds"] for row in rows),
        # The last save is waited for; those before it show what the steps were held for.
        "save_stall_s": quantile(saves[:-1] or saves, 0.5),
        "memory_peak_bytes": max(used, default=None),
        "memory_planned_bytes": planned.total,
        "gpu_utilisation": sum(busy) / len(busy) if busy else None,
    }


def _stall(result: dict[str, Any]) -> str:
    """Of a step, and of all time at the default of a checkpoint every 25 minutes."""
    stall = result["save_stall_s"]
    return f"{stall:.2f} s: {stall / result['step_s_p50']:.1%} of a step, {stall / 1500:.4%} of the time at the default"


def _table(result: dict[str, Any], shape: Shape, cut: Cut, on_gpu: bool) -> Iterator[str]:
    used, planned, busy = (result[k] for k in ("memory_peak_bytes", "memory_planned_bytes", "gpu_utilisation"))
    device = (
        torch.cuda.get_device_name(0)
        if on_gpu
        else "CPU: a trial of the script; of its figures only the stall says something"
    )
    yield f"# The trainer on one device, {today()}"
    yield ""
    yield f"{device}; load {load_in_words()}."
    yield (
        f"Llama shape, {shape.num_parameters / 1e9:.2f} billion parameters, {shape.num_layers} blocks of"
        f" {shape.hidden_size}; seq_len {cut.seq_len}, {cut.global_batch} examples a step,"
        f" micro-batch {cut.micro_batch}; {result['precision']}, selective recomputation."
    )
    yield ""
    yield "| what | measured | target |"
    yield "|---|---|---|"
    rows: Sequence[tuple[str, str, str]] = (
        ("tokens/s", f"{result['tokens_per_s']:,.0f}", ""),
        ("matrix peak, measured", f"{result['measured_peak_flops'] / 1e12:,.1f} TFLOP/s", ""),
        ("MFU of it", f"{result['mfu_of_measured_peak']:.3f}", "0.50"),
        ("step p50 / p95", f"{result['step_s_p50']:.3f} / {result['step_s_p95']:.3f} s", ""),
        ("data wait", f"{result['data_wait_fraction']:.3%}", "under 0.5 %"),
        ("step held by a checkpoint", _stall(result), "under 1 s"),
        (
            "peak memory / planned",
            "not known" if used is None else f"{used / GIB:.1f} / {planned / GIB:.1f} GiB ({used / planned - 1:+.1%})",
            "within 10 %",
        ),
        ("GPU utilisation", "not known" if busy is None else f"{busy:.0%}", ""),
    )
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.exit(main())
