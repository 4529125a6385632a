"""The loader's order: which example stands where, as pure arithmetic.

    (shard example counts, RunShape, epoch)  ->  EpochOrder  ->  (shard, index) of any element of any lane

No rank, node or worker enters these definitions, and nothing here reads a file or keeps a state, so that every rank,
on any number of ranks, computes the same order, and resuming costs what starting costs.

1. The shards are permuted by a keyed permutation of ("shards", seed, epoch) and laid end to end: the line V of N
   examples.
2. Lane k of L is the stretch V[floor(k*N/L) : floor(k*N/L) + floor(N/L)].
3. Windows of W = max(1, K * ceil(N / number of shards)) elements of a lane are each permuted by a keyed permutation of
   ("window", seed, epoch, k, window number); the last window of a lane is shorter.
4. A global batch of B = q * L examples holds, for lane 0 .. L-1, the next q elements of the lane, lane by lane.

Worked example: shards of 4, 3 and 5 examples, L = 2, B = 4, K = 1. N = 12, so a lane has 6 elements and q = 2: an
epoch is 3 global batches. W = ceil(12 / 3) = 4: a lane's windows hold 4 and 2 elements. If the epoch's shard order is
2, 0, 1, lane 0 is shard 2 (5 examples) and the first example of shard 0, lane 1 the rest of shard 0 and shard 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from loader.permutation import permute
from manifests.canonical import derived_seed
from manifests.errors import UserError


class OrderError(UserError):
    """The numbers asked for make no order; the message says which, with both values and the remedy."""


@dataclass(frozen=True, kw_only=True)
class RunShape:
    """The numbers, beside the data, that fix a run's order. All counts are in examples.

    global_batch: B, a multiple of num_lanes. num_lanes: L. window_shards: K, at least 1. seed: at least 0.
    """

    global_batch: int
    num_lanes: int
    window_shards: int
    seed: int

    def __post_init__(self) -> None:
        for name, smallest in (("global_batch", 1), ("num_lanes", 1), ("window_shards", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < smallest:
                raise OrderError(f"{name} is {value!r}; give a whole number of at least {smallest}")
        if self.global_batch % self.num_lanes:
            raise OrderError(
                f"the global batch of {self.global_batch} examples is not a multiple of the {self.num_lanes} lanes; "
                f"give a multiple of {self.num_lanes}, or another number of lanes at the start of a run"
            )

    @property
    def lane_batch(self) -> int:
        """q: elements a lane gives to one global batch."""
        return self.global_batch // self.num_lanes


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitOrder:
    """The part of the order that is the same in every epoch.

    shard_num_examples: int64 array, the examples of each shard, in the manifest's order.
    Raises OrderError where the split holds fewer examples than one global batch.
    """

    shard_num_examples: np.ndarray
    shape: RunShape

    def __post_init__(self) -> None:
        if self.steps_per_epoch < 1:
            raise OrderError(
                f"the split holds {self.num_examples} examples in {len(self.shard_num_examples)} shards, fewer than "
                f"one global batch of {self.shape.global_batch}; give a smaller global batch"
            )

    @cached_property
    def num_examples(self) -> int:
        """N."""
        return int(self.shard_num_examples.sum())

    @property
    def lane_length(self) -> int:
        """Elements of every lane: floor(N / L)."""
        return self.num_examples // self.shape.num_lanes

    @property
    def window_length(self) -> int:
        """Elements of a lane's window, its last one excepted: K * ceil(N / number of shards)."""
        num_shards = max(1, len(self.shard_num_examples))
        return max(1, self.shape.window_shards * -(-self.num_examples // num_shards))

    @property
    def windows_per_lane(self) -> int:
        return -(-self.lane_length // self.window_length)

    @property
    def steps_per_epoch(self) -> int:
        """Global batches of a whole epoch: floor(floor(N / L) / q)."""
        return self.lane_length // self.shape.lane_batch

    @property
    def epoch_length(self) -> int:
        """Examples in the lanes of an epoch: L * floor(N / L)."""
        return self.lane_length * self.shape.num_lanes

    def steps_left(self, examples_consumed: int) -> int:
        """Global batches from a position inside an epoch to the epoch's end."""
        return max(0, self.lane_length - examples_consumed // self.shape.num_lanes) // self.shape.lane_batch

    def at_step(self, step: int) -> tuple[int, int]:
        """(epoch, examples consumed in it) of a run's step number, counted through epochs from 0."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        return epoch, step_in_epoch * self.shape.global_batch

    def epoch(self, epoch: int) -> EpochOrder:
        """The order of one epoch; costs a sort-free pass over the shards (1 ms for 40,000)."""
        num_shards = len(self.shard_num_examples)
        places = np.arange(num_shards, dtype=np.int64)
        shard_order = permute(places, num_shards, derived_seed("shards", self.shape.seed, epoch))
        ends = np.cumsum(self.shard_num_examples[shard_order], dtype=np.int64)
        return EpochOrder(split=self, epoch=epoch, shard_order=shard_order, ends=ends)


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochOrder:
    """One epoch's line V. shard_order[p] is the shard at place p, ends[p] the place in V one past its last example."""

    split: SplitOrder
    epoch: int
    shard_order: np.ndarray
    ends: np.ndarray

    def elements(self, lanes: range, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Elements first .. first + count - 1 of each of the lanes.

        Returns (shards, indices), two int64 arrays of shape (len(lanes), count): the shard's number in the manifest
        and the example's number in the shard. Raises OrderError past the end of the lanes.
        """
        split = self.split
        if first < 0 or count < 0 or first + count > split.lane_length:
            raise OrderError(
                f"elements {first} .. {first + count - 1} were asked of lanes of {split.lane_length} elements"
            )
        if not len(lanes) or not count:
            empty = np.zeros((len(lanes), count), dtype=np.int64)
            return empty, empty
        element = np.arange(first, first + count, dtype=np.int64)
        window, inside = np.divmod(element, split.window_length)
        window_start = window * split.window_length
        length = np.minimum(split.window_length, split.lane_length - window_start)
        first_window, last_window = int(window[0]), int(window[-1])
        keys = np.stack(
            [
                _window_keys(split.shape.seed, self.epoch, lanes, number)
                for number in range(first_window, last_window + 1)
            ]
        )
        permuted = permute(inside, length, keys[window - first_window].T)
        places = self.lane_starts(lanes)[:, None] + window_start + permuted
        at = np.searchsorted(self.ends, places, side="right")
        shards = self.shard_order[at]
        return shards, places - (self.ends[at] - split.shard_num_examples[shards])

    def steps(self, lanes: range, first: int, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The lanes' rows of `num_steps` global batches, the first one starting at lane element `first`.

        Returns (shards, indices), int64 arrays of shape (num_steps, len(lanes) * q), rows in the batch's order.
        """
        lane_batch = self.split.shape.lane_batch
        by_lane = self.elements(lanes, first, num_steps * lane_batch)
        rows = len(lanes) * lane_batch
        shards, indices = (
            array.reshape(len(lanes), num_steps, lane_batch).swapaxes(0, 1).reshape(num_steps, rows)
            for array in by_lane
        )
        return shards, indices

    def lane_starts(self, lanes: range) -> np.ndarray:
        """floor(k * N / L) of each lane k, int64.

        With N = a * L + b this is k * a + floor(k * b / L), which stays far below 2**63 where k * N may not.
        """
        whole, rest = divmod(self.split.num_examples, self.split.shape.num_lanes)
        lane = np.asarray(lanes, dtype=np.int64)
        return lane * whole + lane * rest // self.split.shape.num_lanes


@lru_cache(maxsize=8)
def _window_keys(seed: int, epoch: int, lanes: range, window: int) -> np.ndarray:
    """The lanes' permutation keys in one window, uint64. Kept for the windows now open: a key costs 5 microseconds."""
    keys = [derived_seed("window", seed, epoch, lane, window) for lane in lanes]
    return np.array(keys, dtype=np.uint64)


def owned_lanes(rank: int, world_size: int, num_lanes: int) -> range:
    """The lanes of a rank: floor(r*L/W) .. floor((r+1)*L/W) - 1. Empty for some ranks where W > L."""
    return range(rank * num_lanes // world_size, (rank + 1) * num_lanes // world_size)


def rows_per_rank(world_size: int, shape: RunShape) -> int:
    """Rows of the rank that owns the most lanes, in one step: ceil(L / W) * q. Ranks that own fewer lanes fill up."""
    return -(-shape.num_lanes // world_size) * shape.lane_batch
