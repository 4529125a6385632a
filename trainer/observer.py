"""Everything that watches a run, behind one object: metrics.jsonl, timeline.jsonl, Prometheus, the terminal."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manifests import storage
from trainer.config import TrainConfig
from trainer.exporter import Publisher, make_publisher
from trainer.facts import StepFacts
from trainer.goodput import ledger
from trainer.journal import Journal, step_line
from trainer.parallel import Ranks
from trainer.progress import Progress
from trainer.timeline import Timeline, process_age_s, read_events

# The newest steps only: a run that became slow an hour ago should show it, not its average over days.
_RECENT_STEPS = 200


class History:
    """timeline.jsonl of a run, and the goodput it amounts to so far. Rank 0's."""

    def __init__(self, path: Path, say: Callable[[str], None], *, step: int, world_size: int) -> None:
        """Notes the start of an attempt that goes on after `step`."""
        self._timeline = Timeline(path, say)
        self._timeline.note("start", seconds=process_age_s(), step=step, world_size=world_size)
        earlier = ledger(read_events(path))
        # None: a full disk took not even the start's line.
        self._born_at = earlier.attempts[0].born_at if earlier.attempts else time.time() - process_age_s()
        self._productive_s = earlier.seconds.productive

    def step(self, facts: StepFacts) -> None:
        self._timeline.note("step", seconds=facts.seconds, data_wait_s=facts.data_wait_s, step=facts.step)
        self._productive_s += facts.seconds - facts.data_wait_s

    def spent(self, kind: str, seconds: float) -> None:
        self._timeline.note(kind, seconds=seconds)

    def end(self, reason: str) -> None:
        self._timeline.note("end", seconds=0.0, reason=reason)
        self._timeline.close()

    @property
    def goodput(self) -> float:
        """Seconds of steps made once, of all seconds since the run was born."""
        return self._productive_s / max(1e-9, time.time() - self._born_at)


class Observer:
    """journal and history: rank 0's, None elsewhere. publisher: of each node's first rank, where one is asked for."""

    def __init__(
        self,
        *,
        journal: Journal | None,
        history: History | None,
        publisher: Publisher | None,
        say: Callable[[str], None],
        first_step: int,
        num_steps: int,
    ) -> None:
        self._journal, self._history, self._publisher, self._say = journal, history, publisher, say
        self._first_step, self._num_steps = first_step, num_steps
        self._began = time.perf_counter()
        self._recent: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._reason = "failed"

    def step(self, facts: StepFacts) -> None:
        """An optimizer step was made. Its row is still owed: a validation may follow."""
        self._recent.append(facts.seconds)
        if self._history is not None:
            self._history.step(facts)
        if self._publisher is not None:
            self._publisher.exporter.step(facts, num_steps=self._num_steps)
            if self._history is not None:
                self._publisher.exporter.goodput(self._history.goodput)
            self._publisher.publish()

    def concluded(self, facts: StepFacts) -> None:
        """The step and its validation, if it had one, are over: its row and its line."""
        if self._journal is not None:
            self._journal.write(facts)
        if self._publisher is not None and facts.validation is not None:
            self._publisher.exporter.validation(facts)
        steps_done = max(1, facts.step - self._first_step)
        seconds_left = (self._num_steps - facts.step) * (time.perf_counter() - self._began) / steps_done
        self._say(step_line(facts, num_steps=self._num_steps, seconds_left=seconds_left))

    @contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        """The time of the block is booked under `kind`: "save", "evaluation"."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            if self._history is not None:
                self._history.spent(kind, seconds)
            if self._publisher is not None:
                self._publisher.exporter.spent(kind, seconds)

    def sync(self) -> None:
        """Make the rows as durable as the checkpoint that is about to be written."""
        if self._journal is not None:
            self._journal.sync()

    def ended(self, reason: str) -> None:
        """Why the attempt is over; without this call it `failed`."""
        self._reason = reason

    def summary(self) -> str:
        """`step time p50 0.31 s, p95 0.33 s; goodput 94.1 %`; empty before the first step. Rank 0's."""
        if not self._recent or self._history is None:
            return ""
        middle, late = quantile(self._recent, 0.50), quantile(self._recent, 0.95)
        return f"step time p50 {middle:.3g} s, p95 {late:.3g} s; goodput {100 * self._history.goodput:.1f} %"

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
        if self._history is not None:
            self._history.end(self._reason)
        if self._publisher is not None:
            self._publisher.publish()
            self._publisher.close()


def open_observer(
    config: TrainConfig,
    output: Path,
    facts: dict[str, Any],
    progress: Progress,
    ranks: Ranks,
    num_steps: int,
    say: Callable[[str], None],
) -> Observer:
    """Collective. Whoever watches this run, and run.json. Raises UserError where figures cannot be served as asked."""
    journal = history = None
    if ranks.is_first:
        _write_facts(output / "run.json", facts, say)
        journal = Journal(output / "metrics.jsonl", say, resumed_step=progress.step)
        history = History(output / "timeline.jsonl", say, step=progress.step, world_size=ranks.world_size)
    return Observer(
        journal=journal,
        history=history,
        publisher=ranks.all_or_none(
            lambda: make_publisher(config.prometheus, rank=ranks.rank, local_rank=ranks.local_rank)
        ),
        say=say,
        first_step=progress.step,
        num_steps=num_steps,
    )


def _write_facts(path: Path, facts: dict[str, Any], say: Callable[[str], None]) -> None:
    """Whole or not at all: on a full disk the file of the attempt before stays, and the run goes on."""
    try:
        storage.write_bytes(str(path), (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        say(f"warning: {path} cannot be written: {error}")


def quantile(values: Iterable[float], q: float) -> float:
    """The smallest of `values` that at least the share q of them does not exceed: a value that occurred."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]
