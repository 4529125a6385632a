"""What one rank reads: from a position on, the plans of its micro-batches, with the files they need held in time.

position -> rows of each step (order.py, or mixture.py) -> files (fetch.py, one fetcher a source) -> MicroBatchPlans
"""

from __future__ import annotations

import bisect
import os
import stat
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loader.budget import divided, lanes_by_rank, ranks_of_node, source_needs
from loader.cache import CacheError, ShardCache
from loader.counters import Counters
from loader.fetch import Fetcher
from loader.mixture import MixtureOrder, blocks_of, lanes_of_rank, order_of, sources_of
from loader.order import RunShape, rows_per_rank
from loader.plans import MicroBatchPlan, RowsOf, StepBlock, Stretch
from loader.position import Position
from loader.residency import most_touched
from loader.shards import LocalShard, ShardTable

# A plan on its way: the windows it lies in, and how many examples it brings.
InFlight = tuple[tuple[int, ...], int]


@dataclass(frozen=True, kw_only=True)
class Here:
    """The facts of this process: nothing in it changes a global batch.

    num_in_flight: micro-batches planned and not yet done with (workers.py). cache_dir: None for this user's own folder.
    cache_bytes: the limit of the node's cache folder.
    """

    rank: int
    world_size: int
    ranks_per_node: int
    micro_batch: int | None
    num_in_flight: int
    cache_dir: Path | None
    cache_bytes: int | None
    verify_local: bool
    mask_bad: bool


