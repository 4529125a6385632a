"""Line plots as SVG text, small enough to stand in a page: no script, no library, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 10, 26
# More points than pixels only make the page heavy: each column of a plot shows its lowest and highest value.
_COLUMNS = 450

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line. style: "line", "soft" (behind, for the raw figures) or "dots" (few points, such as validations)."""

    name: str
    points: Sequence[Point]
    style: str = "line"


def plot(series: Sequence[Series], *, marks: Sequence[float] = (), from_zero: bool = False) -> str:
    """An <svg> of `series` over an axis of steps. marks: dashed vertical lines. from_zero: the other axis holds 0."""
    points = [point for one in series for point in one.points if math.isfinite(point[1])]
    if not points:
        return '<p class="soft">nothing to show yet</p>'
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low_x, high_x = min(xs), max(xs)
    ticks = nice_ticks(0.0 if from_zero else min(ys), max(ys))
    low_y, high_y = ticks[0], ticks[-1]

    def place(point: Point) -> Point:
        x = _LEFT + (point[0] - low_x) / max(high_x - low_x, 1e-12) * (WIDTH - _LEFT - _RIGHT)
        y = HEIGHT - _BOTTOM - (point[1] - low_y) / (high_y - low_y) * (HEIGHT - _TOP - _BOTTOM)
        return round(x, 1), round(y, 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for tick in ticks:
        y = place((low_x, tick))[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{short(tick)}</text>')
    for value, anchor in ((low_x, "start"), (high_x, "end")):
        x = place((value, low_y))[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="{anchor}">step {value:,.0f}</text>')
    for mark in marks:
        x = place((mark, low_y))[0]
        parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
    for number, one in enumerate(series):
        placed = [place(point) for point in thin(one.points, low_x, high_x)]
        if one.style == "dots":
            parts += [f'<circle class="s{number}" cx="{x}" cy="{y}" r="4"/>' for x, y in placed]
        path = " ".join(f"{x},{y}" for x, y in placed)
        parts.append(f'<polyline class="s{number} {one.style}" points="{path}"/>')
    return "\n".join([*parts, "</svg>"])


def thin(points: Sequence[Point], low: float, high: float) -> list[Point]:
    """At most two points a column of the plot, the lowest and the highest, in order; what is not finite is left out."""
    finite = [point for point in points if math.isfinite(point[1])]
    if len(finite) <= 2 * _COLUMNS:
        return finite
    columns: dict[int, list[Point]] = {}
    for point in finite:
        columns.setdefault(int((point[0] - low) / (high - low) * (_COLUMNS - 1)), []).append(point)
    kept = []
    for members in columns.values():
        extremes = {min(members, key=lambda point: point[1]), max(members, key=lambda point: point[1])}
        kept += sorted(extremes)
    return kept


def nice_ticks(low: float, high: float) -> list[float]:
    """Three to eight round numbers that hold low .. high between them.

    Worked example: 4.31 .. 4.58 -> 4.3, 4.4, 4.5, 4.6.
    """
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size or size < 1e-15:  # one value: the axis goes half of it up and down
        half = (size if size >= 1e-15 else 1.0) / 2
        low, high = low - half, high + half
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def short(value: float) -> str:
    """A tick's label: 0.0003 -> 3e-04, 0.25 -> 0.25, 12300 -> 12.3k, 4500000 -> 4.5M."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.4g}M"
    if size >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:.0e}" if 0 < size < 1e-3 else f"{value:.4g}"
