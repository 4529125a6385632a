"""`python -m trainer`: looks at a run. Training itself is `trainer/train.py`.

Exit codes: 0 done; 1 the thing asked about does not hold; 2 the request is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from manifests.command_line import OneLineParser
from manifests.errors import UserError


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain of it once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        sys.stderr.write(f"trainer {options.command}: {error}\n")
        return 2
    return code


def _checkpoints(options: argparse.Namespace) -> int:
    from trainer.commands import checkpoints

    found = checkpoints.look(options.folder, quick=options.quick, copies=options.copies)
    if options.json:
        sys.stdout.write(json.dumps(checkpoints.to_json(found), indent=2) + "\n")
    else:
        sys.stdout.writelines(line + "\n" for line in checkpoints.lines(found))
    return 0 if found.holds else 1


def _report(options: argparse.Namespace) -> int:
    from trainer.commands import report

    target = report.write(options.folder, options.to)
    sys.stdout.write(f"{target}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m trainer", description="Looks at a run. To train: trainer/train.py --help")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=OneLineParser, dest="command")

    checkpoints = commands.add_parser(
        "checkpoints",
        help="each checkpoint of a run, here and in its remote: whose, how old, whole or not",
        description="Lists and verifies the checkpoints of a run. Exit code 0: there is one to go on from and nothing"
        " is damaged; 1: not so.",
        epilog="example: python -m trainer checkpoints runs/support-v1",
    )
    checkpoints.set_defaults(run=_checkpoints)
    checkpoints.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")
    checkpoints.add_argument(
        "--quick", action="store_true", help="compare sizes only; default: read and hash each file"
    )
    checkpoints.add_argument("--copies", action="store_true", help="read and hash the remote copies too")
    checkpoints.add_argument("--json", action="store_true", help="print one JSON object")

    report = commands.add_parser(
        "report",
        help="one HTML page: loss, learning rate, throughput, step times, goodput, restarts",
        description="Writes a page about a run, finished, running or killed; it needs nothing but a browser.",
        epilog="example: python -m trainer report runs/support-v1",
    )
    report.set_defaults(run=_report)
    report.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")
    report.add_argument("--to", type=Path, metavar="FILE", help="the page; default: RUN/report.html")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
