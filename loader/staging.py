"""Batches on their way to a device: two host batches in turn, filled and copied from while the loop computes.

    filled (HostRing.take) -> copied on a stream of its own -> the host batch may be filled again once that copy is done

All of it runs in the thread that makes batches ahead; only `received` belongs to the thread that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

Batch = dict[str, torch.Tensor]
# One is filled while the other is copied from.
_HOST_BATCHES = 2


class Done(Protocol):
    """An event that can be waited for, as torch.cuda.Event."""

    def synchronize(self) -> None:
        """Waits for it."""


class HostRing:
    """Host batches used in turn. Pinning memory takes milliseconds, so each is allocated once.

    Not for batches that a consumer gets: only torch's own allocator knows which copies of the consumer still read them.

    allocate: makes one host batch.
    """

    def __init__(self, allocate: Callable[[], Batch], num_batches: int = _HOST_BATCHES) -> None:
        self._allocate = allocate
        self._batches: list[Batch] = []
        self._read_until: list[Done | None] = [None] * num_batches
        self._num_taken = 0

    def take(self) -> Batch:
        """The next host batch, to be filled, once the copy that was made of it is done."""
        at = self._num_taken % len(self._read_until)
        self._num_taken += 1
        if at == len(self._batches):
            self._batches.append(self._allocate())
        done, self._read_until[at] = self._read_until[at], None
        if done is not None:
            done.synchronize()
        return self._batches[at]

    def read_until(self, done: Done) -> None:
        """The batch taken last is being read until then."""
        self._read_until[(self._num_taken - 1) % len(self._read_until)] = done


@dataclass(frozen=True)
class Copied:
    """A batch on its way to a device."""

    batch: Batch
    done: torch.cuda.Event
    device: torch.device


def copied_to(device: torch.device, batches: Iterator[Batch], ring: HostRing) -> Iterator[Copied]:
    """The batches, each the ring's last, copied to a CUDA device on a stream of their own. Holds none back."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for batch in batches:
        with torch.cuda.stream(stream):
            copied = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
            done = stream.record_event()
        ring.read_until(done)
        del batch
        yield Copied(copied, done, device)
        del copied


def received(made: Batch | Copied) -> Batch:
    """What `BatchMaker.batches` gave, for the thread that uses it.

    That thread's stream waits for the copy, and is known to use its memory: which stream is current differs by thread,
    so this is not for the one that makes batches ahead.
    """
    if not isinstance(made, Copied):
        return made
    consumer = torch.cuda.current_stream(made.device)
    consumer.wait_event(made.done)
    for tensor in made.batch.values():
        tensor.record_stream(consumer)
    return made.batch
