"""Plans -> dicts of tensors, in this process or in worker processes. The only module of the loader that knows torch.

    plans (drawn in the main process) -> dealt to workers in turn -> rows -> columns -> tensors, in the plans' order

Worker j of n makes the plans number j, j + n, j + 2n, ...: what is made, and its order, does not depend on n. Workers
hold no state that matters: a plan names its files and rows, so nothing about the order is ever inside a worker.
"""

from __future__ import annotations

import atexit
import gc
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

import torch
from torch.utils.data import DataLoader, Dataset

from loader.columns import COLUMNS, fill_columns
from loader.plans import MicroBatchPlan
from loader.rows import RowReader
from manifests.errors import UserError
from manifests.shard import ExampleFormat

Batch = dict[str, torch.Tensor]
TokenDtype = torch.dtype
INT64: TokenDtype = torch.int64

# Plans on their way per worker, beside the one being consumed: one being made, one waiting.
PLANS_PER_WORKER = 2

T_in = TypeVar("T_in")
T_out = TypeVar("T_out")


class ColumnsError(UserError):
    """Columns or a dtype that no batch has."""


class BatchMaker:
    """Makes a batch of a plan: {column: tensor of shape (rows, seq_len)}. Picklable while unused."""

    def __init__(self, example: ExampleFormat, eos_id: int, columns: tuple[str, ...], dtype: TokenDtype) -> None:
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown or not columns or len(set(columns)) != len(columns):
            raise ColumnsError(f"columns is {columns!r}; give one or more of {', '.join(COLUMNS)}, each once")
        if dtype not in (torch.int64, torch.int32):
            raise ColumnsError(f"dtype is {dtype}; batches are made as torch.int64 or torch.int32")
        self._example = example
        self._eos_id = eos_id
        self._columns = columns
        self._dtype = dtype
        self._reader = RowReader(example)

    def __call__(self, plan: MicroBatchPlan) -> Batch:
        shape = (plan.num_rows, self._example.seq_len)
        batch = {name: torch.empty(shape, dtype=self._dtype) for name in self._columns}
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        tokens = self._reader.read(plan)
        fill_columns(tokens, plan.num_rows, arrays, eos_id=self._eos_id, padding_id=self._example.padding_id)
        return batch


def made_in_order(plans: Iterable[T_in], make: Callable[[T_in], T_out], num_workers: int) -> Iterator[T_out]:
    """make(plan) for each plan, in order: here where num_workers is 0, else dealt to that many processes in turn.

    `plans` is drawn from in this process, PLANS_PER_WORKER * num_workers ahead of what has been given out. A UserError
    that a worker meets is raised here as it is.
    """
    if num_workers == 0:
        yield from map(make, plans)
        return
    # One plan is one item (batch_size=None), and DataLoader deals items to its workers in turn.
    dealt: DataLoader[Any] = DataLoader(
        _Made(make),
        sampler=cast(Any, plans),  # any iterable will do as a sampler: only its type hints say more
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=PLANS_PER_WORKER,
        worker_init_fn=_start_worker,
        collate_fn=_as_it_is,
    )
    # Held in a list that can be emptied at exit: dropping torch's iterator is what ends its workers in order. Left to
    # multiprocessing, a program that ends in mid-iteration would wait for ever for workers that ignore its SIGTERM.
    dealing = [iter(dealt)]
    end_workers = dealing.clear
    atexit.register(end_workers)
    try:
        while True:
            made: Any = next(dealing[0], _END)
            if made is _END:
                return
            if isinstance(made, _Refusal):
                raise made.error
            yield made
    finally:
        atexit.unregister(end_workers)
        end_workers()


_END = object()


class _Refusal:
    """A UserError on its way out of a worker: torch would wrap its one line in the worker's traceback."""

    def __init__(self, error: UserError) -> None:
        self.error = error


class _Made(Dataset[Any], Generic[T_in, T_out]):
    """Seen by DataLoader as a map from plan to result."""

    def __init__(self, make: Callable[[T_in], T_out]) -> None:
        self._make = make

    def __getitem__(self, plan: T_in) -> T_out | _Refusal:
        try:
            return self._make(plan)
        except UserError as error:
            return _Refusal(error)


def _as_it_is(made: Any) -> Any:
    return made


def _start_worker(worker_id: int) -> None:  # noqa: ARG001 - torch passes it
    # The signals that ask a training to save itself reach its whole process group: the batches of the last step must
    # still come. Workers end with their parent (torch's watchdog sees it go).
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Counting garbage writes into every object inherited from the parent, which would copy its pages one by one.
    gc.freeze()
