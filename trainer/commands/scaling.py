"""`python -m trainer scaling RUN`: the same step on 1, 2, 4 ... ranks; what they bring, and what the loss is made of.

    E = T1 / (N x TN): the global batch is the same for all, so N ranks at best take an N-th of the time

RUN is read for its configuration. Runs of a few steps go to RUN/scaling and are removed, figures to RUN/scaling.json.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manifests.errors import UserError
from trainer.commands.trial import Trial, run_to_end
from trainer.journal import read_rows
from trainer.observer import quantile

# The first steps compile, fill caches and open shards.
_WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One number of ranks; seconds a step, medians. exchange_s: of forward and backward what is not arithmetic.

    Arithmetic is what the fewest ranks took for it, divided among more: exchanges, and waiting for slower ranks.
    """

    num_ranks: int
    step_s: float
    data_wait_s: float
    forward_backward_s: float
    update_s: float
    exchange_s: float
    efficiency: float


def scaling(run: Path, *, ranks: Sequence[int], num_steps: int, baseline: Path | None = None) -> list[Measured]:
    """baseline: an earlier scaling.json, whose fewest ranks stand for T1; None: the fewest measured now.

    Raises UserError where RUN is no run, the baseline none, or one of the trials fails.
    """
    against = None if baseline is None else read_baseline(baseline)
    trial = Trial.of(run, "scaling", lambda config: _config(config, num_steps))
    # torchrun gives each of several ranks one thread; a rank alone would take all cores, and no comparison be left.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    rows = {}
    for number in sorted(set(ranks)):
        output = trial.folder / str(number)
        run_to_end(trial.command(num_ranks=number), output, environment)
        rows[number] = [row for row in read_rows(output / "metrics.jsonl") if row["step"] > _WARM_UP]
    measured = compare(rows, against)
    (run / "scaling.json").write_text(json.dumps([asdict(one) for one in measured], indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(trial.folder)
    return measured


def read_baseline(path: Path) -> Measured:
    """The fewest ranks of a scaling.json. Raises UserError where it is none."""
    try:
        return min((Measured(**one) for one in json.loads(path.read_bytes())), key=lambda one: one.num_ranks)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"--baseline: {path} is no scaling.json of an earlier run ({error}); give RUN/scaling.json"
        ) from error


def compare(rows: dict[int, list[dict[str, Any]]], baseline: Measured | None = None) -> list[Measured]:
    """Rows of the steps by number of ranks, the fewest first; efficiency is against those, or against `baseline`."""

    def median(number: int, *keys: str) -> float:
        return quantile([sum(row[key] for key in keys) for row in rows[number]], 0.5)

    fewest = min(rows) if baseline is None else baseline.num_ranks
    step_s = median(fewest, "seconds") if baseline is None else baseline.step_s
    arithmetic = fewest * (
        median(fewest, "forward_s", "backward_s") if baseline is None else baseline.forward_backward_s
    )
    return [
        Measured(
            num_ranks=number,
            step_s=median(number, "seconds"),
            data_wait_s=median(number, "slowest_data_wait_s"),
            forward_backward_s=median(number, "forward_s", "backward_s"),
            update_s=median(number, "update_s"),
            exchange_s=max(0.0, median(number, "forward_s", "backward_s") - arithmetic / number),
            efficiency=fewest * step_s / (number * median(number, "seconds")),
        )
        for number in sorted(rows)
    ]


def _config(config: dict[str, Any], num_steps: int) -> dict[str, Any]:
    """RUN's, but for what writes: no checkpoints before the last, no validation; the mesh follows the ranks."""
    return {
        **config,
        "steps": _WARM_UP + num_steps,
        "mesh": {**config["mesh"], "replicate": None, "shard": None},
        "checkpoint": {**config["checkpoint"], "minutes": None, "steps": None, "remote": None},
        "validation": {"every_steps": None},
    }


def lines(measured: Sequence[Measured]) -> Iterator[str]:
    """For a person."""
    yield "ranks   step (s)   data wait   forward+backward   of it exchange   update   efficiency"
    for one in measured:
        yield (
            f"{one.num_ranks:5}{one.step_s:11.4f}{one.data_wait_s:12.4f}{one.forward_backward_s:19.4f}"
            f"{one.exchange_s:17.4f}{one.update_s:9.4f}{one.efficiency:13.3f}"
        )
    yield "efficiency = T1 / (N x TN) at one global batch; exchange = forward and backward beyond an N-th of one rank's"
