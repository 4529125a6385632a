"""Workers end when nobody wants their batches: processes with their parent, the thread with its iteration."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loader.workers import made_ahead

# Two workers that never finish a batch, and a bystander that holds every end of their pipes open.
OWN_WORKERS = """
import multiprocessing, os, signal, threading
from loader.workers import made_in_order

def stuck(plan):
    threading.Event().wait()

made = made_in_order(range(2), stuck, 2)
bystander = os.fork()
if not bystander:
    signal.pause()
print(bystander, *[child.pid for child in multiprocessing.active_children()], flush=True)
next(made)
"""

# The same in workers of a torch DataLoader.
WORKERS_OF_DATALOADER = """
import multiprocessing, os, signal, threading
from torch.utils.data import DataLoader
from loader.batches import BatchDataset

def never(worker, num_workers):
    threading.Event().wait()
    yield

batches = iter(DataLoader(BatchDataset(never), batch_size=None, num_workers=2))
bystander = os.fork()
if not bystander:
    signal.pause()
print(bystander, *[child.pid for child in multiprocessing.active_children()], flush=True)
next(batches)
"""


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for whoever took it over to take note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("script", [OWN_WORKERS, WORKERS_OF_DATALOADER])
def test_workers_that_hang_end_with_a_parent_that_is_killed(script: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    bystander, *workers = (int(pid) for pid in parent.stdout.readline().split())
    try:
        assert len(workers) == 2
        parent.kill()
        parent.wait()
        end = time.monotonic() + 60
        while not all(map(has_ended, workers)) and time.monotonic() < end:
            time.sleep(0.02)
        assert [pid for pid in workers if not has_ended(pid)] == []
        assert not has_ended(bystander)
    finally:
        for pid in (bystander, *workers):
            if not has_ended(pid):
                os.kill(pid, signal.SIGKILL)
        parent.stdout.close()


WITHOUT_PIDFD = """
import os
vars(os).pop("pidfd_open", None)
from loader.workers import made_in_order
print(list(made_in_order(range(3), str, 2)))
"""


def test_workers_work_where_python_knows_no_pidfd() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PIDFD], capture_output=True, text=True, check=True)
    assert done.stdout == "['0', '1', '2']\n"


def test_batches_ahead_come_in_order_and_end() -> None:
    for num_ahead in (1, 2, 3, 4, 9):
        for count in (0, 1, 2, 7):
            assert list(made_ahead(numbers_below(count), num_ahead, lambda: None)) == list(range(count))


def numbers_below(count: int) -> Iterator[int]:
    yield from range(count)


def test_an_error_comes_after_the_batches_made_before_it() -> None:
    def making() -> Iterator[int]:
        yield from range(4)
        raise ValueError("no more")

    batches = made_ahead(making(), 4, lambda: None)
    assert [next(batches) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no more"):
        next(batches)


def test_an_iteration_that_is_ended_makes_no_more_batches_than_the_one_begun() -> None:
    made, interrupted, has_begun = [], threading.Event(), threading.Event()

    def making() -> Iterator[int]:
        yield 0
        has_begun.set()
        interrupted.wait()
        for number in range(1, 9):
            made.append(number)
            yield number

    batches = made_ahead(making(), 4, interrupted.set)
    assert next(batches) == 0
    has_begun.wait()
    batches.close()
    assert made == [1]
