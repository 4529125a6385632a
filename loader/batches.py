"""Plans -> dicts of tensors, in this process or in worker processes. With staging.py, the only module that knows torch.

    plans -> rows.py: where the rows lie -> columns.py, straight into a batch's memory (buffers.py) -> tensors

Where a device is named, batches go there ahead of need: staging.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from loader.buffers import Buffers
from loader.columns import (
    COLUMNS,
    CUMULATIVE_LENGTHS,
    ColumnFiller,
    ColumnMemory,
    cumulative_lengths,
    load_kernel,
)
from loader.plans import MicroBatchPlan, RowsOf, Stretch
from loader.rows import RowReader
from loader.staging import Batch, Copied, HostRing, copied_to
from loader.workers import PLANS_PER_WORKER, end_with_parent, made_in_order
from manifests.errors import UserError
from manifests.shard import ExampleFormat

# What a worker is sent: a slot, a stretch's files where they are new, and the two columns of a plan's rows; its window.
Task = tuple[int, "tuple[RowsOf, ...] | None", bytes, bytes, int]
TokenDtype = torch.dtype
INT64: TokenDtype = torch.int64

_NUMPY_DTYPE: dict[torch.dtype, np.dtype] = {torch.int64: np.dtype(np.int64), torch.int32: np.dtype(np.int32)}
# Shared slots beyond those of the plans on their way: the batch the consumer is at, and the one it has just had.
_SLOTS_OF_CONSUMER = 3


class ColumnsError(UserError):
    """Columns, a dtype or a place for batches that there is not."""


class PersistentWorkersError(UserError):
    """Workers of a DataLoader that would not see where the position has moved to."""


class BatchMaker:
    """Makes the batches of plans: {column: tensor of shape (num_rows, seq_len)}."""

    def __init__(
        self,
        example: ExampleFormat,
        eos_id: int,
        columns: tuple[str, ...],
        dtype: TokenDtype,
        *,
        pin_memory: bool = False,
        device: torch.device | None = None,
    ) -> None:
        known = (*COLUMNS, CUMULATIVE_LENGTHS)
        unknown = [name for name in columns if name not in known]
        if unknown or not columns or len(set(columns)) != len(columns):
            raise ColumnsError(f"columns is {columns!r}; give one or more of {', '.join(known)}, each once")
        if dtype not in _NUMPY_DTYPE:
            raise ColumnsError(f"dtype is {dtype}; batches are made as torch.int64 or torch.int32")
        on_cuda = device is not None and device.type == "cuda"
        if (pin_memory or on_cuda) and not torch.cuda.is_available():
            asked = f"device is {device}" if on_cuda else "pin_memory is True"
            raise ColumnsError(f"{asked}, but torch finds no CUDA here; leave it out, or install torch for CUDA")
        self._example = example
        self._filler = ColumnFiller(
            example.numpy_dtype, _NUMPY_DTYPE[dtype], example.seq_len, eos_id=eos_id, padding_id=example.padding_id
        )
        # Kept through iterations: what the last windows of an epoch have mapped, the next one often begins with.
        self._reader = RowReader(example)
        self._asked = columns
        # The filled ones; lengths are made of the documents, whether or not those are asked for.
        self._columns = tuple(name for name in columns if name != CUMULATIVE_LENGTHS)
        if CUMULATIVE_LENGTHS in columns and "document_ids" not in columns:
            self._columns += ("document_ids",)
        self._dtype = dtype
        self._pin_memory = pin_memory or on_cuda
        self._on_cuda, self._device = on_cuda, device

    def batches(self, plans: Iterable[MicroBatchPlan], num_rows: int, num_workers: int) -> Iterator[Batch | Copied]:
        """The batches of the plans, each of `num_rows` rows, in order, made here or by worker processes.

        Workers are forked now, in the calling thread, though the batches may be taken in another. Each is for
        `received`, in the thread that uses it.
        """
        ring = HostRing(lambda: self._pinned(num_rows)) if self._on_cuda else None
        # Batches for the consumer are torch's to pool: it knows which copies to a device are still reading them.
        host = ring.take if ring else (lambda: self._pinned(num_rows)) if self._pin_memory else None
        made = (
            self._made_by_workers(plans, num_rows, num_workers, host)
            if num_workers
            else self._made_here(plans, num_rows, host)
        )
        if CUMULATIVE_LENGTHS in self._asked:
            made = self._with_lengths(made)
        return copied_to(self._device, made, ring) if ring and self._device else made

    @property
    def is_staged(self) -> bool:
        """Whether batches are copied on from the memory that workers fill."""
        return self._pin_memory

    def _with_lengths(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            lengths = torch.from_numpy(cumulative_lengths(batch["document_ids"].numpy()))
            batch[CUMULATIVE_LENGTHS] = lengths.pin_memory() if self._pin_memory else lengths
            yield {name: batch[name] for name in self._asked}
            del batch

    def forget_files(self) -> None:
        """Gives up the files that are mapped. Not while batches are made."""
        self._reader.forget()

    def _made_here(
        self, plans: Iterable[MicroBatchPlan], num_rows: int, host: Callable[[], Batch] | None
    ) -> Iterator[Batch]:
        places_of, fill = self._reader.places, self._filler.fill
        if host:
            for plan in plans:
                batch = host()
                columns = ColumnMemory.of({name: tensor.numpy() for name, tensor in batch.items()})
                fill(places_of(plan.stretch), plan.first, plan.num_examples, num_rows, columns)
                yield batch
                del batch
            return
        buffers = self._buffers(num_rows)
        for plan in plans:
            slot = buffers.take()
            fill(places_of(plan.stretch), plan.first, plan.num_examples, num_rows, buffers.columns(slot))
            batch = _tensors(buffers.lent(slot))
            yield batch
            # Nothing here refers to the batch while the next one is made, or its slot would not be free.
            del batch

    def _made_by_workers(
        self, plans: Iterable[MicroBatchPlan], num_rows: int, num_workers: int, host: Callable[[], Batch] | None
    ) -> Iterator[Batch]:
        buffers = self._buffers(num_rows, num_shared=num_workers * PLANS_PER_WORKER + _SLOTS_OF_CONSUMER)
        reader = RowReader(self._example)  # each worker's own, once it is forked
        self.load_kernel()

        files: tuple[RowsOf, ...] = ()

        def tasks() -> Iterator[Task]:
            # A stretch's files are named once to each worker: naming them costs more than all else about a plan.
            named: list[tuple[RowsOf, ...] | None] = [None] * num_workers
            for number, plan in enumerate(plans):
                worker = number % num_workers
                stretch, rows = plan.stretch, slice(plan.first, plan.first + plan.num_examples)
                news = stretch.files if stretch.files is not named[worker] else None
                named[worker] = stretch.files
                of_rows = stretch.file_of_row[rows].tobytes(), stretch.example_of_row[rows].tobytes()
                yield buffers.take(), news, *of_rows, stretch.window

        def fill(task: Task) -> int:  # in a worker, whose `files` and `reader` are its own
            nonlocal files
            slot, news, file_of_row, example_of_row, window = task
            files = files if news is None else news
            stretch = Stretch(
                files=files,
                file_of_row=np.frombuffer(file_of_row, dtype=np.int64),
                example_of_row=np.frombuffer(example_of_row, dtype=np.int64),
                window=window,
            )
            places = reader.places(stretch)
            self._filler.fill(places, 0, len(stretch.file_of_row), num_rows, buffers.columns(slot))
            return slot

        filled = made_in_order(tasks(), fill, num_workers)

        def batches() -> Iterator[Batch]:
            for slot in filled:
                batch = _tensors(buffers.lent(slot))
                if host:
                    staged = host()
                    for name, tensor in batch.items():
                        staged[name].copy_(tensor)
                    batch = staged
                    del staged
                yield batch
                del batch

        return batches()

    def load_kernel(self) -> None:
        """Before processes are forked that should have it."""
        load_kernel(self._example.numpy_dtype, _NUMPY_DTYPE[self._dtype])

    def _buffers(self, num_rows: int, num_shared: int = 0) -> Buffers:
        dtype = _NUMPY_DTYPE[self._dtype]
        return Buffers(self._columns, num_rows, self._example.seq_len, dtype, num_shared=num_shared)

    def _pinned(self, num_rows: int) -> Batch:
        shape = (num_rows, self._example.seq_len)
        return {name: torch.empty(shape, dtype=self._dtype, pin_memory=True) for name in self._columns}


class BatchDataset(IterableDataset[Batch]):
    """A loader's batches for a torch DataLoader with `batch_size=None`, of any number of workers.

    DataLoader takes items from its workers in turn, so worker j of n gives batches j, j + n, j + 2n, ...

    batches_of: (j, n) -> these.
    """

    def __init__(self, batches_of: Callable[[int, int], Iterator[Batch]]) -> None:
        super().__init__()
        self._batches_of = batches_of
        self._is_begun = False

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is None:
            return self._batches_of(0, 1)
        if self._is_begun:
            return map(_refuse_again, [worker.id])
        self._is_begun = True
        end_with_parent()  # torch's own watch looks between batches alone
        return self._batches_of(worker.id, worker.num_workers)


def _refuse_again(_: int) -> Batch:
    # With the first batch: what a worker raises before that, torch does not tell.
    raise PersistentWorkersError(
        "this DataLoader's workers live on into another epoch (persistent_workers=True) and would give the last one's "
        "batches again, since the position is moved in the training process; give persistent_workers=False"
    )


def device_named(device: str | torch.device | None) -> torch.device | None:
    """The device of this name. Raises ColumnsError where torch knows none."""
    try:
        return None if device is None else torch.device(device)
    except RuntimeError as error:
        raise ColumnsError(f"device is {device!r}: {str(error).splitlines()[0]}") from None


def _tensors(arrays: dict[str, np.ndarray]) -> Batch:
    # Each tensor, and every view of it, refers to its array: that is how a slot is known to be free again.
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
