"""One shard from storage into the cache, whatever storage does on the way."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator

from loader.cache import CachedShard, ChecksumError, FullDiskError, ShardCache
from loader.counters import Counters
from loader.rows import ShardError
from loader.shards import ShardTable
from manifests import storage
from manifests.objects import AccessError, StorageError

logger = logging.getLogger(__name__)

# Pieces in which a shard is downloaded and hashed: large enough that the interpreter's share is nothing.
_PIECE_BYTES = 1 << 20
# Storage has by then retried each request itself, eight times: this is for a store that is away for a minute, for
# credentials that somebody is about to renew, and for a way that damages some of what it carries.
_MAX_TRIES = 6
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 20.0
# A disk that is full now may be free when another shard, or another job, is done.
_MAX_FULL_DISK_WAITS = 60
_FULL_DISK_WAIT_S = 0.5


class Closed(Exception):
    """How a download learns that nobody wants it any more."""


class Downloader:
    """Downloads shards of a table, and tries again what is worth it. Used by several threads."""

    def __init__(self, table: ShardTable, cache: ShardCache, counters: Counters, closing: threading.Event) -> None:
        self._table = table
        self._cache = cache
        self._counters = counters
        self._closing = closing

    def download(self, number: int) -> CachedShard:
        """The shard, whole and verified, held in the cache.

        Wrong bytes are asked for again, since the fault may lie on the way: the same wrong bytes twice are what lies
        there. Storage's failures, refused credentials (read anew each time) and a full disk are waited out, longer
        each time. Raises ShardError, FullDiskError, or what storage raised, naming the shard; Closed when it is given
        up.
        """
        entry, url = self._table.entries[number], self._table.url(number)
        wrong: set[tuple[str, int]] = set()
        num_failed = num_full = 0
        while True:
            try:
                return self._obtain(number)
            except ChecksumError as error:
                if error.found in wrong or len(wrong) == _MAX_TRIES - 1:
                    often = "twice, the same bytes" if error.found in wrong else f"in {_MAX_TRIES} downloads"
                    raise ShardError(
                        f"shard {entry.path} at {url} is not what the manifest says, {often}: {error}; "
                        "restore it or build the version again"
                    ) from error
                wrong.add(error.found)
                logger.warning("shard %s: %s; downloading it again", entry.path, error)
            except (StorageError, AccessError) as error:
                num_failed += 1
                if num_failed == _MAX_TRIES:
                    raise
                logger.warning("shard %s: %s; trying again (%d)", entry.path, error, num_failed)
                # Jitter, so that the ranks thrown off together do not come back together.
                longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**num_failed)
                self._wait(random.uniform(longest / 2, longest))
                if isinstance(error, AccessError):
                    storage.reconnect()
            except FullDiskError as error:
                num_full += 1
                if num_full == _MAX_FULL_DISK_WAITS:
                    raise
                if num_full == 1:
                    logger.warning("shard %s: %s; waiting for room", entry.path, error)
                self._counters.full_disk_waits += 1
                self._wait(_FULL_DISK_WAIT_S)
                continue
            self._counters.retries += 1

    def _obtain(self, number: int) -> CachedShard:
        entry, url = self._table.entries[number], self._table.url(number)
        started, downloads = time.perf_counter(), 0

        def pieces() -> Iterator[bytes]:
            nonlocal downloads
            downloads += 1
            return self._pieces(url)

        shard = self._cache.obtain(entry.sha256, entry.num_bytes, pieces, wait=self._closing.wait)
        if shard is None:
            raise Closed
        if downloads:
            self._counters.bytes_fetched += entry.num_bytes
            self._counters.shards_fetched += 1
            self._counters.fetch_s += time.perf_counter() - started
        else:
            self._counters.cache_hits += 1
        return shard

    def _pieces(self, url: str) -> Iterator[bytes]:
        with storage.open_stream(url) as stream:
            while piece := stream.read(_PIECE_BYTES):
                if self._closing.is_set():
                    raise Closed
                yield piece

    def _wait(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise Closed
