"""python -m trainer.plan: memory, speed, checkpoints, deadline and bill, before anything is rented.

Exit codes: 0 the epoch fits the deadline on these machines; 1 it does not; 2 the request is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from manifests.command_line import OneLineParser, end_process
from manifests.errors import UserError
from manifests.manifest import load
from trainer.hardware import PEAK_FLOPS_16_BIT
from trainer.model import check_kind, read_architecture
from trainer.plan.answer import Question, answer
from trainer.plan.cluster import GB, GIB, Cluster, Cut
from trainer.plan.epoch import DAY, Prices
from trainer.plan.render import render
from trainer.plan.shape import Shape, shape_of_config
from trainer.plan.speed import tokens_per_gpu_s
from trainer.update_rules import OPTIMIZERS

# Llama-shaped, 7.03 billion parameters with the tokenizer of the reference case.
SEVEN_BILLION: dict[str, Any] = {
    "vocab_size": 129_280,
    "hidden_size": 4096,
    "intermediate_size": 11_776,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}

_EXAMPLES = """\
examples:
  python -m trainer.plan                                     # 7 billion parameters, 8 x 8 x 80 GB, 8 TB, 5 days
  python -m trainer.plan --model /models/my-7b --manifest data/manifests/v3.json --nodes 16
  python -m trainer.plan --save-s 0.4 --write-gb-per-s 3     # as measured in timeline.jsonl of a short run
