"""Many reads of a little each: where they go over the network, several are under way at once.

A task that gathers its part of 5,000 files makes 10,000 requests of some 30 ms. One after another they would hold a
core for five minutes that it does not use; NUM_AT_ONCE at a time, for twenty seconds. On a local disk threads only
cost.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from manifests import storage

NUM_AT_ONCE = 16
"""Some stores slow down a client that asks for more, and a node runs several tasks."""


class Read(NamedTuple):
    """A stretch of an object."""

    url: str
    start: int
    length: int | None
    """None: to its end."""


def read_many(reads: Sequence[Read]) -> Iterator[bytes]:
    """What storage.read_bytes gives for each of `reads`, in their order; at most 2 * NUM_AT_ONCE are held at once."""
    if len(reads) < 2 or storage.local_path(reads[0].url) is not None:
        yield from (storage.read_bytes(*read) for read in reads)
        return
    with ThreadPoolExecutor(min(NUM_AT_ONCE, len(reads)), thread_name_prefix="reads") as threads:
        pending: deque[Future[bytes]] = deque()
        try:
            for read in reads:
                pending.append(threads.submit(storage.read_bytes, *read))
                if len(pending) == 2 * NUM_AT_ONCE:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # an error, or nobody wants the rest
            for future in pending:
                future.cancel()
