"""Panels as one HTML page that needs nothing but itself."""

from pathlib import Path

import jinja2
import numpy as np

from pipeline.inspection.panels import Inspection, Panel, place_of
from pipeline.inspection.terminal import number

WIDTH, HEIGHT = 560, 90


def page(inspection: Inspection, *, title: str, described: str) -> str:
    """The page; `title` names config and source, `described` how much of it was read."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, percent=lambda share: f"{100 * share:.2f} %")
    template = environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    shown = [(panel, bars(panel), place_of(panel)) for panel in inspection.panels]
    return template.render(
        inspection=inspection,
        title=title,
        described=described,
        with_limit=[row for row in shown if row[0].limit is not None],
        without=[row for row in shown if row[0].limit is None],
        width=WIDTH,
        height=HEIGHT,
    )


def bars(panel: Panel) -> list[tuple[float, float, float, float, int, float, float]]:
    """(x, width, height, height of the dropped part, documents, from, to) of each bar that has any."""
    top = max(float(np.log1p(panel.counts.max(initial=0))), 1e-9)
    step = WIDTH / len(panel.counts)
    rows = []
    for place, (count, dropped) in enumerate(
        zip(panel.counts.tolist(), panel.num_dropped_in_bin.tolist(), strict=True)
    ):
        if count:
            height = HEIGHT * float(np.log1p(count)) / top
            low, high = float(panel.edges[place]), float(panel.edges[place + 1])
            rows.append((place * step, step - 1, height, height * dropped / count, count, low, high))
    return rows
