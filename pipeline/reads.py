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


PIECE_BYTES = 8 << 20
"""Of a stretch on its way to the local disk: 256 MB are then held at most, however little the stretches are alike."""


class ByteRange(NamedTuple):
    """A stretch of an object."""

    url: str
    start: int
    length: int | None
    """None: to its end."""


def read_many(reads: Sequence[ByteRange]) -> Iterator[bytes]:
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


class Piece(NamedTuple):
    """A part of what a read gives."""

    number: int
    """Of the read."""
    start: int
    """Where in it the piece begins."""
    data: bytes


def read_in_pieces(reads: Sequence[ByteRange]) -> Iterator[Piece]:
    """The same, PIECE_BYTES or less at a time: for stretches of known length that need not fit into memory."""
    places, pieces = [], []
    for number, (url, first, length) in enumerate(reads):
        assert length is not None, "the end of what is cut into pieces is known"
        for start in range(0, length, PIECE_BYTES):
            places.append((number, start))
            pieces.append(ByteRange(url, first + start, min(PIECE_BYTES, length - start)))
    for (number, start), data in zip(places, read_many(pieces), strict=True):
        yield Piece(number, start, data)
