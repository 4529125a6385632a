"""A disk that is full for a while, by the kernel's own limit on file sizes (RLIMIT_FSIZE): real failed writes."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TrainingProcess, complete, figures
from trainer.append import AppendedLines


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """In this process, and in what it starts meanwhile. Python ignores SIGXFSZ, so the write fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lines_that_find_no_room_are_kept_and_follow_in_order_after_one_warning(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lines"
    lines = AppendedLines(path, said.append)
    with files_of_at_most(15):
        for number in range(10):
            lines.write(f"line {number}")  # 7 bytes with its end
        assert path.read_bytes() == b"line 0\nline 1\nl"
        with pytest.raises(OSError, match="File too large"):
            lines.sync()
    assert said == [f"warning: {path} cannot be written: [Errno 27] File too large; its lines are kept and tried again"]
    lines.write("line 10")
    lines.close()
    assert path.read_text().splitlines() == [f"line {number}" for number in range(11)]
    assert said[1:] == [f"{path} is written again, nothing left out"]


def test_lines_that_never_find_room_are_said_to_be_lost(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lines"
    lines = AppendedLines(path, said.append)
    with files_of_at_most(7):
        lines.write("line 0")
        lines.write("line 1")
        lines.write("line 2")
        lines.close()
    assert said[1:] == [f"warning: the last 2 lines of {path} are lost: [Errno 27] File too large"]


def test_a_run_goes_on_over_a_full_disk_and_ends_as_one_that_had_room(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "data")
    settings = ("global_batch=4", "steps=300", "lr=1e-3", "checkpoint.steps=10")
    output = tmp_path / "full"
    with files_of_at_most(10_000):
        process = TrainingProcess(manifest, output, *settings)
    process.wait_for(f"warning: {output / 'metrics.jsonl'} cannot be written: [Errno 27]")
    process.wait_for("warning: step-")
    process.wait_for("step ")
    process.may_write_files_of(resource.RLIM_INFINITY)
    assert process.finish() == 0, process.lines[-40:]
    assert f"{output / 'metrics.jsonl'} is written again, nothing left out" in process.lines
    complete(manifest, tmp_path / "roomy", *settings)
    assert figures(output) == figures(tmp_path / "roomy")
    events = [json.loads(line) for line in (output / "timeline.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["kind"] == "step"] == list(range(1, 301))
