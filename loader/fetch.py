"""Storage -> local cache, ahead of need: one thread that knows every shard's first and last use.

    residency of each epoch -> uses in order of need -> download while space allows, else free what passed() let go

A use names the windows of the run, counted through its epochs, between which a shard is needed. Uses are served
strictly in order of need, so a shard wanted later can never keep out one wanted now, and a limit that holds the open
windows (`residency.most_bytes_held`) is enough never to stand still.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loader.cache import CachedShard, ChecksumError, ShardCache
from loader.order import SplitOrder
from loader.residency import residency
from loader.rows import ShardError
from loader.shards import LocalShard, ShardTable
from manifests import storage

logger = logging.getLogger(__name__)

# Pieces in which a shard is downloaded and hashed: large enough that the interpreter's share is nothing.
_PIECE_BYTES = 1 << 20
# How long closing waits for the piece on its way: a network that stalls must not hold up the end of a program.
_LONGEST_GOODBYE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Use:
    """A shard (its number in the manifest) and the windows of the run from and until which it is needed."""

    shard: int
    first_window: int
    last_window: int


def upcoming_uses(order: SplitOrder, lanes: range, epoch: int, window: int) -> Iterator[Use]:
    """The uses of a rank's shards from a window of an epoch on, through all later epochs, in order of need. Endless."""
    while True:
        first_of_epoch = epoch * order.windows_per_lane
        held = residency(order.epoch(epoch), lanes, window)
        for shard, first, last in zip(
            held.shards.tolist(), held.first_windows.tolist(), held.last_windows.tolist(), strict=True
        ):
            yield Use(shard=shard, first_window=first_of_epoch + first, last_window=first_of_epoch + last)
        epoch, window = epoch + 1, 0


class _Closed(Exception):
    """How a download learns that nobody wants it any more."""


