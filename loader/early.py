"""The first rows of a run by ranged reads, while their shards are still on the way.

A row has no checksum of its own: only the whole shard has. So each row is read until two reads agree, and kept as a
hash until its shard has arrived and been verified: a row that then differs is an error, not a silent batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

import numpy as np

from loader.plans import ReceivedRows
from loader.rows import ShardError, map_shard
from loader.shards import LocalShard
from manifests import ShardEntry, storage
from manifests.shard import TOKENS_OFFSET, ExampleFormat

# Requests under way at once. A request is a round trip, not bandwidth: a batch of rows should cost about one.
_NUM_REQUESTS = 16
# Reads of one row before two must have agreed.
_MAX_READS = 6
# Early rows are worth it for shards that take longer than a few round trips, and while they are a small part of them.
_SMALLEST_SHARD_BYTES = 4 << 20
_LARGEST_FRACTION = 0.25


class EarlyRows:
    """Reads rows ahead of their shards, and checks them when those have arrived."""

    def __init__(self, example: ExampleFormat, url_of: Callable[[int], str]) -> None:
        self._example = example
        self._url_of = url_of
        self._unchecked: dict[int, dict[int, bytes]] = {}

    def is_ever_worth_it(self, shard_num_bytes: np.ndarray) -> bool:
        """Whether any shard is large enough. shard_num_bytes: int64."""
        return bool((shard_num_bytes >= _SMALLEST_SHARD_BYTES).any())

    def is_worth_it(self, num_rows: int, shard: ShardEntry) -> bool:
        return shard.num_bytes >= _SMALLEST_SHARD_BYTES and num_rows <= shard.num_examples * _LARGEST_FRACTION

    def read(self, wanted: Mapping[int, Sequence[int]], names: dict[int, str]) -> dict[int, ReceivedRows]:
        """The examples of each shard number. Raises what storage raises, and ShardError where reads never agree."""
        places = [(shard, example) for shard, examples in wanted.items() for example in examples]
        # Twice at once: where both agree, a row has cost one round trip.
        reads = _all_at_once(lambda place: self._read(*place), places * 2)
        rows = [
            self._agreed(place, [one, two], names[place[0]])
            for place, one, two in zip(places, reads[: len(places)], reads[len(places) :], strict=True)
        ]
        received = {}
        for shard, examples in wanted.items():
            mine = [row for (number, _), row in zip(places, rows, strict=True) if number == shard]
            tokens = np.frombuffer(b"".join(mine), dtype=self._example.numpy_dtype)
            received[shard] = ReceivedRows(
                name=names[shard],
                examples=tuple(examples),
                rows=tokens.reshape(len(mine), self._example.seq_len),
            )
            # Put there whole: a thread may be checking the rows of the batch before.
            hashes = {example: _hash(row) for example, row in zip(examples, mine, strict=True)}
            self._unchecked[shard] = self._unchecked.get(shard, {}) | hashes
        return received

    def check(self, number: int, shard: LocalShard) -> None:
        """Compares what was read early with the shard, now verified. Raises ShardError naming a row that differs."""
        unchecked = self._unchecked.pop(number, None)
        if not unchecked:
            return
        view = map_shard(shard, self._example)
        for example, expected in unchecked.items():
            if _hash(view[example].tobytes()) != expected:
                raise ShardError(
                    f"example {example} of shard {shard.name} was read from storage before its shard and was not the "
                    "example that the shard holds; go back to the last checkpoint, and look for who writes there"
                )

    def _read(self, shard: int, example: int) -> bytes:
        start = example * self._example.stride + TOKENS_OFFSET
        return storage.read_bytes(self._url_of(shard), start, self._example.seq_len * self._example.itemsize)

    def _agreed(self, place: tuple[int, int], reads: list[bytes], name: str) -> bytes:
        """What two reads of a row agree on; reads it again where these do not."""
        shard, example = place
        while True:
            if reads[-1] in reads[:-1]:
                return reads[-1]
            if len(reads) == _MAX_READS:
                break
            reads.append(self._read(shard, example))
        raise ShardError(
            f"example {example} of shard {name} came differently in {_MAX_READS} reads of {self._url_of(shard)}; "
            "restore the shard or mend the way to it"
        )


def _all_at_once(read: Callable[[tuple[int, int]], bytes], places: Sequence[tuple[int, int]]) -> list[bytes]:
    """read(place) of each, by threads. Raises the first error.

    Daemons: neither who interrupts this nor the end of the program waits for a store that says nothing, as an
    executor's threads would make them.
    """
    waiting = deque(enumerate(places))
    done: SimpleQueue[tuple[int, bytes | BaseException]] = SimpleQueue()

    def run() -> None:
        with contextlib.suppress(IndexError):  # nothing left to be read
            while True:
                at, place = waiting.popleft()
                try:
                    done.put((at, read(place)))
                except BaseException as error:  # for the thread that waits, which raises it
                    done.put((at, error))

    for _ in range(min(_NUM_REQUESTS, len(places))):
        threading.Thread(target=run, name="early-rows", daemon=True).start()
    rows = [b""] * len(places)
    try:
        for _ in places:
            at, row = done.get()
            if isinstance(row, BaseException):
                raise row
            rows[at] = row
    finally:
        waiting.clear()
    return rows


def _hash(row: bytes) -> bytes:
    return hashlib.blake2b(row, digest_size=16).digest()
