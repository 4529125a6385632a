"""One HTML page about a run: what a person wants to know first, then the plots. Pure: rows and events in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

import jinja2

from trainer.goodput import Ledger, Seconds, ledger
from trainer.journal import clock_time, short_number
from trainer.observer import quantile
from trainer.plot import Series, plot

# Of a moving average over this share of the steps: a loss jumps about from batch to batch.
_SMOOTHED_SHARE = 0.02
_WORDS = {
    "productive": "steps made once",
    "start": "start",
    "data_wait": "waiting for data",
    "save": "held by checkpoints",
    "repeated": "steps made again after a restart",
    "evaluation": "validation",
    "down": "down",
    "other": "other (export, log)",
}


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """What a run leaves: rows of metrics.jsonl, events of timeline.jsonl, and run.json."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]


def render(run: RunFiles) -> str:
    """The page, whole in itself: no script, no font, no picture from anywhere."""
    booked = ledger(run.events)
    restarts = [float(attempt.first_step) for attempt in booked.attempts[1:]]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(files("trainer").joinpath("report.html").read_text(encoding="utf-8"))
    return template.render(
        name=run.name,
        facts=run.facts,
        cards=_cards(run.rows, booked),
        plots=_plots(run.rows, booked, restarts),
        spent=_spent(booked.seconds),
        attempts=[_attempt(number, attempt) for number, attempt in enumerate(booked.attempts, 1)],
        skipped=sum(bool(row["skipped"]) for row in run.rows),
    )


def _cards(rows: Sequence[Mapping[str, Any]], booked: Ledger) -> list[tuple[str, str, str]]:
    """(what, figure, remark) in the order a person asks."""
    if not rows:
        return []
    last, seconds = rows[-1], [row["seconds"] for row in rows]
    validated = [row for row in rows if "validation_loss" in row]
    middle, late = quantile(seconds, 0.5), quantile(seconds, 0.95)
    waits = sum(row["data_wait_s"] for row in rows) / sum(seconds)
    rates = [row["tokens_per_s"] for row in rows]
    cards = [
        ("steps", f"{last['step']:,}", f"{last['examples_consumed']:,} examples"),
        ("loss", _figure(last["loss"], ".4f"), f"learning rate {last['lr']:.2e}"),
    ]
    if validated:
        newest = validated[-1]
        cards.append(
            ("perplexity", f"{newest['validation_perplexity']:.2f}", f"validation loss {newest['validation_loss']:.4f}")
        )
    cards += [
        ("tokens a second", short_number(quantile(rates, 0.5)), "median of the steps"),
        ("step", f"{middle:.3g} s", f"p95 {late:.3g} s"),
        ("data wait", f"{waits:.2%}", "of the steps' time"),
        (
            "goodput",
            f"{booked.seconds.goodput:.1%}",
            f"of {clock_time(booked.seconds.total)} since the run was born",
        ),
    ]
    utilised = [row["mfu"] for row in rows if "mfu" in row]
    if utilised:
        cards.append(("MFU", f"{quantile(utilised, 0.5):.1%}", "median; arithmetic without recomputation"))
    return cards


def _plots(rows: Sequence[Mapping[str, Any]], booked: Ledger, restarts: Sequence[float]) -> list[dict[str, Any]]:
    """Each with a title, an <svg> and the names of its lines."""

    def points(key: str) -> list[tuple[float, float]]:
        return [(float(row["step"]), float(row[key])) for row in rows if row.get(key) is not None]

    loss = points("loss")
    drawn = [
        ("loss (nats a token)", [
            Series(name="each step", points=loss, style="soft"),
            Series(name="moving average", points=moving_average(loss)),
            Series(name="validation", points=points("validation_loss"), style="dots"),
        ], False),
        ("learning rate", [Series(name="learning rate", points=points("lr"))], True),
        ("gradient norm, before clipping", [Series(name="norm", points=points("grad_norm"))], True),
        ("tokens a second", [Series(name="tokens a second", points=points("tokens_per_s"))], True),
        ("step time (s)", [
            Series(name="step", points=points("seconds")),
            Series(name="of it waiting for data", points=points("data_wait_s")),
        ], True),
        ("goodput (share of all time so far)", [Series(name="goodput", points=goodput_by_step(booked, rows))], True),
    ]  # fmt: skip
    return [
        {"title": title, "svg": plot(lines, marks=restarts, from_zero=zero), "names": [line.name for line in lines]}
        for title, lines, zero in drawn
    ]


def moving_average(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Mean of the last 2 % of all steps, up to each."""
    window = max(1, round(_SMOOTHED_SHARE * len(points)))
    result, total = [], 0.0
    for number, (x, y) in enumerate(points):
        total += y - (points[number - window][1] if number >= window else 0.0)
        result.append((x, total / min(number + 1, window)))
    return result


def goodput_by_step(booked: Ledger, rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(step, productive share of the time since the birth when it was made); of steps that were kept."""
    if not booked.attempts:
        return []
    born, productive = booked.attempts[0].born_at, 0.0
    result = []
    waits = {row["step"]: row["data_wait_s"] for row in rows}
    for step, at, seconds in booked.kept_steps:
        productive += seconds - waits.get(step, 0.0)
        result.append((float(step), productive / max(1e-9, at - born)))
    return result


def _spent(seconds: Seconds) -> list[dict[str, Any]]:
    total = seconds.total or 1.0
    return [
        {
            "words": _WORDS[field.name],
            "kind": field.name,
            "clock": clock_time(getattr(seconds, field.name)),
            "percent": 100 * getattr(seconds, field.name) / total,
        }
        for field in fields(seconds)
    ]


def _attempt(number: int, attempt: Any) -> dict[str, Any]:
    return {
        "number": number,
        "from": attempt.first_step,
        "to": attempt.last_step,
        "lost": attempt.steps_lost,
        "ranks": attempt.world_size,
        "took": clock_time(attempt.ended_at - attempt.born_at),
        "ended": attempt.ended,
    }


def _figure(value: float | None, form: str) -> str:
    return "not finite" if value is None else format(value, form)
