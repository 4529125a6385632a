"""python -m pipeline: commands beside the build, by the table in pipeline/commands.

Exit codes: 0 done; 1 the thing asked about does not hold; 2 the request is wrong.
"""

from collections.abc import Sequence

from manifests.command_line import OneLineParser, end_process, run_command
from pipeline.commands import COMMANDS


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    parser = OneLineParser(
        prog="python -m pipeline",
        description="Looks at what a build reads, judges and drops. The build itself: python pipeline/build.py",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        described = (command.__doc__ or "").strip()
        one = commands.add_parser(name, help=described.partition("\n")[0], description=described)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return run_command(parser, arguments)


if __name__ == "__main__":
    end_process(main)
