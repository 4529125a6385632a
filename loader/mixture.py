"""Sources mixed by weight at load time, as pure arithmetic: which examples of which source make a global batch.

    examples consumed in the run, D  ->  how many of them each source gave, C_i(D)  ->  its next elements  ->  rows

1. The sources stand in a row, source i with the share p_i = w_i / (w_i + w_{i+1} + ...) of what is left for it. Of the
   first D examples of the run, D_1 = D, source i gives C_i = floor(p_i * D_i) and leaves D_{i+1} = D_i - C_i to the
   next; the last one gives all that is left. So the counts always add up to D, never go back, and source i is never
   further from its weight than i examples.
2. A batch of B examples from D on holds C_i(D + B) - C_i(D) of source i. L lanes being asked for, source i gets as many
   as keep it to at most q = B / L rows a lane: m_1 = L, lanes_i = ceil(p_i * m_i), m_{i+1} = ceil((1 - p_i) * m_i).
3. Element c of source i is element floor(c / lanes_i) of its lane c mod lanes_i, by order.py, under a seed of its own,
   counted through the source's own epochs: a source that is used up begins again, in another order.
4. A batch's rows stand by source, lane and element. The lanes of all sources stand in one line, which the ranks divide
   as in order.py, rule 5.
5. An epoch of the mixture is as many examples as all sources hold together, rounded down to a multiple of L. Where
   L < B, fewer than B are left over at its end: each source passes over its part of them.

Worked example: weights 3 and 1, B = L = 2: p_1 = 3/4, so C_1 = 0, 1, 3, 4, 6 and C_2 = 0, 1, 1, 2, 2 after 0 .. 4
batches; source 0 has ceil(1.5) = 2 lanes, source 1 ceil(0.5) = 1. Three lanes where two were asked for: of three ranks,
each has one row a batch, and some of these rows are filler. Weights that are multiples of 1 / L need no filler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from loader.order import OrderError, RunShape, SplitOrder, owned_lanes
from loader.plans import StepBlock, blocks_of_rank
from manifests import Dataset, UserError
from manifests.canonical import derived_seed

# The rows of this many examples of the run are worked out at a time.
_EXAMPLES_AT_ONCE = 8192


class MixtureError(UserError):
    """Manifests that cannot be mixed."""


def check_alike(datasets: Sequence[Dataset]) -> None:
    """Raises MixtureError unless all have examples of one shape, made by one tokenizer."""
    first = datasets[0]
    for other in datasets[1:]:
        for name, one, two in (
            ("seq_len", first.manifest.example.seq_len, other.manifest.example.seq_len),
            ("dtype", first.manifest.example.dtype, other.manifest.example.dtype),
            ("tokenizer", first.manifest.tokenizer.sha256, other.manifest.tokenizer.sha256),
        ):
            if one != two:
                raise MixtureError(
                    f"{name} is {one} in {first.url} and {two} in {other.url}; build the sources of a mixture alike"
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureOrder:
    """The order of a mixture. Its interface is SplitOrder's, as far as the loader needs one.

    shard_num_examples: of each source. weights: of each source, above 0, in any unit.
    """

    shard_num_examples: tuple[np.ndarray, ...]
    weights: tuple[float, ...]
    shape: RunShape

    def __post_init__(self) -> None:
        for weight in self.weights:
            if not 0 < weight < float("inf"):
                raise OrderError(f"a source's weight is {weight}; give a number above 0, or leave the source out")
        if self.steps_per_epoch < 1:
            raise OrderError(
                f"the sources hold {self.num_examples} examples, fewer than one global batch of "
                f"{self.shape.global_batch}; give a smaller global batch"
            )

    @cached_property
    def num_examples(self) -> int:
        return sum(int(counts.sum()) for counts in self.shard_num_examples)

    @cached_property
    def shares(self) -> tuple[Fraction, ...]:
        """p_i, exact, so that no rounding of a float can make two machines differ. The last one is 1."""
        exact = [Fraction(weight) for weight in self.weights]
        return tuple(weight / sum(exact[number:]) for number, weight in enumerate(exact))

    @cached_property
    def source_lanes(self) -> tuple[int, ...]:
        left, lanes = self.shape.num_lanes, []
        for share in self.shares:
            lanes.append(max(1, -(-share.numerator * left // share.denominator)))
            left = max(1, -(-(share.denominator - share.numerator) * left // share.denominator))
        return tuple(lanes)

    @cached_property
    def num_lanes(self) -> int:
        """Lanes of all sources together; at least the ones asked for."""
        return sum(self.source_lanes)

    @cached_property
    def sources(self) -> tuple[SplitOrder, ...]:
        """Each source's order by itself, of one element a lane and step, under its own seed."""
        return tuple(
            SplitOrder(
                shard_num_examples=counts,
                shape=RunShape(
                    global_batch=lanes,
                    num_lanes=lanes,
                    window_shards=self.shape.window_shards,
                    seed=derived_seed("source", self.shape.seed, number),
                ),
            )
            for number, (counts, lanes) in enumerate(zip(self.shard_num_examples, self.source_lanes, strict=True))
        )

    @cached_property
    def first_shards(self) -> tuple[int, ...]:
        """The number of each source's first shard, shards being numbered through the sources."""
        counts = [len(counts) for counts in self.shard_num_examples]
        return tuple(np.cumsum([0, *counts[:-1]]).tolist())

    @property
    def epoch_length(self) -> int:
        """Examples of an epoch, the last batch's rest included."""
        return self.num_examples - self.num_examples % self.shape.num_lanes

    @property
    def steps_per_epoch(self) -> int:
        return self.epoch_length // self.shape.global_batch

    @property
    def in_no_lane(self) -> tuple[int, ...]:
        """Of each source, how many examples an epoch of its own leaves out: fewer than it has lanes."""
        return tuple(source.num_examples - source.epoch_length for source in self.sources)

    def left_over(self, epoch: int) -> list[int]:
        """Of each source, how many elements lie behind the last whole batch of an epoch: none where B is L.

        Fewer than B together. The next epoch begins behind them.
        """
        begin = epoch * self.epoch_length
        used = self.counts(begin + self.steps_per_epoch * self.shape.global_batch)
        passed = self.counts(begin + self.epoch_length)
        return [end - last for end, last in zip(passed, used, strict=True)]

    def steps_left(self, examples_consumed: int) -> int:
        return max(0, self.epoch_length - examples_consumed) // self.shape.global_batch

    def at_step(self, step: int) -> tuple[int, int]:
        """(epoch, examples consumed in it) of a run's step number, counted through epochs from 0."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        return epoch, step_in_epoch * self.shape.global_batch

    def counts(self, num_examples: int) -> list[int]:
        """C_i: how many of the run's first `num_examples` each source gives."""
        left, counts = num_examples, []
        for share in self.shares:
            counts.append(left * share.numerator // share.denominator)
            left -= counts[-1]
        return counts

    def owned(self, lanes: range) -> list[range]:
        """Of a stretch of the line of all lanes, each source's own lanes."""
        first, owned = 0, []
        for count in self.source_lanes:
            owned.append(range(min(max(lanes.start - first, 0), count), min(max(lanes.stop - first, 0), count)))
            first += count
        return owned

    def blocks(self, lanes: range, epoch: int, examples_consumed: int, num_steps: int) -> Iterator[StepBlock]:
        """The rows of a stretch of the line of all lanes, in `num_steps` steps from a position on."""
        batch = self.shape.global_batch
        at_once = max(1, _EXAMPLES_AT_ONCE // batch)
        begin = epoch * self.epoch_length + examples_consumed
        owned = self.owned(lanes)
        for done in range(0, num_steps, at_once):
            ends = [begin + (done + step) * batch for step in range(min(at_once, num_steps - done) + 1)]
            counts = np.array([self.counts(end) for end in ends], dtype=np.int64)
            rows = [self._source_rows(number, owned[number], counts[:, number]) for number in range(len(owned))]
            step, shards, examples = (np.concatenate(arrays) for arrays in zip(*rows, strict=True))
            # Stable: inside a step the sources stay in their order, and their rows in theirs.
            in_order = np.argsort(step, kind="stable")
            shards, examples = shards[in_order], examples[in_order]
            cuts = np.searchsorted(step[in_order], np.arange(len(ends))).tolist()
            windows = [
                tuple(self._window(number, int(count) // self.source_lanes[number]) for number, count in enumerate(row))
                for row in counts[:-1]
            ]
            first = 0
            for stop in range(1, len(windows) + 1):
                if stop == len(windows) or windows[stop] != windows[first]:
                    at, end = cuts[first], cuts[stop]
                    yield StepBlock(
                        shards=shards[at:end],
                        examples=examples[at:end],
                        cuts=[cut - at for cut in cuts[first : stop + 1]],
                        windows=windows[first],
                    )
                    first = stop

    def _window(self, number: int, element: int) -> int:
        """The window of an element of a source's lanes, counted through the source's epochs."""
        source = self.sources[number]
        epoch, inside = divmod(element, source.lane_length)
        return epoch * source.windows_per_lane + inside // source.window_length

    def _source_rows(self, number: int, lanes: range, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The (step, shard, example) of a source's elements between its counts that lie in `lanes`, in order."""
        num_lanes = self.source_lanes[number]
        every = np.arange(counts[0], counts[-1], dtype=np.int64)
        step = np.repeat(np.arange(len(counts) - 1), np.diff(counts))
        lane, element = every % num_lanes, every // num_lanes
        mine = (lane >= lanes.start) & (lane < lanes.stop)
        step, lane, element = step[mine], lane[mine], element[mine]
        if not len(step):
            return step, step, step
        in_order = np.lexsort((element, lane, step))
        step, lane, element = step[in_order], lane[in_order], element[in_order]
        first, last = int(element.min()), int(element.max())
        shards, examples = self._elements(number, lanes, first, last + 1)
        at = lane - lanes.start, element - first
        return step, shards[at] + self.first_shards[number], examples[at]

    def _elements(self, number: int, lanes: range, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Elements first .. stop - 1 of a source's lanes, through its epochs."""
        source = self.sources[number]
        parts = []
        while first < stop:
            epoch, inside = divmod(first, source.lane_length)
            count = min(stop - first, source.lane_length - inside)
            parts.append(source.epoch(epoch).elements(lanes, inside, count))
            first += count
        return (
            np.concatenate([shards for shards, _ in parts], axis=1),
            np.concatenate([examples for _, examples in parts], axis=1),
        )


def order_of(
    shard_num_examples: Sequence[np.ndarray], weights: Sequence[float], shape: RunShape
) -> SplitOrder | MixtureOrder:
    """The order of one source, or of a mixture where there are weights. shard_num_examples: int64, of each source."""
    if weights:
        return MixtureOrder(shard_num_examples=tuple(shard_num_examples), weights=tuple(weights), shape=shape)
    return SplitOrder(shard_num_examples=shard_num_examples[0], shape=shape)


def sources_of(order: SplitOrder | MixtureOrder) -> tuple[SplitOrder, ...]:
    """The order of each source; the order itself where it is of one."""
    return order.sources if isinstance(order, MixtureOrder) else (order,)


def lanes_of_rank(order: SplitOrder | MixtureOrder, rank: int, world_size: int) -> range:
    """The lanes a rank owns, of a mixture in the line of all sources' lanes."""
    num_lanes = order.num_lanes if isinstance(order, MixtureOrder) else order.shape.num_lanes
    return owned_lanes(rank, world_size, num_lanes)


def blocks_of(
    order: SplitOrder | MixtureOrder, lanes: range, epoch: int, examples_consumed: int, num_steps: int
) -> Iterator[StepBlock]:
    """The rows of these lanes in `num_steps` steps from a position of an epoch on."""
    if isinstance(order, MixtureOrder):
        return order.blocks(lanes, epoch, examples_consumed, num_steps)
    return blocks_of_rank(order.epoch(epoch), lanes, examples_consumed // order.shape.num_lanes, num_steps)
