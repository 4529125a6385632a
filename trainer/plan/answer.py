"""The whole answer, put together from the parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from manifests.errors import UserError
from trainer.plan.cluster import Cluster, Cut
from trainer.plan.epoch import Bill, Epoch, Prices, bill, plan_epoch
from trainer.plan.memory import OFFERED, SCHEMES, Memory, fits, memory_of
from trainer.plan.saving import Saving, checkpoint_bytes, plan_saving
from trainer.plan.shape import Shape
from trainer.plan.speed import StepTime, step_time


@dataclass(frozen=True, kw_only=True)
class Question:
    """tokens: of the train split; token_bytes: of one in a shard. Times in seconds, bandwidth in bytes a second.

    stall: a save holds the steps; None: the copy to host memory at the cluster's host_link. lost with each failure:
    restart. interval: between checkpoints, None: the best one. kept: checkpoints stored.
    """

    shape: Shape
    cluster: Cluster
    cut: Cut
    tokens: float
    token_bytes: int
    tokens_per_gpu_s: float
    deadline: float
    failures_per_day: float
    write_bytes_per_s: float
    restart: float
    stall: float | None
    interval: float | None
    kept: int
    prices: Prices


@dataclass(frozen=True, kw_only=True)
class SchemeAnswer:
    """One way to spread the state: what it holds, whether that fits, and its step."""

    name: str
    offered: bool
    memory: Memory
    fits: bool
    step: StepTime


@dataclass(frozen=True, kw_only=True)
class Answer:
    """chosen: the fastest offered scheme that fits; None where none does: epoch and bill are then the fastest one's."""

    question: Question
    schemes: tuple[SchemeAnswer, ...]
    chosen: SchemeAnswer | None
    saving: Saving
    interval: float
    epoch: Epoch
    bill: Bill
    bill_by_deadline: Bill

    def to_json(self) -> dict[str, Any]:
        """Plain values; units as in the classes: bytes, seconds, tokens."""
        values = asdict(self)
        values["chosen"] = None if self.chosen is None else self.chosen.name
        for scheme, plain in zip(self.schemes, values["schemes"], strict=True):
            plain["memory"]["total"] = scheme.memory.total
            plain["step"]["total"] = scheme.step.total
        values["saving"]["lost_fraction"] = self.saving.lost_fraction(self.interval)
        values["epoch"]["fits"] = self.epoch.fits
        return values


def answer(question: Question) -> Answer:
    """Raises UserError where failures and saves leave no time for steps."""
    cluster, cut, shape = question.cluster, question.cut, question.shape
    schemes = []
    for name in SCHEMES:
        memory = memory_of(name, shape, cluster, cut)
        step = step_time(name, shape, cluster, cut, tokens_per_gpu_s=question.tokens_per_gpu_s)
        schemes.append(
            SchemeAnswer(name=name, offered=name in OFFERED, memory=memory, fits=fits(memory, cluster), step=step)
        )
    fitting = [scheme for scheme in schemes if scheme.fits and scheme.offered]
    chosen = min(fitting, key=lambda scheme: scheme.step.total, default=None)
    fastest = chosen if chosen is not None else min(schemes, key=lambda scheme: scheme.step.total)

    stall = question.stall
    if stall is None:
        # Every GPU copies its own shard; copies of a shard are written once, by the first replica.
        inside = cluster.gpus_per_node
        stall = (4 * shape.num_parameters / inside + shape.state[cut.optimizer].on_one_of(inside)) / cluster.host_link
    saving = plan_saving(
        checkpoint_bytes(shape, cut.optimizer),
        stall=stall,
        write_bytes_per_s=question.write_bytes_per_s,
        restart=question.restart,
        failures_per_day=question.failures_per_day,
    )
    interval = saving.best_interval if question.interval is None else question.interval
    lost = saving.lost_fraction(interval)
    if lost >= 1:
        raise UserError(
            f"with a failure each {saving.mean_time_between_failures:.3g} s and a checkpoint every {interval:.3g} s,"
            f" {lost:.0%} of the time is lost: no step is ever kept; lower --failures-per-day or --restart-s, or change"
            " --interval-minutes"
        )
    epoch = plan_epoch(
        tokens=question.tokens,
        tokens_per_step=cut.tokens_per_step,
        step_seconds=fastest.step.total,
        lost_fraction=lost,
        deadline=question.deadline,
        num_gpus=cluster.num_gpus,
        num_nodes=cluster.num_nodes,
        token_bytes=question.token_bytes,
    )
    stored = question.tokens * question.token_bytes + question.kept * saving.checkpoint_bytes

    def bill_for(seconds: float) -> Bill:
        read = min(question.tokens, epoch.tokens_per_s * seconds) * question.token_bytes
        return bill(
            num_gpus=cluster.num_gpus, seconds=seconds, stored_bytes=stored, read_bytes=read, prices=question.prices
        )

    return Answer(
        question=question,
        schemes=tuple(schemes),
        chosen=chosen,
        saving=saving,
        interval=interval,
        epoch=epoch,
        bill=bill_for(epoch.seconds),
        bill_by_deadline=bill_for(min(epoch.seconds, question.deadline)),
    )
