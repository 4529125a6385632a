"""Storage -> local cache, ahead of need: a few threads that know every shard's first and last use.

    residency of each epoch -> uses in order of need -> download while space allows, else free what passed() let go

A use names the windows of the run, counted through its epochs, between which a shard is needed. Uses are claimed
strictly in order of need, so a shard wanted later can never keep out one wanted now, and a limit that holds the open
windows (`residency.most_bytes_held`) is enough never to stand still. At the start nothing is here yet: the first rows
then come by themselves (early.py).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from loader.cache import CachedShard, ShardCache
from loader.counters import Counters
from loader.download import Closed, Downloader
from loader.early import EarlyRows
from loader.order import SplitOrder
from loader.plans import ReceivedRows, RowsOf
from loader.residency import residency
from loader.rows import ShardError, check_sha256, is_whole
from loader.shards import LocalShard, ShardTable
from manifests.errors import UserError

logger = logging.getLogger(__name__)

# Downloads at once. One stream of an object store brings 50 to 100 MB/s; a rank rarely needs more than four of them.
NUM_THREADS = 4
# How long closing waits for the pieces on their way: a network that stalls must not hold up the end of a program.
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


class Fetcher:
    """Shards of a table as local files, for one rank, from one place of the run on.

    Local shards are given in place. Others are downloaded into `cache`, of which this holds at most `limit_bytes`.
    verify_local: hashes local shards too, ahead of need, each once. mask_bad: a shard that stays bad is given as None,
    so that its rows become filler, where otherwise it is an error. open_windows: the most that the batches in flight
    lie in; so far ahead of `passed` a shard may be waited for.
    """

    def __init__(
        self,
        table: ShardTable,
        order: SplitOrder,
        lanes: range,
        *,
        cache: ShardCache | None,
        limit_bytes: int,
        counters: Counters,
        verify_local: bool = False,
        mask_bad: bool = False,
        open_windows: int = 1,
        num_threads: int = NUM_THREADS,
    ) -> None:
        self._table = table
        self._order = order
        self._lanes = lanes
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._counters = counters
        self._verify_local = verify_local
        self._mask_bad = mask_bad
        self._num_threads = num_threads
        # From a shard's use in the first window of an epoch to its use in the last window of the next are two epochs.
        # Looking further ahead would never end where everything fits.
        self._reach = max(2 * order.windows_per_lane, open_windows)
        # Verified one window ahead: reading everything at once would be in the way of what is wanted now.
        self._verify_reach = open_windows
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._turn = threading.Lock()
        # Set once the first rows have come, or cannot come alone: whole shards on the way would hold them up.
        self._may_download = threading.Event()
        self._held: dict[int, CachedShard] = {}
        self._arriving: set[int] = set()
        self._last_window: dict[int, int] = {}
        self._used_bytes = 0
        self._bad: set[int] = set()
        # What every micro-batch asks for several times: shards that are here, without a lock or the joining of a path.
        self._ready: dict[int, LocalShard] = {}
        self._passed = 0
        self._first_window = 0
        self._failure: BaseException | None = None
        self._early_mismatch: ShardError | None = None
        self._interrupted = False
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        self._early = EarlyRows(table.dataset.manifest.example, table.url)
        if cache is not None:
            self._downloader = Downloader(table, cache, counters, self._closing)

    def start(self, window: int) -> bool:
        """Begins, or goes on, at a window of the run.

        False where this fetcher cannot: the window lies before what was already given up, or a download has failed.
        """
        if self._process != os.getpid():
            return False  # a forked child has none of the threads
        self._interrupted = False
        if not self._threads:
            self._passed = self._first_window = window
            if not self._early.is_ever_worth_it(self._table.bytes_to_fetch):
                self._may_download.set()
            if (self._cache is not None or self._verify_local) and len(self._lanes):
                epoch, inside = divmod(window, self._order.windows_per_lane)
                if self._cache is not None:
                    self._cache.sweep(self._wanted_first(epoch, inside))
                uses = upcoming_uses(self._order, self._lanes, epoch, inside)
                for number in range(self._num_threads):
                    # Daemons: a process that ends without close() must not wait for a download.
                    thread = threading.Thread(
                        target=self._run, args=(uses,), name=f"shard-fetcher-{number}", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()
            return True
        if window < self._passed or self._failure is not None:
            return False
        self.passed(window)
        return True

    def ready(self, shards: Iterable[int], window: int) -> tuple[LocalShard, ...] | None:
        """The files of these shards where all of them are here for this window; the usual case, and quick."""
        found = tuple(self._usable(shard, window) for shard in shards)
        return None if None in found or self._early_mismatch is not None else cast("tuple[LocalShard, ...]", found)

    def _usable(self, shard: int, window: int) -> LocalShard | None:
        """The file of a shard that nobody gives up before `window` is passed. Without a lock.

        Not one that is here from a use that is over, while no thread has come to claim it for this one: it may go
        between a plan that names it and the worker that maps it.
        """
        file = self._ready.get(shard)
        is_over = file is not None and file.is_cached and self._last_window.get(shard, -1) < window
        return None if is_over else file

    def rows_of(self, wanted: Mapping[int, list[int]], window: int) -> dict[int, RowsOf]:
        """Where the wanted examples of each shard are; waits for shards on their way. Raises what a download raised.

        In the window it was started at, this does not wait for a whole shard but asks storage for those rows alone.
        """
        if self._early_mismatch is not None:
            raise self._early_mismatch
        found: dict[int, RowsOf] = {}
        missing = {}
        for shard, examples in wanted.items():
            ready = self._usable(shard, window)
            if ready is None:
                missing[shard] = examples
            else:
                found[shard] = ready
        if missing and window == self._first_window:
            found |= self._read_early(missing)
        self._may_download.set()
        for shard, examples in missing.items():
            if shard not in found:
                found[shard] = self._found(shard, len(examples), window)
        return found

    def _read_early(self, missing: Mapping[int, list[int]]) -> dict[int, ReceivedRows]:
        wanted = {}
        with self._changed:
            for shard, examples in missing.items():
                entry = self._table.entries[shard]
                waits = not (shard in self._held or shard in self._bad or self._failure)
                if waits and self._table.local_path(shard) is None and self._early.is_worth_it(len(examples), entry):
                    wanted[shard] = examples
        if not wanted:
            return {}
        started = time.perf_counter()
        try:
            early = self._early.read(wanted, {shard: self._table.entries[shard].path for shard in wanted})
        except (OSError, UserError) as error:
            # The whole shard is on its way with retries of its own; what is wrong with it, that way will say.
            logger.warning("rows were not to be had before their shards: %s", error)
            return {}
        self._counters.early_rows += sum(map(len, wanted.values()))
        self._counters.wait_s += time.perf_counter() - started
        with self._changed:
            arrived = [(shard, self._ready[shard]) for shard in wanted if shard in self._held]
        for shard, file in arrived:  # after `_fetch` looked for rows to check, perhaps
            self._early.check(shard, file)
        return early

    def _found(self, shard: int, num_rows: int, window: int) -> LocalShard | None:
        path = self._table.local_path(shard)
        if path is not None and not self._verify_local:
            file = self._table.local_shard(shard, path)
            if not self._mask_bad or is_whole(file):
                self._ready[shard] = file
                return file
            if shard not in self._bad:
                self._mark_bad(shard, ShardError(f"shard {file.name} at {path} is missing or cut"))
        found = self._await(shard, window)
        if found is None:
            self._counters.masked_rows += num_rows
        return found

    def passed(self, window: int) -> None:
        """Tells that no shard whose last use lies before this window of the run is needed any more."""
        if window <= self._passed:
            return  # nearly every call: only the thread that makes batches writes this
        with self._changed:
            self._passed = window
            self._changed.notify_all()

    def interrupt(self) -> None:
        """Wakes a thread that waits in `rows_of`: its iteration was ended."""
        self._may_download.set()
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stops the threads and gives up every shard. Does nothing in a forked child, which owns none of it."""
        if os.getpid() != self._process:
            return
        self._closing.set()
        self._may_download.set()
        with self._changed:
            self._changed.notify_all()
        deadline = time.monotonic() + _LONGEST_GOODBYE_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        with self._changed:
            for shard in list(self._held):
                self._free(shard)

    def _wanted_first(self, epoch: int, window: int) -> set[str]:
        held = residency(self._order.epoch(epoch), self._lanes, window)
        return {self._table.entries[shard].sha256 for shard in held.shards[held.first_windows == window].tolist()}

    def _await(self, shard: int, window: int) -> LocalShard | None:
        """A shard once it has arrived for this window, or was verified; None for a bad one."""

        def is_settled() -> bool:
            here = shard in self._bad or self._usable(shard, window) is not None
            return here or self._failure is not None or self._closing.is_set() or self._interrupted

        with self._changed:
            if not is_settled():
                started = time.perf_counter()
                self._changed.wait_for(is_settled)
                self._counters.waits += 1
                self._counters.wait_s += time.perf_counter() - started
            if shard in self._bad:
                return None
            file = self._usable(shard, window)
            if file is not None:
                return file
            if self._failure is not None:
                raise self._failure
            raise RuntimeError("this loader was closed while a batch was being made")

    def _run(self, uses: Iterator[Use]) -> None:
        self._may_download.wait()
        try:
            while True:
                # One thread at a time takes the next use and waits for its turn: uses are claimed strictly in order.
                with self._turn:
                    use = next(uses)
                    must_fetch = self._claim(use)
                if self._closing.is_set():
                    return
                if must_fetch:
                    self._fetch(use)
        except Closed:
            return
        except BaseException as error:  # handed to the thread that waits for the shard, which raises it
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _claim(self, use: Use) -> bool:
        """Waits until a use's turn has come and claims its bytes; whether it must then be fetched or verified."""
        if self._table.local_path(use.shard) is not None:
            reach = self._verify_reach if self._verify_local else self._reach
            with self._changed:
                self._changed.wait_for(lambda: self._closing.is_set() or use.first_window <= self._passed + reach)
                return self._verify_local and use.shard not in self._ready and use.shard not in self._bad
        num_bytes = self._table.entries[use.shard].num_bytes
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing.is_set() or self._failure is not None or self._may_claim(use, num_bytes)
            )
            if self._closing.is_set() or self._failure is not None:
                raise Closed
            if use.shard in self._bad or use.last_window < self._passed:
                return False
            self._last_window[use.shard] = use.last_window
            if use.shard in self._held or use.shard in self._arriving:
                self._changed.notify_all()  # who waits for this use need wait no longer
                return False
            self._used_bytes += num_bytes
            self._arriving.add(use.shard)
        return True

    def _fetch(self, use: Use) -> None:
        """Makes a claimed shard available, or marks it bad."""
        path = self._table.local_path(use.shard)
        try:
            if path is not None:
                file = self._table.local_shard(use.shard, path)
                check_sha256(file, self._table.entries[use.shard].sha256)
                with self._changed:
                    self._ready[use.shard] = file
                    self._changed.notify_all()
                return
            shard = self._downloader.download(use.shard)
        except (ShardError, FileNotFoundError) as error:
            with self._changed:
                if use.shard in self._arriving:
                    self._arriving.discard(use.shard)
                    self._last_window.pop(use.shard, None)
                    self._used_bytes -= self._table.entries[use.shard].num_bytes
            if not self._mask_bad:
                raise
            self._mark_bad(use.shard, error)
            return
        file = self._table.local_shard(use.shard, str(shard.path))
        with self._changed:
            self._arriving.discard(use.shard)
            if self._closing.is_set():
                self._give_back(shard)
                return
            self._held[use.shard] = shard
            self._ready[use.shard] = file
            self._changed.notify_all()
        try:
            self._early.check(use.shard, file)
        except ShardError as error:
            self._early_mismatch = error
            raise

    def _mark_bad(self, shard: int, error: Exception) -> None:
        logger.warning("%s; its rows are masked", error)
        with self._changed:
            self._bad.add(shard)
            self._changed.notify_all()

    def _may_claim(self, use: Use, num_bytes: int) -> bool:
        """Whether a use's turn has come. Where not, gives up what is over, since nothing else is left to be done.

        Only then: a shard that an upcoming use within reach wants again has by now been claimed for it.
        """
        if self._fits(use, num_bytes):
            return True
        for shard in [shard for shard in self._held if self._last_window[shard] < self._passed]:
            self._free(shard)
        return self._fits(use, num_bytes)

    def _fits(self, use: Use, num_bytes: int) -> bool:
        if use.first_window > self._passed + self._reach:
            return False
        claimed_or_over = (
            use.shard in self._held
            or use.shard in self._arriving
            or use.shard in self._bad
            or use.last_window < self._passed
        )
        return claimed_or_over or self._used_bytes + num_bytes <= self._limit_bytes

    def _free(self, shard: int) -> None:
        held = self._held.pop(shard)
        del self._last_window[shard], self._ready[shard]
        self._give_back(held)
        self._used_bytes -= held.num_bytes

    def _give_back(self, held: CachedShard) -> None:
        assert self._cache is not None
        self._cache.release(held)
