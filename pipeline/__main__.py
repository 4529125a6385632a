"""python -m pipeline: commands beside the build, by the table in pipeline/commands.

Exit codes: 0 done; 1 the thing asked about does not hold; 2 the request is wrong.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from manifests.errors import UserError
from pipeline.commands import COMMANDS


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; argparse's own puts the usage above it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    parser = _Parser(
        prog="python -m pipeline",
        description="Looks at what a build reads, judges and drops. The build itself: python pipeline/build.py",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        described = (command.__doc__ or "").strip()
        one = commands.add_parser(name, help=described.partition("\n")[0], description=described)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except FileNotFoundError as error:
        return _refuse(f"{error.filename or error}: no such file or object: check the path")
    except BrokenPipeError:
        raise
    except (UserError, OSError) as error:
        return _refuse(str(error))


def _refuse(message: str) -> int:
    sys.stderr.write(f"python -m pipeline: {' '.join(message.split())}\n")
    return 2


if __name__ == "__main__":
    # A terminal or pipe that is not UTF-8 gets escapes for what it cannot show, not a traceback.
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # both are text files here
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
