"""Work dealt to processes in turn, results taken back in the same turn. No torch, no named shared memory.

    plans (drawn in the main process) -> worker j of n makes number j, j + n, j + 2n, ... -> results in the plans' order

What is made, and its order, does not depend on n. Workers hold no state that matters: a plan names its files and rows.
A worker is forked, ignores the signals that ask a training to save itself, and ends with its iteration, or with its
parent, however that died and whatever the worker waits for.
"""

from __future__ import annotations

import atexit
import errno
import gc
import multiprocessing
import os
import select
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from manifests.errors import UserError

# Plans on their way per worker, beside the one being consumed: one being made, one waiting.
PLANS_PER_WORKER = 2
# Batches that a thread copies on, in front of the consumer, from the memory that workers fill.
STAGED_AHEAD = 1
# How long the end of an iteration waits for a worker to finish what it is at, before the worker is killed.
_LONGEST_GOODBYE_S = 5.0

T_in = TypeVar("T_in")
T_out = TypeVar("T_out")


class WorkerError(UserError):
    """A worker process that ended by itself."""


def made_by_thread(num_workers: int, num_ahead: int, *, is_staged: bool) -> int:
    """How many batches a thread makes in front of the consumer; with none, the consumer's own thread makes them.

    is_staged: batches are copied on from the memory that workers fill.
    """
    if num_workers:
        return STAGED_AHEAD if is_staged else 0
    return num_ahead


def batches_in_flight(num_workers: int, num_ahead: int, *, is_staged: bool) -> int:
    """How many batches are planned and not yet done with, at the most: the consumer's own one and those on their way.

    >>> batches_in_flight(0, 0, is_staged=False), batches_in_flight(0, 2, is_staged=True)
    (1, 3)
    >>> batches_in_flight(2, 2, is_staged=False), batches_in_flight(2, 2, is_staged=True)
    (4, 5)
    """
    planned_with_one = num_workers * PLANS_PER_WORKER or 1
    return planned_with_one + made_by_thread(num_workers, num_ahead, is_staged=is_staged)


def made_in_order(plans: Iterable[T_in], make: Callable[[T_in], T_out], num_workers: int) -> Iterator[T_out]:
    """make(plan) for each plan, in order: here where num_workers is 0, else in that many forked processes.

    `plans` is drawn from in this process, PLANS_PER_WORKER * num_workers at the most with the one given out. The
    workers are forked by this call, so before the first is drawn, and end with the iteration, which must begin. A
    UserError that a worker meets is raised here as it is.
    """
    if num_workers == 0:
        return map(make, plans)
    return _received_in_order(plans, _Workers(make, num_workers), num_workers)


def _received_in_order(plans: Iterable[T_in], workers: _Workers, num_workers: int) -> Iterator[Any]:
    try:
        in_flight: deque[int] = deque()
        for number, plan in enumerate(plans):
            workers.send(number % num_workers, plan)
            in_flight.append(number % num_workers)
            if len(in_flight) == num_workers * PLANS_PER_WORKER:
                yield workers.receive(in_flight.popleft())
        while in_flight:
            yield workers.receive(in_flight.popleft())
    finally:
        workers.end()


class _Workers:
    """The processes and this side's ends of their pipes."""

    def __init__(self, make: Callable[[Any], Any], num_workers: int) -> None:
        fork = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(num_workers):
            ours, theirs = fork.Pipe()
            self._ends.append(ours)
            # A later worker inherits this side's ends of the earlier ones' pipes: it must close them, or a worker's
            # pipe would not end with its parent.
            process = fork.Process(target=_work, args=(make, theirs, list(self._ends)), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
        # Before multiprocessing's own end: it would wait for workers that ignore its SIGTERM.
        atexit.register(self.end)

    def send(self, worker: int, plan: Any) -> None:
        try:
            self._ends[worker].send(plan)
        except OSError:
            raise self._ended(worker) from None

    def receive(self, worker: int) -> Any:
        try:
            is_refusal, made = self._ends[worker].recv()
        except (EOFError, OSError):
            raise self._ended(worker) from None
        if is_refusal:
            raise made
        return made

    def end(self) -> None:
        atexit.unregister(self.end)
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(_LONGEST_GOODBYE_S)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()

    def _ended(self, worker: int) -> WorkerError:
        self._processes[worker].join(_LONGEST_GOODBYE_S)
        return WorkerError(
            f"loader worker {worker} ended with exit code {self._processes[worker].exitcode} (-9 is a kill, mostly for "
            "want of memory); give fewer num_workers, or look in the system's log"
        )


def _work(make: Callable[[Any], Any], pipe: Connection, inherited: list[Connection]) -> None:
    # The signals that ask a training to save itself reach its whole process group: the batches of the last step must
    # still come.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Counting garbage writes into every object inherited from the parent, which would copy its pages one by one.
    gc.freeze()
    for end in inherited:
        end.close()
    end_with_parent()
    while True:
        try:
            plan = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (False, make(plan))
        except UserError as error:
            answer = (True, error)
        try:
            pipe.send(answer)
        except OSError:
            return


def end_with_parent() -> None:
    """Ends this worker process when its parent is gone, even while it waits for a store or a disk that hangs.

    A pipe's end does not: any other child of the parent may hold it open, and a worker may not be reading. Nor does
    the system's own signal for it, which comes with the end of the thread that forked.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return
    try:
        gone = select.poll()
        gone.register(os.pidfd_open(parent.pid), select.POLLIN)
    except ProcessLookupError:
        os._exit(1)
    except AttributeError:  # a Python built for a kernel before 5.3, as uv's and conda's are: as below
        return
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return  # a kernel before 5.3, or a sandbox that knows none newer: the pipe's end must do

    def watch() -> None:
        gone.poll()
        os._exit(1)

    Thread(target=watch, name="parent-watch", daemon=True).start()


def made_ahead(making: Iterator[T_out], num_ahead: int, interrupt: Callable[[], None]) -> Iterator[T_out]:
    """What `making` gives, made by a thread that runs `num_ahead` in front of the consumer; the first by the consumer.

    making: a generator, which is closed at the end. interrupt: wakes it out of whatever it waits for, when the consumer
    ends the iteration before its end.
    """
    # Both queues are C, and several items are handed over at once: waking a thread costs what a small batch costs.
    made: SimpleQueue[tuple[list[Any], BaseException | None]] = SimpleQueue()
    # How many items may be made now; 0 ends the thread.
    may_make: SimpleQueue[int] = SimpleQueue()
    at_once = max(1, num_ahead // 2)
    is_over = False

    def run() -> None:
        items: list[Any] = []
        try:
            while count := may_make.get():
                for _ in range(count):
                    if is_over:
                        return
                    items.append(next(making))
                made.put((items, None))
                items = []
        except BaseException as error:  # the end too: handed to the consumer, which raises it
            made.put((items, error))
        finally:
            making.close()  # type: ignore[attr-defined]  # a generator

    thread = Thread(target=run, name="batches", daemon=True)
    thread.start()
    try:
        # Here: a first batch should not wait for another thread's turn.
        try:
            first = next(making)
        except StopIteration:
            return
        for number in range(0, num_ahead, at_once):
            may_make.put(min(at_once, num_ahead - number))
        yield first
        del first
        while True:
            items, error = made.get()
            num_items = len(items)
            items.reverse()
            while items:
                if len(items) == 1:  # still to be taken: the thread is at work while the consumer is
                    may_make.put(num_items)
                yield items.pop()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
    finally:
        is_over = True
        may_make.put(0)
        interrupt()
        thread.join()