class Fetcher:
    """Shards of a table as local files, for one rank, from one place of the run on.

    Local shards are given in place. Others are downloaded into `cache`, of which this holds at most `limit_bytes`.
    """

    def __init__(
        self, table: ShardTable, order: SplitOrder, lanes: range, *, cache: ShardCache | None, limit_bytes: int
    ) -> None:
        self._table = table
        self._order = order
        self._lanes = lanes
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._held: dict[int, CachedShard] = {}
        self._last_window: dict[int, int] = {}
        self._used_bytes = 0
        # Local shards already looked up: every micro-batch asks for several, and joining paths is dear beside its rows.
        self._in_place: dict[int, LocalShard] = {}
        self._passed = 0
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def start(self, epoch: int, window: int) -> bool:
        """Begins, or goes on, at a window of an epoch.

        False where this fetcher cannot: the window lies before what was already given up, or a download has failed.
        """
        at = epoch * self._order.windows_per_lane + window
        if self._thread is None:
            self._passed = at
            if self._cache is not None and len(self._lanes):
                self._cache.sweep(self._wanted_first(epoch, window))
                uses = upcoming_uses(self._order, self._lanes, epoch, window)
                # A daemon: a process that ends without close() must not wait for a download.
                self._thread = threading.Thread(target=self._run, args=(uses,), name="shard-fetcher", daemon=True)
                self._thread.start()
            return True
        if at < self._passed or self._failure is not None:
            return False
        self.passed(at)
        return True

    def local(self, shards: Iterable[int]) -> tuple[LocalShard, ...]:
        """The files of these shards; waits for those still on their way. Raises what their download raised."""
        return tuple(self._in_place.get(shard) or self._found(shard) for shard in shards)

    def _found(self, shard: int) -> LocalShard:
        path = self._table.local_path(shard)
        if path is None:
            return self._table.local_shard(shard, self._await(shard))
        self._in_place[shard] = self._table.local_shard(shard, path)
        return self._in_place[shard]

    def passed(self, window: int) -> None:
        """Tells that no shard whose last use lies before this window of the run is needed any more."""
        if window <= self._passed:
            return  # nearly every call: only the consumer's thread writes this
        with self._changed:
            self._passed = window
            self._changed.notify_all()

    def close(self) -> None:
        """Stops the thread and gives up every shard. Does nothing in a forked child, which owns none of it."""
        if os.getpid() != self._process:
            return
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=_LONGEST_GOODBYE_S)
        with self._changed:
            for shard in list(self._held):
                self._free(shard)

    def _wanted_first(self, epoch: int, window: int) -> set[str]:
        held = residency(self._order.epoch(epoch), self._lanes, window)
        return {self._table.entries[shard].sha256 for shard in held.shards[held.first_windows == window].tolist()}

    def _await(self, shard: int) -> str:
        with self._changed:
            self._changed.wait_for(lambda: shard in self._held or self._failure is not None or self._closing.is_set())
            if shard in self._held:
                return str(self._held[shard].path)
            if self._failure is not None:
                raise self._failure
            raise RuntimeError("this loader was closed while a batch was being made")

    def _run(self, uses: Iterator[Use]) -> None:
        try:
            for use in uses:
                if not self._serve(use):
                    return
        except _Closed:
            return
        except BaseException as error:  # handed to the thread that waits for the shard, which raises it
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _serve(self, use: Use) -> bool:
        """Makes the shard of a use available, now or when there is space; False when the fetcher is closing."""
        if self._table.local_path(use.shard) is not None:
            return not self._closing.is_set()
        num_bytes = self._table.entries[use.shard].num_bytes
        with self._changed:
            self._changed.wait_for(lambda: self._closing.is_set() or self._may_serve(use, num_bytes))
            if self._closing.is_set():
                return False
            if use.last_window < self._passed:
                return True
            if use.shard in self._held:
                self._last_window[use.shard] = use.last_window
                return True
            self._used_bytes += num_bytes
        shard = self._download(use.shard)
        if shard is None:
            return False
        with self._changed:
            if self._closing.is_set():
                self._give_back(shard)
                return False
            self._held[use.shard] = shard
            self._last_window[use.shard] = use.last_window
            self._changed.notify_all()
        return True

    def _may_serve(self, use: Use, num_bytes: int) -> bool:
        """Whether a use's turn has come. Where not, gives up what is over, since nothing else is left to be done.

        Only then: a shard that an upcoming use within reach wants again has by now been claimed for it.
        """
        if self._fits(use, num_bytes):
            return True
        for shard in [shard for shard, last in self._last_window.items() if last < self._passed]:
            self._free(shard)
        return self._fits(use, num_bytes)

    def _fits(self, use: Use, num_bytes: int) -> bool:
        # From a shard's use in the first window of an epoch to its use in the last window of the next are two epochs.
        # Looking further ahead would never end where everything fits.
        if use.first_window > self._passed + 2 * self._order.windows_per_lane:
            return False
        claimed_or_over = use.shard in self._held or use.last_window < self._passed
        return claimed_or_over or self._used_bytes + num_bytes <= self._limit_bytes

    def _download(self, number: int) -> CachedShard | None:
        """The shard in the cache. A wrong checksum is tried once more: the fault may lie on the way."""
        assert self._cache is not None
        entry, url = self._table.entries[number], self._table.url(number)
        for last_try in (False, True):
            try:
                return self._cache.obtain(
                    entry.sha256, entry.num_bytes, lambda: self._pieces(url), wait=self._closing.wait
                )
            except ChecksumError as error:
                if last_try:
                    raise ShardError(
                        f"shard {entry.path} at {url} is not what the manifest says, twice: {error}; "
                        "restore it or build the version again"
                    ) from error
                logger.warning("shard %s: %s; downloading it again", entry.path, error)
        raise AssertionError("the last try returns or raises")

    def _pieces(self, url: str) -> Iterator[bytes]:
        with storage.open_stream(url) as stream:
            while piece := stream.read(_PIECE_BYTES):
                if self._closing.is_set():
                    raise _Closed
                yield piece

    def _free(self, shard: int) -> None:
        held = self._held.pop(shard)
        del self._last_window[shard]
        self._give_back(held)
        self._used_bytes -= held.num_bytes

    def _give_back(self, held: CachedShard) -> None:
        assert self._cache is not None
        self._cache.release(held)
