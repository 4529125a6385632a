"""What all our commands do alike on a wrong option: one line on standard error, exit code 2."""

import argparse
from typing import Any, NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line; argparse's own puts the usage above it."""

    def __init__(self, **options: Any) -> None:
        # An abbreviated option would mean another one as soon as a new one is added.
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")
