"""`python -m loader`: the order in print, a run's numbers before it starts, the speed here, and a batch as text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from loader.mixture import check_alike
from loader.order import OrderError, RunShape
from loader.trace import TraceRequest, trace_lines
from loader.workers import batches_in_flight
from manifests import Dataset, load
from manifests.command_line import OneLineParser, end_process, run_command

MANIFEST = "--manifest data/manifests/v1.json"
EXAMPLE = f"python -m loader trace {MANIFEST} --global-batch 8 --world-size 2 --start 0 --steps 3"


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit code: 0 done, 2 the request is wrong."""
    return run_command(_parser(), arguments)


def _printing(lines_of: Callable[[argparse.Namespace], Iterator[str]]) -> Callable[[argparse.Namespace], int]:
    """A command that prints these lines."""

    def run(options: argparse.Namespace) -> int:
        for line in lines_of(options):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        return 0

    return run


def _trace(options: argparse.Namespace) -> Iterator[str]:
    request = TraceRequest(
        split=options.split,
        shape=_shape(options),
        world_size=options.world_size,
        rank=options.rank,
        start=options.start,
        num_steps=options.steps,
        num_workers=options.workers,
    )
    return trace_lines(*_data(options), request)


def _check(options: argparse.Namespace) -> Iterator[str]:
    from loader.commands import check, check_mixture

    _at_least_1(world_size=options.world_size, nodes=options.nodes)
    _at_least_0(num_workers=options.num_workers, num_ahead=options.num_ahead)
    datasets, weights = _data(options)
    run = {
        "split": options.split,
        "shape": _shape(options),
        "world_size": options.world_size,
        "nodes": options.nodes,
        # Of batches that are a rank's whole step; smaller ones take less.
        "steps_in_flight": batches_in_flight(options.num_workers, options.num_ahead, is_staged=options.staged),
    }
    if weights:
        return check_mixture.lines(check_mixture.checked(datasets, weights, **run))
    return check.lines(check.checked(datasets[0], **run))


def _bench(options: argparse.Namespace) -> Iterator[str]:
    from loader.columns import COLUMNS
    from loader.commands import bench
    from loader.loader import Loader

    if not options.seconds > 0:
        raise OrderError(f"--seconds is {options.seconds}; give more than 0")
    datasets, weights = _data(options)
    example = datasets[0].manifest.example
    columns = tuple(options.columns.split(",")) if options.columns else COLUMNS

    def make_loader() -> Loader:
        return Loader(
            dict(zip(map(_path_of, options.manifest), weights, strict=True)) if weights else options.manifest[0],
            split=options.split,
            global_batch=options.global_batch,
            lanes=options.lanes,
            window_shards=options.window_shards,
            seed=options.seed,
            num_workers=options.num_workers,
            num_ahead=options.num_ahead,
            cache_dir=options.cache_dir,
            cache_bytes=options.cache_bytes,
            columns=columns,
        )

    found = bench.measured(make_loader, seconds=options.seconds, row_bytes=example.seq_len * example.itemsize)
    return bench.lines(found)


def _peek(options: argparse.Namespace) -> Iterator[str]:
    from loader.commands import peek

    _at_least_1(rows=options.rows, width=options.width)
    _at_least_0(step=options.step)
    return peek.lines(
        *_data(options),
        split=options.split,
        shape=_shape(options),
        step=options.step,
        num_rows=options.rows,
        width=options.width,
    )


def _data(options: argparse.Namespace) -> tuple[list[Dataset], list[float]]:
    """The manifests named, and their weights: none for a single manifest without one."""
    texts: list[str] = options.manifest
    weights = [_weight_of(text) for text in texts]
    if len(texts) > 1 and None in weights:
        raise OrderError(
            f"--manifest {texts[weights.index(None)]} has no weight; where there are several, each is MANIFEST=WEIGHT"
        )
    datasets = [load(_path_of(text)) for text in texts]
    check_alike(datasets)
    return datasets, [weight for weight in weights if weight is not None]


def _weight_of(text: str) -> float | None:
    """Of `data/v1.json=0.3`, 0.3; a name that ends otherwise has none."""
    _, equals, weight = text.rpartition("=")
    try:
        return float(weight) if equals else None
    except ValueError:
        return None


def _path_of(text: str) -> str:
    return text if _weight_of(text) is None else text.rpartition("=")[0]


