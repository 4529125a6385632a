"""Commands beside the build: `python -m pipeline COMMAND`, each one module here and one line in the table.

A module has a docstring whose first line is its help, `add_arguments(parser)`, and `run(options) -> exit code`. It is
imported for every `--help`, so what is slow to load (numba, Ray) is imported inside `run`.
"""

import argparse
from typing import Protocol

from pipeline.commands import duplicates, inspect, read


class Command(Protocol):
    """What a module in this folder defines."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declare the command's options."""

    def run(self, options: argparse.Namespace, /) -> int:
        """Do it. 0 done; 1 what was asked about does not hold. UserError or OSError: the request is wrong, exit 2."""


COMMANDS: dict[str, Command] = {
    "duplicates": duplicates,
    "inspect": inspect,
    "read": read,
}
