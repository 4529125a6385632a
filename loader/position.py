"""The position: one small JSON object that says where a run stands in its order, and what to say when it does not fit.

It counts examples, so it is the same on every rank and on any number of ranks, and a division finds the lane element to
go on from. A position at the end of an epoch is the head of the next one: (epoch + 1, 0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from manifests.errors import UserError
from manifests.strict_json import decode_fields

FORMAT = "shardmill-position/1"


class PositionError(UserError):
    """A saved position that does not fit here; the message names the field, both values and the remedy."""


class StepsLeft(Protocol):
    """What a position asks of an order."""

    @property
    def epoch_length(self) -> int:
        """Examples in the lanes of an epoch."""

    def steps_left(self, examples_consumed: int) -> int:
        """Global batches from a position inside an epoch to the epoch's end."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run stands, and the numbers that fix its order.

    manifest: the manifest's digest. shards: the fingerprint of the split's (sha256, examples) in order; two manifests
    with equal shards hold the same examples, wherever they lie and whatever they are called. examples_consumed: in this
    epoch, by all ranks together. lanes, window_shards, global_batch: L, K and B of the order.
    """

    manifest: str
    shards: str
    split: str
    seed: int
    epoch: int
    examples_consumed: int
    lanes: int
    window_shards: int
    global_batch: int

    def __post_init__(self) -> None:
        for name, smallest in (
            ("seed", 0),
            ("epoch", 0),
            ("examples_consumed", 0),
            ("lanes", 1),
            ("window_shards", 1),
            ("global_batch", 1),
        ):
            if getattr(self, name) < smallest:
                raise PositionError(f"{name} is {getattr(self, name)}, below {smallest}; take another saved state")
        if self.examples_consumed % self.lanes:
            raise PositionError(
                f"examples_consumed is {self.examples_consumed}, not a multiple of the {self.lanes} lanes, so no step "
                "ended there; take another saved state"
            )

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Any) -> Position:
        """The position that `to_json` wrote. Raises PositionError for another format, StrictError for other fields."""
        found = value.get("format") if isinstance(value, dict) else type(value).__name__
        if found != FORMAT:
            raise PositionError(
                f"the loader's state has the format {found!r}, this program reads {FORMAT!r}; "
                "use the version that wrote it"
            )
        fields = {key: item for key, item in value.items() if key != "format"}
        return decode_fields(cls, fields, "the loader's state")

    def at_next_batch(self, order: StepsLeft) -> Position:
        """This position, or the head of the next epoch where not one whole global batch is left in this one."""
        if order.steps_left(self.examples_consumed):
            return self
        return replace(self, epoch=self.epoch + 1, examples_consumed=0)


class Walk:
    """A position that a training loop moves: a step is an addition, the Position is made when somebody asks for it.

    Raises PositionError for a start beyond the end of an epoch.
    """

    def __init__(self, start: Position, order: StepsLeft) -> None:
        if start.examples_consumed > order.epoch_length:
            raise PositionError(
                f"examples_consumed is {start.examples_consumed} in the saved state, but {start.lanes} lanes of this "
                f"split hold {order.epoch_length} examples an epoch; take another saved state"
            )
        self._order = order
        self._begin(start)

    def _begin(self, start: Position) -> None:
        self._start = start.at_next_batch(self._order)
        self._num_steps = 0
        self._steps_left = self._order.steps_left(self._start.examples_consumed)

    def advance(self) -> None:
        """One global batch on; from the last one of an epoch to the head of the next."""
        self._num_steps += 1
        if self._num_steps >= self._steps_left:
            self._begin(self.position)

    @property
    def position(self) -> Position:
        consumed = self._start.examples_consumed + self._num_steps * self._start.global_batch
        return replace(self._start, examples_consumed=consumed)


def resumed(
    saved: Position, here: Position, *, lanes_are_free: bool, what_changed: Callable[[], str | None]
) -> Position:
    """The position to go on from: `saved`'s place under this loader's manifest and global batch.

    saved: the state to load. here: where this loader stands. lanes_are_free: nobody named a number of lanes, so the
    saved one is taken. what_changed: asked, only when the shards differ, for words that name the first different shard.
    Only the global batch may differ, and only to a multiple of the lanes. Raises PositionError for anything else.
    """
    if saved.shards != here.shards:
        raise PositionError(_other_data(saved, here, what_changed()))
    for name, remedy in (
        ("split", "load it into a loader of that split"),
        ("seed", "start this run with the saved seed"),
        ("window_shards", "start this run with the saved window_shards"),
    ):
        old, new = getattr(saved, name), getattr(here, name)
        if old != new:
            raise PositionError(f"{name} is {old!r} in the saved state and {new!r} here; {remedy}")
    if saved.lanes != here.lanes and not lanes_are_free:
        raise PositionError(
            f"lanes is {saved.lanes} in the saved state and {here.lanes} here; the lanes are fixed for a run, "
            f"so give lanes={saved.lanes}"
        )
    if here.global_batch % saved.lanes:
        raise PositionError(
            f"global_batch is {here.global_batch} here, not a multiple of the {saved.lanes} lanes this run was started "
            f"with (its global batch was {saved.global_batch}); give a multiple of {saved.lanes}"
        )
    return replace(saved, manifest=here.manifest, global_batch=here.global_batch)


def _other_data(saved: Position, here: Position, changed: str | None) -> str:
    detail = f" ({changed})" if changed else ""
    return (
        f"the saved state is of manifest {saved.manifest} with shards {saved.shards}, this loader's is {here.manifest} "
        f"with shards {here.shards}: the data differ{detail}; train on with the saved manifest, or start a new run"
    )