def _at_least_1(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise OrderError(f"--{name.replace('_', '-')} is {value}; give 1 or more")


def _at_least_0(**values: int) -> None:
    for name, value in values.items():
        if value < 0:
            raise OrderError(f"--{name.replace('_', '-')} is {value}; give 0 or more")


def _shape(options: argparse.Namespace) -> RunShape:
    return RunShape(
        global_batch=options.global_batch,
        num_lanes=options.global_batch if options.lanes is None else options.lanes,
        window_shards=options.window_shards,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m loader", description=__doc__, epilog=f"example: {EXAMPLE}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=OneLineParser, dest="command")

    trace = commands.add_parser(
        "trace",
        help="one JSON line a step and rank, without reading a shard",
        description="Prints one JSON line a step and rank: step, rank, examples [[shard path, example number], ...].",
        epilog=f"example: {EXAMPLE}",
    )
    _add_order(trace, _trace)
    _add_world(trace)
    trace.add_argument("--rank", type=int, metavar="R", help="only this rank; default: all, in turn")
    trace.add_argument(
        "--start", type=int, default=0, metavar="T", help="first step, through epochs; default: %(default)s"
    )
    trace.add_argument("--steps", type=int, default=1, metavar="N", help="number of steps; default: %(default)s")
    trace.add_argument("--workers", type=int, default=0, metavar="N", help="worker processes a rank; changes no line")

    check = commands.add_parser(
        "check",
        help="lanes, shards, cache and shuffle of a run before it starts, without reading a shard",
        description="Prints what a run will be: lanes and shards a rank, cache bytes a node, what a start costs, what "
        "is left over, and how well the order mixes.",
        epilog=f"example: python -m loader check {MANIFEST} --global-batch 64 --world-size 16 --nodes 2",
    )
    _add_order(check, _check)
    _add_world(check)
    check.add_argument("--nodes", type=int, default=1, metavar="N", help="machines; default: %(default)s")
    _add_making(check)
    check.add_argument(
        "--staged", action="store_true", help="the run gives the loader device=cuda or pin_memory: one batch more"
    )

    bench = commands.add_parser(
        "bench",
        help="GB/s, examples/s, time to first batch and resume, here and now",
        description="Iterates one rank's batches for some seconds and prints what that was.",
        epilog=f"example: python -m loader bench {MANIFEST} --global-batch 8",
    )
    _add_order(bench, _bench)
    bench.add_argument("--seconds", type=float, default=5.0, metavar="S", help="how long; default: %(default)s")
    _add_making(bench)
    bench.add_argument("--columns", metavar="NAMES", help="with commas; default: all four")
    bench.add_argument("--cache-dir", metavar="DIR", help="for shards in object storage; default: the loader's own")
    bench.add_argument("--cache-bytes", type=int, metavar="BYTES", help="its limit; default: what the run needs")

    peek = commands.add_parser(
        "peek",
        help="the rows of a batch as text, with their documents drawn",
        description="Prints rows of one global batch: each document's place in its row and its two ends.",
        epilog=f"example: python -m loader peek {MANIFEST} --global-batch 8 --step 0 --rows 2",
    )
    _add_order(peek, _peek)
    peek.add_argument("--step", type=int, default=0, metavar="T", help="through epochs; default: %(default)s")
    peek.add_argument("--rows", type=int, default=4, metavar="N", help="rows at most; default: %(default)s")
    peek.add_argument("--width", type=int, default=100, metavar="N", help="characters a line; default: %(default)s")
    return parser


def _add_order(command: argparse.ArgumentParser, lines_of: Callable[[argparse.Namespace], Iterator[str]]) -> None:
    """What fixes the order, alike for all commands."""
    command.set_defaults(run=_printing(lines_of))
    command.add_argument(
        "--manifest",
        required=True,
        action="append",
        help="path or URL of a manifest; for a mixture several times, each as MANIFEST=WEIGHT",
    )
    command.add_argument("--split", default="train", help="default: %(default)s")
    command.add_argument("--global-batch", type=int, required=True, metavar="B", help="examples a step, over all ranks")
    command.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    command.add_argument("--lanes", type=int, metavar="L", help="lanes; default: the global batch")
    command.add_argument(
        "--window-shards", type=int, default=1, metavar="K", help="shuffle window; default: %(default)s"
    )


def _add_making(command: argparse.ArgumentParser) -> None:
    """How a rank makes batches, by the loader's own names."""
    command.add_argument(
        "--num-workers", type=int, default=0, metavar="N", help="worker processes a rank; default: %(default)s"
    )
    command.add_argument(
        "--num-ahead",
        type=int,
        default=4,
        metavar="N",
        help="batches a thread makes ahead, without workers; default: %(default)s",
    )


def _add_world(command: argparse.ArgumentParser) -> None:
    command.add_argument("--world-size", type=int, default=1, metavar="W", help="number of ranks; default: %(default)s")


if __name__ == "__main__":
    end_process(main)