class Feed:
    """The plans and files of one rank of a run of one shape.

    tables: the sources; one, but for a mixture. weights: theirs, empty where there is one. Raises UserErrors for a
    shape that does not fit the data, and for a cache too small.
    """

    def __init__(
        self,
        tables: Sequence[ShardTable],
        weights: Sequence[float],
        shape: RunShape,
        here: Here,
        counters: Counters,
    ) -> None:
        self.shape = shape
        self._tables, self._here, self._counters = tuple(tables), here, counters
        self.order = order_of([table.num_examples for table in tables], weights, shape)
        mixture = self.order if isinstance(self.order, MixtureOrder) else None
        self._orders = sources_of(self.order)
        self._first_shards = mixture.first_shards if mixture else (0,)
        self.lanes = lanes_of_rank(self.order, here.rank, here.world_size)
        self._source_lanes = mixture.owned(self.lanes) if mixture else [self.lanes]
        num_lanes = mixture.num_lanes if mixture else shape.num_lanes

        rows = -(-num_lanes // here.world_size) * shape.lane_batch if mixture else rows_per_rank(here.world_size, shape)
        self.micro_batch = here.micro_batch or rows
        self.micro_batches_per_step = -(-rows // self.micro_batch)

        steps_in_flight = most_touched(here.num_in_flight, self.micro_batches_per_step)
        needs = source_needs(self.order, [table.bytes_to_fetch for table in tables], steps_in_flight)
        # Of the run: what must be had while the oldest batch in flight is not yet done with.
        self._open_windows = [need.open_windows * need.open_epochs for need in needs]
        ranks = ranks_of_node(here.rank, here.world_size, here.ranks_per_node)
        if here.cache_bytes is None:
            ranks = range(here.rank, here.rank + 1)
        source_lanes = mixture.source_lanes if mixture else (shape.num_lanes,)
        owned = lanes_by_rank(ranks, here.world_size, source_lanes)
        self.budget = divided(needs, owned, here.rank, here.cache_bytes)
        self._fetchers: list[Fetcher] | None = None

    @property
    def rows_per_step(self) -> int:
        return self.micro_batches_per_step * self.micro_batch

    def plans(self, start: Position, in_flight: deque[InFlight]) -> Iterator[MicroBatchPlan]:
        """The plans of this rank's micro-batches from a position to the end of its epoch.

        in_flight: this appends what it gives, of which the consumer takes the first when it is done with a batch:
        no file of a batch still on its way is given up.
        """
        fetchers: list[Fetcher] | None = None
        for block in self._blocks(start):
            if fetchers is None:
                fetchers = self._files_from(block.windows)
            yield from self._plans_of(block, fetchers, in_flight)

    def _plans_of(
        self, block: StepBlock, fetchers: list[Fetcher], in_flight: deque[InFlight]
    ) -> Iterator[MicroBatchPlan]:
        distinct, file_of_row = np.unique(block.shards, return_inverse=True)
        shards = distinct.tolist()
        windows, window = block.windows, sum(block.windows)
        stretch: Stretch | None = None
        passed: tuple[int, ...] | None = None
        for begin, end in zip(block.cuts[:-1], block.cuts[1:], strict=True):
            for number in range(self.micro_batches_per_step):
                first = min(begin + number * self.micro_batch, end)
                num_examples = min(self.micro_batch, end - first)
                in_flight.append((windows, num_examples))
                oldest = in_flight[0][0]
                if oldest is not passed:
                    for fetcher, of_source in zip(fetchers, oldest, strict=True):
                        fetcher.passed(of_source)
                    passed = oldest
                if stretch is None:
                    files = self._ready(fetchers, shards, windows)
                    if files is not None:
                        stretch = Stretch(
                            files=files, file_of_row=file_of_row, example_of_row=block.examples, window=window
                        )
                        # Asked for nothing, a fetcher whose rows nobody wants yet still learns that it may go ahead.
                        for fetcher, of_source in zip(fetchers, windows, strict=True):
                            fetcher.rows_of({}, of_source)
                if stretch is not None:
                    yield MicroBatchPlan(stretch, first, num_examples)
                    continue
                # Some shard of this window is still on its way, or bad: only the rows wanted now are waited for.
                rows = slice(first, first + num_examples)
                wanted, of_row = np.unique(block.shards[rows], return_inverse=True)
                examples = block.examples[rows]
                some = self._files(fetchers, wanted[of_row].tolist(), examples.tolist(), windows)
                here = tuple(some[shard] for shard in wanted.tolist())
                alone = Stretch(files=here, file_of_row=of_row, example_of_row=examples, window=window)
                yield MicroBatchPlan(alone, 0, len(examples))

    def global_examples(self, at: Position) -> list[tuple[int, int]]:
        """(shard number, example number) of the global batch at a position, over all ranks, in order."""
        everything = lanes_of_rank(self.order, 0, 1)
        return next(next(self._blocks(at, everything, 1)).steps())

    def interrupt(self) -> None:
        """Wakes a thread that waits for a shard."""
        for fetcher in self._fetchers or ():
            fetcher.interrupt()

    def close(self) -> None:
        """Gives up the cache."""
        if self._fetchers is not None:
            self._close_fetchers()
            self._fetchers = None

    def _blocks(self, start: Position, lanes: range | None = None, num_steps: int | None = None) -> Iterator[StepBlock]:
        lanes = self.lanes if lanes is None else lanes
        num_steps = self.order.steps_left(start.examples_consumed) if num_steps is None else num_steps
        return blocks_of(self.order, lanes, start.epoch, start.examples_consumed, num_steps)

    def _source_of(self, shard: int) -> int:
        return bisect.bisect_right(self._first_shards, shard) - 1

    def _ready(
        self, fetchers: list[Fetcher], shards: list[int], windows: tuple[int, ...]
    ) -> tuple[LocalShard, ...] | None:
        """The files of these shards where all of them are here; the usual case."""
        if len(fetchers) == 1:
            return fetchers[0].ready(shards, windows[0])
        found: list[LocalShard] = []
        for shard in shards:
            source = self._source_of(shard)
            files = fetchers[source].ready([shard - self._first_shards[source]], windows[source])
            if files is None:
                return None
            found += files
        return tuple(found)

    def _files(
        self, fetchers: list[Fetcher], shards: list[int], examples: list[int], windows: tuple[int, ...]
    ) -> dict[int, RowsOf]:
        """Where the rows of each of the shards are, each from its source's fetcher."""
        wanted: list[dict[int, list[int]]] = [{} for _ in fetchers]
        for shard, example in zip(shards, examples, strict=True):
            source = self._source_of(shard)
            wanted[source].setdefault(shard - self._first_shards[source], []).append(example)
        found: dict[int, RowsOf] = {}
        for source, fetcher in enumerate(fetchers):
            for shard, rows in fetcher.rows_of(wanted[source], windows[source]).items():
                found[shard + self._first_shards[source]] = rows
        return found

    def _files_from(self, windows: tuple[int, ...]) -> list[Fetcher]:
        """The fetchers, going on from these windows; new ones where an old one has already given its window up."""
        if self._fetchers is not None and all(
            fetcher.start(window) for fetcher, window in zip(self._fetchers, windows, strict=True)
        ):
            return self._fetchers
        self.close()
        here = self._here
        fetchers = [
            Fetcher(
                table,
                order,
                lanes,
                cache=ShardCache(here.cache_dir or _default_cache_dir()) if table.bytes_to_fetch.any() else None,
                limit_bytes=limit,
                counters=self._counters,
                verify_local=here.verify_local,
                mask_bad=here.mask_bad,
                open_windows=open_windows,
            )
            for table, order, lanes, limit, open_windows in zip(
                self._tables, self._orders, self._source_lanes, self.budget.limits, self._open_windows, strict=True
            )
        ]
        # Bound to the fetchers alone, so that it does not keep this object alive; also runs when the program ends.
        self._close_fetchers = weakref.finalize(self, _close, fetchers)
        for fetcher, window in zip(fetchers, windows, strict=True):
            fetcher.start(window)
        self._fetchers = fetchers
        return fetchers


def _default_cache_dir() -> Path:
    """One folder a user: others must not be able to put files there under the names this trusts."""
    # Looked for where it is needed: Python tries the directory by writing to it.
    directory = Path(tempfile.gettempdir()) / f"shardmill-cache-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return directory  # ShardCache says what is wrong with it
    # Anybody may make a folder of this name before us.
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        raise CacheError(
            f"{directory}, the cache's default place, is another user's, or others may write there, who could put in "
            "it what is not the shards'; remove it, or give cache_dir"
        )
    return directory


def _close(fetchers: list[Fetcher]) -> None:
    for fetcher in fetchers:
        fetcher.close()
