"""`python -m trainer`: looks at a run. Training itself is `trainer/train.py`.

Exit codes: 0 done; 1 the thing asked about does not hold; 2 the request is wrong.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from manifests.command_line import OneLineParser, end_process, run_command


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    return run_command(_parser(), arguments)


def _checkpoints(options: argparse.Namespace) -> int:
    from trainer.commands import checkpoints

    found = checkpoints.look(options.folder, quick=options.quick, copies=options.copies)
    if options.json:
        sys.stdout.write(json.dumps(checkpoints.to_json(found), indent=2) + "\n")
    else:
        sys.stdout.writelines(line + "\n" for line in checkpoints.lines(found))
    return 0 if found.holds else 1


def _drill(options: argparse.Namespace) -> int:
    from trainer.commands import drill

    done = drill.drill(options.folder, num_steps=options.steps, launch=options.launch)
    sys.stdout.writelines(line + "\n" for line in drill.lines(done, options.folder, options.steps))
    if not done.differing:
        shutil.rmtree(options.folder / "drill")
    return 1 if done.differing else 0


def _report(options: argparse.Namespace) -> int:
    from trainer.commands import report

    target = report.write(options.folder, options.to)
    sys.stdout.write(f"{target}\n")
    return 0


def _export(options: argparse.Namespace) -> int:
    from trainer.commands import export

    def say(line: str) -> None:
        sys.stderr.write(f"python -m trainer: {line}\n")

    step, target = export.export(
        options.folder, step=options.step, target=options.to, manifest=options.manifest, say=say
    )
    sys.stdout.write(f"step-{step} -> {target}\n")
    return 0


def _diagnose(options: argparse.Namespace) -> int:
    from trainer import diagnosis
    from trainer.commands import diagnose

    sys.stdout.writelines(line + "\n" for line in diagnosis.lines(diagnose.look(options.folder)))
    return 0


def _scaling(options: argparse.Namespace) -> int:
    from trainer.commands import scaling

    measured = scaling.scaling(options.folder, ranks=options.ranks, num_steps=options.steps, baseline=options.baseline)
    sys.stdout.writelines(line + "\n" for line in scaling.lines(measured))
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

    drill = commands.add_parser(
        "drill",
        help="save, start new processes, load, go on, compare: does recovery work here?",
        description="Trains some steps in RUN's configuration under RUN/drill, saves, starts again from there and"
        " compares bit for bit; prints what saving and restoring cost. Exit code 1: not equal.",
        epilog="example: python -m trainer drill runs/support-v1 --launch 'torchrun --nproc-per-node 8'",
    )
    drill.set_defaults(run=_drill)
    drill.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")
    drill.add_argument("--steps", type=int, default=3, metavar="N", help="before the save and after; default: 3")
    drill.add_argument(
        "--launch",
        type=shlex.split,
        default=[],
        metavar="COMMAND",
        help="what starts the ranks; default: torchrun here",
    )

    export = commands.add_parser(
        "export",
        help="a checkpoint as a Hugging Face folder: where the last export failed, or of an earlier step",
        description="Writes what a run writes at its end, from a whole checkpoint, in one process without GPUs. Takes"
        " 4 bytes a parameter of memory and of disk.",
        epilog="example: python -m trainer export runs/support-v1 --step 12000 --to /models/support-12000",
    )
    export.set_defaults(run=_export)
    export.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")
    export.add_argument("--step", type=int, metavar="N", help="of the checkpoint; default: the newest whole one")
    export.add_argument("--to", type=Path, metavar="FOLDER", help="default: RUN/final, or RUN/export-N with --step")
    export.add_argument("--manifest", metavar="MANIFEST", help="where the data set lies now; default: where it lay")

    report = commands.add_parser(
        "report",
        help="one HTML page: loss, learning rate, throughput, step times, goodput, restarts",
        description="Writes a page about a run, finished, running or killed; it needs nothing but a browser.",
        epilog="example: python -m trainer report runs/support-v1",
    )
    report.set_defaults(run=_report)
    report.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")
    report.add_argument("--to", type=Path, metavar="FILE", help="the page; default: RUN/report.html")

    diagnose = commands.add_parser(
        "diagnose",
        help="what a run's time goes to, what limits it, what to try first",
        description="Splits the newest steps of a run into their parts and says in one sentence what limits it.",
        epilog="example: python -m trainer diagnose runs/support-v1",
    )
    diagnose.set_defaults(run=_diagnose)
    diagnose.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")

    scaling = commands.add_parser(
        "scaling",
        help="the same step on 1, 2, 4 ... ranks: what more ranks bring",
        description="Trains some steps of RUN's configuration on each number of ranks on this machine, at one global"
        " batch, and prints E = T1 / (N x TN).",
        epilog="example: python -m trainer scaling runs/support-v1 --ranks 1 2 4 8",
    )
    scaling.set_defaults(run=_scaling)
    scaling.add_argument("folder", type=Path, metavar="RUN", help="the output folder of a run")
    scaling.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="default: 1 2 4")
    scaling.add_argument("--steps", type=int, default=10, metavar="N", help="measured, after 3 of warm-up; default: 10")
    scaling.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="an earlier scaling.json as T1; default: the fewest ranks",
    )
    return parser


if __name__ == "__main__":
    end_process(main)