"""


def main(arguments: Sequence[str]) -> int:
    """The command; a wrong request is one line on standard error and exit code 2."""
    options = _parser().parse_args(arguments)
    try:
        result = answer(_question(options))
    except UserError as error:
        sys.stderr.write(f"python -m trainer.plan: {error}\n")
        return 2
    sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n" if options.json else render(result))
    return 0 if result.chosen is not None and result.epoch.fits else 1


def _question(options: argparse.Namespace) -> Question:
    shape, seq_len = _shape(options.model), options.seq_len
    tokens, token_bytes = options.corpus_tb * 1e12 / options.bytes_per_token, 4 if shape.vocab_size >= 65_535 else 2
    if options.manifest is not None:
        try:
            manifest = load(options.manifest).manifest
        except FileNotFoundError as error:
            raise UserError(
                f"--manifest: {options.manifest} does not exist; give <root>/manifests/<version>.json"
            ) from error
        seq_len, token_bytes = manifest.example.seq_len, manifest.example.itemsize
        tokens = float(manifest.splits["train"].num_tokens) if "train" in manifest.splits else 0.0
        if not tokens:
            raise UserError(f"--manifest: {options.manifest} has no train split to plan for")
    cut = Cut(
        seq_len=seq_len,
        global_batch=options.global_batch,
        micro_batch=options.micro_batch,
        recompute=options.recompute,
        cross_entropy=options.cross_entropy,
        compute_bytes=4 if options.precision == "fp32" else 2,
        optimizer=options.optimizer,
    )
    rate = options.tokens_per_gpu_s
    if rate is None:
        rate = tokens_per_gpu_s(shape, cut, peak_flops=PEAK_FLOPS_16_BIT[options.gpu], mfu=options.mfu)
    return Question(
        shape=shape,
        cluster=Cluster(
            num_nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            gpu_bytes=options.gpu_gib * GIB,
            host_bytes=options.host_gib * GIB,
            gpu_link=options.gpu_gb_per_s * GB,
            node_link=options.node_gb_per_s * GB,
        ),
        cut=cut,
        tokens=tokens,
        token_bytes=token_bytes,
        tokens_per_gpu_s=rate,
        deadline=options.deadline_days * DAY,
        failures_per_day=options.failures_per_day,
        write_bytes_per_s=options.write_gb_per_s * GB,
        restart=options.restart_s,
        stall=options.save_s,
        interval=None if options.interval_minutes is None else options.interval_minutes * 60,
        kept=options.keep,
        prices=Prices(
            gpu_hour=options.gpu_hour_price, gb_month=options.gb_month_price, gb_traffic=options.gb_traffic_price
        ),
    )


def _shape(model: str | None) -> Shape:
    if model is None:
        return shape_of_config(AutoConfig.for_model("llama", **SEVEN_BILLION))
    config = read_architecture(Path(model), "--model")
    check_kind(config)
    return shape_of_config(config)


# Of any option: what lies beyond is a slip, and would overflow further on.
_LEAST, _MOST = 1e-6, 1e12


def _positive(kind: type, least: float = _LEAST) -> Any:
    def read(text: str) -> Any:
        value = kind(text)
        if not least <= value <= _MOST:  # NaN compares false
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {_MOST:g}")
        return value

    read.__name__ = kind.__name__
    return read


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m trainer.plan",
        description="What fits, how long it takes, how often to save. Without options: the reference case.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    number, count, price = _positive(float), _positive(int, 1), _positive(float, 0)
    add("--model", metavar="PATH", help="Hugging Face directory or config.json; default: a Llama shape of 7 billion")
    add("--manifest", metavar="MANIFEST", help="data set: tokens, seq_len and token size; stands before the next three")
    add("--corpus-tb", type=number, default=8.0, metavar="TB", help="10**12 bytes of text (8)")
    add("--bytes-per-token", type=number, default=4.4, metavar="B", help="4.4 English, 5.0-5.5 Russian (4.4)")
    add("--seq-len", type=count, default=4096, metavar="N", help="tokens an example (4096)")
    add("--nodes", type=count, default=8, metavar="N", help="(8)")
    add("--gpus-per-node", type=count, default=8, metavar="N", help="(8)")
    add("--gpu-gib", type=number, default=80.0, metavar="GIB", help="memory of a GPU (80)")
    add("--host-gib", type=number, default=1024.0, metavar="GIB", help="memory of a node (1024)")
    add("--gpu-gb-per-s", type=number, default=300.0, metavar="GB", help="one GPU to its neighbours (300)")
    add("--node-gb-per-s", type=number, default=50.0, metavar="GB", help="all network cards of a node (50)")
    add(
        "--gpu",
        choices=sorted(PEAK_FLOPS_16_BIT),
        default="NVIDIA H100 80GB HBM3",
        metavar="NAME",
        help="for its peak, by exact name (NVIDIA H100 80GB HBM3)",
    )
    add("--mfu", type=number, default=0.42, metavar="F", help="share of the peak, exchanges not counted (0.42)")
    add("--tokens-per-gpu-s", type=number, metavar="N", help="as measured; stands before --gpu and --mfu")
    add("--global-batch", type=count, default=1024, metavar="N", help="examples a step (1024)")
    add("--micro-batch", type=count, default=2, metavar="N", help="examples a pass on one GPU (2)")
    add("--recompute", choices=("none", "selective", "full"), default="selective", help="(selective)")
    add("--cross-entropy", choices=("plain", "chunked"), default="chunked", help="(chunked)")
    add("--precision", choices=("bf16", "fp16", "fp32"), default="bf16", help="(bf16)")
    add("--optimizer", choices=sorted(OPTIMIZERS), default="adamw", help="(adamw)")
    add("--deadline-days", type=number, default=5.0, metavar="D", help="(5)")
    add("--failures-per-day", type=number, default=1.0, metavar="N", help="of the whole cluster (1)")
    add("--save-s", type=number, metavar="S", help='measured stall of a save, "save" in timeline.jsonl')
    add("--write-gb-per-s", type=number, default=2.0, metavar="GB", help="to the file system, all nodes together (2)")
    add("--restart-s", type=number, default=300.0, metavar="S", help="from a failure to the first new step (300)")
    add("--interval-minutes", type=number, metavar="MIN", help="between checkpoints; default: the best")
    add("--keep", type=count, default=3, metavar="N", help="checkpoints stored (3)")
    add("--gpu-hour-price", type=price, default=2.5, metavar="P", help="(2.5)")
    add("--gb-month-price", type=price, default=0.023, metavar="P", help="of stored data (0.023)")
    add("--gb-traffic-price", type=price, default=0.0, metavar="P", help="of data read from storage (0)")
    add("--json", action="store_true", help="for programs: bytes, seconds, tokens")
    return parser


if __name__ == "__main__":
    end_process(main)
