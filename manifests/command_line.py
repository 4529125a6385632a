"""What all our commands do alike: options, wrong requests, and the end of the process."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from manifests.errors import UserError


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line; argparse's own puts the usage above it."""

    def __init__(self, **options: Any) -> None:
        # An abbreviated option would mean another one as soon as a new one is added.
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Parse `arguments` and call the `run` that the chosen command has set; return its exit code.

    Without arguments: the help, and 2. A wrong request (UserError, OSError) is one line on standard error, and 2.

    Raises:
        BrokenPipeError: whoever reads the output has read enough; `end_process` takes it.
    """
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:
        raise
    except FileNotFoundError as error:
        message = f"{error.filename or error}: no such file or object: check the path"
    except (UserError, OSError) as error:
        message = str(error)
    sys.stderr.write(f"{parser.prog}: {' '.join(message.split())}\n")
    return 2


def end_process(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Call `main` with the process's arguments and end the process with the exit code it returns."""
    # A terminal or pipe that is not UTF-8 gets escapes for what it cannot show, not a traceback.
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # both are text files here
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `... | head` has read enough; Python would complain once more when it closes the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    leave(code)


def leave(code: int) -> NoReturn:
    """End this process with exit code `code` and without Python's finalization; what it holds must be closed already.

    A thread of C++ that lets go of a Python object when it comes to it needs the GIL for that: gloo's of the tensors of
    its last collective, Arrow's of a file it has read. Where the interpreter is being finalized by then, the thread is
    unwound through C++ and the whole process aborts with "terminate called without an active exception"
    (pytorch#190489): 3 of 25 runs of four ranks on a busy machine, 4 of 82 of `manifests where`. A finished process
    that ends with SIGABRT reads as a failed one to a shell, to Ray and to torchrun.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
