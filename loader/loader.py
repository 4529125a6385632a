"""The Loader: the object a training loop holds.

for batch in loader: ...           micro-batches from the position to the end of its epoch
loader.advance()                   after each optimizer step: the position moves by one global batch
loader.state_dict()                the position, equal on all ranks, whatever is already prefetched
loader.load_state_dict(state)      the next iteration starts there
"""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from loader.batches import INT64, BatchDataset, BatchMaker, TokenDtype, device_named
from loader.columns import COLUMNS
from loader.counters import Counters
from loader.feed import Feed, Here, InFlight
from loader.mixture import MixtureOrder, check_alike
from loader.order import OrderError, RunShape
from loader.position import Position, Walk, resumed
from loader.shards import ShardTable, first_change
from loader.staging import Batch, received
from loader.workers import batches_in_flight, made_ahead, made_by_thread
from manifests import Dataset, fingerprint, load

logger = logging.getLogger(__name__)

Source = str | os.PathLike[str] | Dataset


class Loader:
    """One rank's micro-batches of a split, in the order that order.py defines.

    Iterating gives dicts {column: tensor of shape (micro_batch, seq_len)}, `micro_batches_per_step` of them a step,
    from the position to the end of its epoch; iterating again goes on with the next epoch. All ranks give equally many:
    a rank that owns fewer lanes fills up with rows whose labels are all -100. So divide the loss by the *global* count
    of labels. Columns are explained in columns.py; labels are already shifted.

    An iteration starts at the position, which only `advance` and `load_state_dict` move: without `advance`, the next
    iteration gives the same batches again. One iteration lives at a time: a new one ends the one before.

    A batch's memory is used again once nothing refers to its tensors any more, so keep as many as you like.
    """

    def __init__(
        self,
        manifest: Source | Mapping[Source, float],
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
        ranks_per_node: int | None = None,
        num_ahead: int = 4,
        pin_memory: bool = False,
        device: Any = None,
        bad_shards: Literal["error", "mask"] = "error",
        verify_local: bool = False,
    ) -> None:
        """Makes a loader at the head of epoch 0. Reads the manifest, no shard.

        manifest: a path, a URL or a loaded Dataset; or several, each with its weight: they are then mixed (mixture.py).
        global_batch: examples a step, over all ranks. micro_batch: rows a batch; all of the rank's step by default.
        num_workers: processes that make batches; 0 makes them in a thread, `num_ahead` in front of the consumer, or in
        the consumer's own where that is 0 too. The batches are the same.
        cache_dir: where shards from object storage are kept while they are needed; by default a folder of this user in
        the system's temporary directory. Local shards are read in place. Ranks of one machine may share it.
        cache_bytes: the most that this job's ranks on this node keep there together; by default what their open windows
        and the next ones take. ranks_per_node: how many ranks that is; by default LOCAL_WORLD_SIZE, which torchrun
        sets, or else all of them.
        columns: of columns.py: input_ids, labels, position_ids, document_ids, and cumulative_lengths, which is int32 of
        one dimension. dtype: of the others.
        lanes: L, fixed for a run; by default the global batch. window_shards: K, the shuffle's reach in shards.
        pin_memory: batches lie in pinned memory. device: batches are there, copied ahead on a stream of their own.
        bad_shards: what a shard does whose bytes are wrong after another download: end the iteration, or give rows
        without labels, which `counters` counts. verify_local: hash local shards too, once, before their first use.
        Raises a UserError, in one line, for anything that does not fit.
        """
        given = list(manifest.items()) if isinstance(manifest, Mapping) else [(manifest, 1.0)]
        if not given:
            raise OrderError("the mixture holds no source; give one manifest or more, each with its weight")
        datasets = [one if isinstance(one, Dataset) else load(os.fspath(one)) for one, _ in given]
        self._weights = [weight for _, weight in given] if isinstance(manifest, Mapping) else []
        check_alike(datasets)
        _check_whole(
            rank=rank,
            world_size=world_size,
            micro_batch=micro_batch,
            num_workers=num_workers,
            cache_bytes=cache_bytes,
            ranks_per_node=ranks_per_node,
            num_ahead=num_ahead,
        )
        if ranks_per_node is None:
            ranks_per_node = _local_world_size(world_size)
        _check_counts(
            rank=rank,
            world_size=world_size,
            micro_batch=micro_batch,
            num_workers=num_workers,
            num_ahead=num_ahead,
            ranks_per_node=ranks_per_node,
        )
        if bad_shards not in ("error", "mask"):
            raise OrderError(f"bad_shards is {bad_shards!r}; give 'error' or 'mask'")
        self._tables = [ShardTable(dataset=dataset, split=split) for dataset in datasets]
        self._num_workers, self._num_ahead, self._lanes_asked = num_workers, num_ahead, lanes
        first = datasets[0].manifest
        self._make = BatchMaker(
            first.example,
            first.tokenizer.eos_id,
            tuple(columns),
            dtype,
            pin_memory=pin_memory,
            device=device_named(device),
        )
        self._here = Here(
            rank=rank,
            world_size=world_size,
            ranks_per_node=ranks_per_node,
            micro_batch=micro_batch,
            num_in_flight=batches_in_flight(num_workers, num_ahead, is_staged=self._make.is_staged),
            cache_dir=None if cache_dir is None else Path(cache_dir),
            cache_bytes=cache_bytes,
            verify_local=verify_local,
            mask_bad=bad_shards == "mask",
        )
        self._process = os.getpid()
        self._counters = Counters()
        # Not a reference: an iteration whose consumer is gone should end, and it refers to much.
        self._running: weakref.ref[Generator[Batch, None, None]] | None = None
        shape = RunShape(
            global_batch=global_batch,
            num_lanes=global_batch if lanes is None else lanes,
            window_shards=window_shards,
            seed=seed,
        )
        self._feed = Feed(self._tables, self._weights, shape, self._here, self._counters)
        start = Position(
            manifest=self._identity([dataset.manifest.digest for dataset in datasets]),
            shards=self._identity([table.digest for table in self._tables]),
            split=split,
            seed=seed,
            epoch=0,
            examples_consumed=0,
            lanes=shape.num_lanes,
            window_shards=window_shards,
            global_batch=global_batch,
        )
        self._walk = Walk(start, self._feed.order)

    def __iter__(self) -> Iterator[Batch]:
        """Micro-batches from the position to the end of its epoch."""
        self._end_iteration()
        running = self._batches(self._position)
        self._running = weakref.ref(running)
        return running

    def advance(self) -> None:
        """Moves the position by one global batch; at the end of an epoch to the head of the next. Nothing else does."""
        self._walk.advance()

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
            what_changed=lambda: None if self._weights else first_change(self._tables[0], saved.manifest),
        )
        feed = self._feed
        if position.lanes != self._position.lanes:
            shape = replace(feed.shape, num_lanes=position.lanes)
            feed = Feed(self._tables, self._weights, shape, self._here, self._counters)
        walk = Walk(position, feed.order)
        self._end_iteration()
        if feed is not self._feed:
            self._feed.close()
        self._feed, self._walk = feed, walk

    def close(self) -> None:
        """Ends an iteration and gives up the cache. Not needed at the end of a program."""
        self._end_iteration()
        self._feed.close()
        self._make.forget_files()

    @property
    def _position(self) -> Position:
        return self._walk.position

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
        return self._feed.order.steps_per_epoch

    @property
    def rows_per_step(self) -> int:
        """Rows this and every other rank gives a step, filler included."""
        return self._feed.rows_per_step

    @property
    def micro_batches_per_step(self) -> int:
        """Batches an iteration gives for one step; the same on all ranks."""
        return self._feed.micro_batches_per_step

    @property
    def counters(self) -> Counters:
        """What this loader has done so far; see counters.py."""
        return self._counters

    def metrics(self) -> dict[str, int | float]:
        """The counters and the position, flat, for a trainer to export."""
        return {**self._counters.to_json(), "epoch": self.epoch, "examples_consumed": self.examples_consumed}

    def global_batch_examples(self) -> list[tuple[int, int]]:
        """(shard number in the manifest, example number in the shard) of the global batch at the position, in order.

        Over all ranks, equal on all of them, computed without reading anything. The shards of a mixture are numbered
        through its manifests.
        """
        return self._feed.global_examples(self._position)

    def dataset(self) -> BatchDataset:
        """The batches from the position to the end of its epoch, for a torch DataLoader with `batch_size=None`.

        For frameworks that insist on one; iterating this loader itself is faster. The state stays here: call `advance`
        after each optimizer step, and save this loader's `state_dict`. Each of the DataLoader's workers keeps shards of
        its own account in the cache, so leave `cache_bytes` out, or use num_workers of this loader.
        """
        self._make.load_kernel()
        return BatchDataset(self._every)

    def _every(self, worker: int, num_workers: int) -> Iterator[Batch]:
        """Batches number worker, worker + num_workers, ... from the position to the end of its epoch, made here."""
        in_flight: deque[InFlight] = deque()
        feed = self._feed
        if num_workers >= self._here.num_in_flight:
            # Between two batches of one worker lie those of all others, whose shards it must be able to hold as well.
            here = replace(self._here, num_in_flight=num_workers + 1)
            feed = Feed(self._tables, self._weights, feed.shape, here, self._counters)
        plans = islice(feed.plans(self._position, in_flight), worker, None, num_workers)
        try:
            for batch in self._make.batches(plans, feed.micro_batch, 0):
                yield received(batch)
                del batch
                in_flight.clear()
        finally:
            if os.getpid() != self._process:
                feed.close()  # a worker's own shards: nothing else runs when such a process ends

    def _identity(self, digests: list[str]) -> str:
        """Of what the loader reads: a manifest's own digest, or for a mixture one of all with their weights."""
        if not self._weights:
            return digests[0]
        return fingerprint([[digest, float(weight)] for digest, weight in zip(digests, self._weights, strict=True)])

    def _end_iteration(self) -> None:
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()
        self._running = None

    def _batches(self, start: Position) -> Generator[Batch, None, None]:
        if start.examples_consumed == 0 and self._here.rank == 0:
            self._log_epoch(start.epoch)
        feed, counters = self._feed, self._counters
        # The batches being made. No file of theirs is given up before the consumer asks for more.
        in_flight: deque[InFlight] = deque()
        # Worker processes are forked before the first plan is drawn, so before the fetcher has a thread or a lock.
        made = self._make.batches(feed.plans(start, in_flight), feed.micro_batch, self._num_workers)
        ahead = made_by_thread(self._num_workers, self._num_ahead, is_staged=self._make.is_staged)
        if ahead:
            made = made_ahead(made, ahead, feed.interrupt)
        for batch in made:
            counters.batches += 1
            counters.rows += in_flight[0][1]
            yield received(batch)
            del batch
            in_flight.popleft()

    def _log_epoch(self, epoch: int) -> None:
        order = self._feed.order
        used = self.steps_per_epoch * self._feed.shape.global_batch
        if isinstance(order, MixtureOrder):
            logger.info(
                "epoch %d of a mixture of %d sources: %d steps of %d examples; left over at its end, and in no lane in "
                "an epoch of the source's own: %s",
                epoch,
                len(self._tables),
                self.steps_per_epoch,
                self._feed.shape.global_batch,
                ", ".join(
                    f"{left} and {outside} of {table.dataset.url}"
                    for left, outside, table in zip(order.left_over(epoch), order.in_no_lane, self._tables, strict=True)
                ),
            )
            return
        logger.info(
            "epoch %d: %d steps of %d examples; %d of %d examples of %s are left over, others in every epoch",
            epoch,
            self.steps_per_epoch,
            self._feed.shape.global_batch,
            order.num_examples - used,
            order.num_examples,
            self._tables[0].split,
        )


def _check_whole(**values: object) -> None:
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise OrderError(f"{name} is {value!r}; give a whole number")


def _local_world_size(world_size: int) -> int:
    text = os.environ.get("LOCAL_WORLD_SIZE", str(world_size))
    if not text.isdecimal():
        raise OrderError(
            f"LOCAL_WORLD_SIZE is {text!r}; set it to the number of ranks on a node, or give ranks_per_node"
        )
    return int(text)


def _check_counts(
    *, rank: int, world_size: int, micro_batch: int | None, num_workers: int, num_ahead: int, ranks_per_node: int
) -> None:
    if world_size < 1 or not 0 <= rank < world_size:
        raise OrderError(f"rank is {rank} of world_size {world_size}; ranks are 0 .. world_size - 1")
    if micro_batch is not None and micro_batch < 1:
        raise OrderError(f"micro_batch is {micro_batch}; give 1 row or more")
    if ranks_per_node < 1:
        raise OrderError(f"ranks_per_node is {ranks_per_node}; give 1 or more")
    for name, value in (("num_workers", num_workers), ("num_ahead", num_ahead)):
        if value < 0:
            raise OrderError(f"{name} is {value}; give 0 or more")
