"""The Loader: the object a training loop holds.

for batch in loader: ...           micro-batches from the position to the end of its epoch
loader.advance()                   after each optimizer step: the position moves by one global batch
loader.state_dict()                the position, equal on all ranks, whatever is already prefetched
loader.load_state_dict(state)      the next iteration starts there
"""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loader.batches import INT64, PLANS_PER_WORKER, Batch, BatchMaker, TokenDtype, made_in_order
from loader.cache import CacheError, ShardCache
from loader.columns import COLUMNS
from loader.fetch import Fetcher
from loader.order import OrderError, RunShape, SplitOrder, owned_lanes, rows_per_rank
from loader.plans import MicroBatchPlan, steps_of_rank
from loader.position import Position, resumed
from loader.residency import most_bytes_held, most_touched
from loader.shards import ShardTable, first_change
from manifests import Dataset, load

logger = logging.getLogger(__name__)


class Loader:
    """One rank's micro-batches of a split, in the order that order.py defines.

    Iterating gives dicts {column: tensor of shape (micro_batch, seq_len)}, `micro_batches_per_step` of them a step,
    from the position to the end of its epoch; iterating again goes on with the next epoch. All ranks give equally many:
    a rank that owns fewer lanes fills up with rows whose labels are all -100. So divide the loss by the *global* count
    of labels. Columns are explained in columns.py; labels are already shifted.

    An iteration starts at the position, which only `advance` and `load_state_dict` move: without `advance`, the next
    iteration gives the same batches again. One iteration lives at a time: a new one ends the one before.
    """

    def __init__(
        self,
        manifest: str | os.PathLike[str] | Dataset,
        *,
        split: str = "train",
        global_batch: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        micro_batch: int | None = None,
        num_workers: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
        lanes: int | None = None,
        window_shards: int = 1,
        columns: Sequence[str] = COLUMNS,
        dtype: TokenDtype = INT64,
    ) -> None:
        """Makes a loader at the head of epoch 0. Reads the manifest, no shard.

        manifest: a path, a URL or a loaded Dataset.
        global_batch: examples a step, over all ranks. micro_batch: rows a batch; all of the rank's step by default.
        num_workers: processes that make batches; 0 makes them here. The batches are the same.
        cache_dir: where shards from object storage are kept while they are needed; by default a folder of this user in
        the system's temporary directory. Local shards are read in place. Ranks of one machine may share it.
        cache_bytes: the most this rank keeps there; by default what its open windows and the next ones take.
        lanes: L, fixed for a run; by default the global batch. window_shards: K, the shuffle's reach in shards.
        Raises a UserError, in one line, for anything that does not fit.
        """
        dataset = manifest if isinstance(manifest, Dataset) else load(os.fspath(manifest))
        _check_counts(rank=rank, world_size=world_size, micro_batch=micro_batch, num_workers=num_workers)
        self._table = ShardTable(dataset=dataset, split=split)
        self._rank, self._world_size, self._num_workers = rank, world_size, num_workers
        self._micro_batch_asked, self._lanes_asked = micro_batch, lanes
        self._cache_dir = Path(cache_dir) if cache_dir is not None else _default_cache_dir()
        self._cache_bytes = cache_bytes
        self._make = BatchMaker(dataset.manifest.example, dataset.manifest.tokenizer.eos_id, tuple(columns), dtype)
        self._running: Generator[Batch, None, None] | None = None
        self._fetcher: Fetcher | None = None
        shape = RunShape(
            global_batch=global_batch,
            num_lanes=global_batch if lanes is None else lanes,
            window_shards=window_shards,
            seed=seed,
        )
        self._take_shape(shape)
        self._position = Position(
            manifest=dataset.manifest.digest,
            shards=self._table.digest,
            split=split,
            seed=seed,
            epoch=0,
            examples_consumed=0,
            lanes=shape.num_lanes,
            window_shards=window_shards,
            global_batch=global_batch,
        )

    def __iter__(self) -> Iterator[Batch]:
        """Micro-batches from the position to the end of its epoch."""
        self._end_iteration()
        self._running = self._batches(self._position)
        return self._running

    def advance(self) -> None:
        """Moves the position by one global batch; at the end of an epoch to the head of the next. Nothing else does."""
        self._position = self._position.advanced(self._order)

    def state_dict(self) -> dict[str, Any]:
        """The position as a small JSON object, equal on all ranks."""
        return self._position.to_json()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes a saved position: the next iteration starts there, on any number of ranks; one that runs is ended.

        The global batch may have become another multiple of the saved lanes; the lanes are taken over where none were
        named here. Raises PositionError, naming the field and both values, where anything else differs.
        """
        saved = Position.from_json(state)
        position = resumed(
            saved,
            self._position,
            lanes_are_free=self._lanes_asked is None,
            what_changed=lambda: first_change(self._table, saved.manifest),
        )
        self._end_iteration()
        if position.lanes != self._position.lanes:
            self._take_shape(replace(self._order.shape, num_lanes=position.lanes))
        self._position = position.at_next_batch(self._order)

    def close(self) -> None:
        """Ends an iteration and gives up the cache. Not needed at the end of a program."""
        self._end_iteration()
        self._drop_fetcher()

    @property
    def epoch(self) -> int:
        """The epoch of the position."""
        return self._position.epoch

    @property
    def examples_consumed(self) -> int:
        """Examples of the position's epoch already advanced over, by all ranks together."""
        return self._position.examples_consumed

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in a whole epoch."""
        return self._order.steps_per_epoch

    @property
    def rows_per_step(self) -> int:
        """Rows this and every other rank gives a step, filler included."""
        return self.micro_batches_per_step * self._micro_batch

    @property
    def micro_batches_per_step(self) -> int:
        """Batches an iteration gives for one step; the same on all ranks."""
        return self._micro_batches_per_step

    def global_batch_examples(self) -> list[tuple[int, int]]:
        """(shard number in the manifest, example number in the shard) of the global batch at the position, in order.

        Over all ranks, equal on all of them, computed without reading anything.
        """
        order = self._order.epoch(self._position.epoch)
        first = self._position.examples_consumed // self._order.shape.num_lanes
        shards, indices = order.steps(range(self._order.shape.num_lanes), first, 1)
        return list(zip(shards[0].tolist(), indices[0].tolist(), strict=True))

    def _take_shape(self, shape: RunShape) -> None:
        """Sets everything that follows from the shape; refuses, changing nothing, a cache too small for it."""
        order = SplitOrder(shard_num_examples=self._table.num_examples, shape=shape)
        lanes = owned_lanes(self._rank, self._world_size, shape.num_lanes)
        rows = rows_per_rank(self._world_size, shape)
        micro_batch = self._micro_batch_asked or rows
        micro_batches_per_step = -(-rows // micro_batch)

        steps_in_flight = most_touched(self._num_workers * PLANS_PER_WORKER + 1, micro_batches_per_step)
        open_windows = most_touched(steps_in_flight * shape.lane_batch, order.window_length)
        to_fetch = self._table.bytes_to_fetch
        needed = most_bytes_held(order, len(lanes), to_fetch, open_windows)
        if self._cache_bytes is not None and self._cache_bytes < needed:
            raise CacheError(
                f"cache_bytes is {self._cache_bytes}, but the shards that {len(lanes)} lanes (rank {self._rank}) have "
                f"open at once take {needed} bytes; give cache_bytes={needed} or more, or fewer lanes a rank"
            )
        with_next = most_bytes_held(order, len(lanes), to_fetch, open_windows + 1)
        self._drop_fetcher()
        self._order, self._lanes = order, lanes
        self._micro_batch, self._micro_batches_per_step = micro_batch, micro_batches_per_step
        self._limit_bytes = with_next if self._cache_bytes is None else self._cache_bytes

    def _end_iteration(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _drop_fetcher(self) -> None:
        if self._fetcher is not None:
            self._close_fetcher()
            self._fetcher = None

    def _files_from(self, epoch: int, window: int) -> Fetcher:
        """The fetcher, going on from a window; a new one where the old one has already given that window up."""
        if self._fetcher is not None and self._fetcher.start(epoch, window):
            return self._fetcher
        self._drop_fetcher()
        cache = ShardCache(self._cache_dir) if self._table.bytes_to_fetch.any() else None
        fetcher = Fetcher(self._table, self._order, self._lanes, cache=cache, limit_bytes=self._limit_bytes)
        # Bound to the fetcher alone, so that it does not keep this loader alive; also runs when the program ends.
        self._close_fetcher = weakref.finalize(self, fetcher.close)
        fetcher.start(epoch, window)
        self._fetcher = fetcher
        return fetcher

    def _batches(self, start: Position) -> Generator[Batch, None, None]:
        first = start.examples_consumed // self._order.shape.num_lanes
        if first == 0 and self._rank == 0:
            self._log_epoch(start.epoch)
        # The windows of the batches being made. No file of theirs is given up before the consumer asks for more.
        in_flight: deque[int] = deque()
        # Worker processes are forked before the first plan is drawn, so before the fetcher has a thread or a lock.
        plans = self._plans(start.epoch, first, self._order.steps_left(start.examples_consumed), in_flight)
        for batch in made_in_order(plans, self._make, self._num_workers):
            yield batch
            in_flight.popleft()

    def _plans(self, epoch: int, first: int, num_steps: int, in_flight: deque[int]) -> Iterator[MicroBatchPlan]:
        """The plans of this rank's micro-batches for steps of an epoch, the first one at lane element `first`."""
        order = self._order.epoch(epoch)
        files = self._files_from(epoch, first // self._order.window_length)
        for step in steps_of_rank(order, self._lanes, first, num_steps):
            window = epoch * self._order.windows_per_lane + step.window
            for start in range(0, self.rows_per_step, self._micro_batch):
                in_flight.append(window)
                files.passed(in_flight[0])
                rows = slice(start, start + self._micro_batch)
                number_of: dict[int, int] = {}
                file_of_row = [number_of.setdefault(shard, len(number_of)) for shard in step.shards[rows]]
                yield MicroBatchPlan(
                    files=files.local(number_of),
                    file_of_row=file_of_row,
                    example_of_row=step.examples[rows],
                    num_rows=self._micro_batch,
                    window=window,
                )

    def _log_epoch(self, epoch: int) -> None:
        used = self.steps_per_epoch * self._order.shape.global_batch
        logger.info(
            "epoch %d: %d steps of %d examples; %d of %d examples of %s are left over, others in every epoch",
            epoch,
            self.steps_per_epoch,
            self._order.shape.global_batch,
            self._order.num_examples - used,
            self._order.num_examples,
            self._table.split,
        )


def _check_counts(*, rank: int, world_size: int, micro_batch: int | None, num_workers: int) -> None:
    if world_size < 1 or not 0 <= rank < world_size:
        raise OrderError(f"rank is {rank} of world_size {world_size}; ranks are 0 .. world_size - 1")
    if micro_batch is not None and micro_batch < 1:
        raise OrderError(f"micro_batch is {micro_batch}; give 1 row or more")
    if num_workers < 0:
        raise OrderError(f"num_workers is {num_workers}; give 0 or more")


def _default_cache_dir() -> Path:
    """One folder a user: others must not be able to put files there under the names this trusts."""
    return Path(tempfile.gettempdir()) / f"shardmill-cache-{os.getuid()}"
