"""Runs of the real command in real processes, which tests watch, kill and start again."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.trainer.trainer_datasets import TINY_MODEL
from trainer.journal import read_rows

TRAIN = Path(__file__).resolve().parents[2] / "trainer" / "train.py"
# What a resumed run must repeat to the last bit; the other figures are times.
EXACT = ("step", "loss", "lr", "grad_norm", "num_tokens", "examples_consumed", "batch_digest", "validation_loss")


def train_arguments(manifest: str, output: Path, *settings: str) -> list[str]:
    """Of the command, for a tiny model."""
    model = [f"model.config.{name}={str(value).lower()}" for name, value in TINY_MODEL.items()]
    options = [option for text in [*model, f"output={output}", *settings] for option in ("--set", text)]
    return ["--manifest", manifest, *options]


class TrainingProcess:
    """torchrun (or plain python for one rank) on a tiny model; its output is read line by line."""

    def __init__(
        self, manifest: str, output: Path, *settings: str, ranks: int = 1, torchrun: Sequence[str] | None = None
    ) -> None:
        """torchrun: its options, in place of those for `ranks` ranks here."""
        if torchrun is None and ranks > 1:
            torchrun = ["--standalone", "--nproc-per-node", str(ranks)]
        launch = [] if torchrun is None else ["-m", "torch.distributed.run", *torchrun]
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, *launch, str(TRAIN), *train_arguments(manifest, output, *settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def wait_for(self, *start: str) -> str:
        """The first line from now on that begins with `start`, one of several where there are."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.lines[-1]
        raise AssertionError(f"no line begins with {start!r}:\n" + "\n".join(self.lines))

    def ranks(self) -> list[int]:
        """Process ids of the ranks that torchrun started and that live, by local rank."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _parent(entry) == self._process.pid:
                variables = dict(
                    pair.split("=", 1) for pair in (entry / "environ").read_text().split("\0") if "=" in pair
                )
                if "LOCAL_RANK" in variables:
                    found[int(variables["LOCAL_RANK"])] = int(entry.name)
        return [found[rank] for rank in sorted(found)]

    def may_write_files_of(self, num_bytes: int) -> None:
        """From now on, where there is no torchrun: the limit on the size of files."""
        _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (num_bytes, hard))

    def finish(self) -> int:
        """Read to the end; the exit code."""
        assert self._process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self._process.stdout)
        return self._process.wait()

    def send(self, number: signal.Signals) -> int:
        """Send a signal to the launcher and all ranks, as a scheduler or a terminal does; the launcher's exit code."""
        os.killpg(self._process.pid, number)
        return self.finish()


def _parent(process: Path) -> int | None:
    """Parent of a /proc entry; None where it has just ended."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def complete(manifest: str, output: Path, *settings: str, ranks: int = 1) -> TrainingProcess:
    """A run to its end."""
    process = TrainingProcess(manifest, output, *settings, ranks=ranks)
    assert process.finish() == 0, "\n".join(process.lines)
    return process


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """In this process, and in what it starts meanwhile. Python ignores SIGXFSZ, so the write fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def figures(output: Path, names: Sequence[str] = EXACT) -> list[dict[str, Any]]:
    """The exact figures of each step, in the file's order."""
    return [{name: row.get(name) for name in names} for row in read_rows(output / "metrics.jsonl")]
