"""`python -m loader trace`: which examples each rank gets in which step."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from loader.order import RunShape
from loader.trace import TraceRequest, trace_lines
from manifests import UserError, load
from manifests.command_line import OneLineParser

EXAMPLE = "python -m loader trace --manifest data/manifests/v1.json --global-batch 8 --world-size 2 --start 0 --steps 3"


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit code: 0 done, 2 the request is wrong."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        request = TraceRequest(
            split=options.split,
            shape=RunShape(
                global_batch=options.global_batch,
                num_lanes=options.global_batch if options.lanes is None else options.lanes,
                window_shards=options.window_shards,
                seed=options.seed,
            ),
            world_size=options.world_size,
            rank=options.rank,
            start=options.start,
            num_steps=options.steps,
            num_workers=options.workers,
        )
        for line in trace_lines(load(options.manifest), request):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain of it once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except UserError as error:
        sys.stderr.write(f"loader trace: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"loader trace: {options.manifest}: {error.strerror or error}; give the path of a manifest\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m loader", description=__doc__, epilog=f"example: {EXAMPLE}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=OneLineParser)
    trace = commands.add_parser(
        "trace",
        help="one JSON line a step and rank, without reading a shard",
        description="Prints one JSON line a step and rank: step, rank, examples [[shard path, example number], ...].",
        epilog=f"example: {EXAMPLE}",
    )
    trace.add_argument("--manifest", required=True, help="path or URL of a manifest")
    trace.add_argument("--split", default="train", help="default: %(default)s")
    trace.add_argument("--global-batch", type=int, required=True, metavar="B", help="examples a step, over all ranks")
    trace.add_argument("--world-size", type=int, default=1, metavar="W", help="number of ranks; default: %(default)s")
    trace.add_argument("--rank", type=int, metavar="R", help="only this rank; default: all, in turn")
    trace.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    trace.add_argument(
        "--start", type=int, default=0, metavar="T", help="first step, through epochs; default: %(default)s"
    )
    trace.add_argument("--steps", type=int, default=1, metavar="N", help="number of steps; default: %(default)s")
    trace.add_argument("--workers", type=int, default=0, metavar="N", help="worker processes a rank; changes no line")
    trace.add_argument("--lanes", type=int, metavar="L", help="lanes; default: the global batch")
    trace.add_argument("--window-shards", type=int, default=1, metavar="K", help="shuffle window; default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
