"""Pictures of how the loader's order mixes, for docs/loader.md: where examples go, and what meets in a batch.

    .venv/bin/python benchmarks/loader_pictures.py docs/pictures

Pure arithmetic, nothing is read: shards of 1,017 examples, 12 on 8 lanes (the set of benchmarks/loader.py) for the
first picture, 48 on 64 for the second.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from loader.order import RunShape, SplitOrder

SHARD_EXAMPLES = 1017
# Sources one behind the other in the manifest, the hardest case: their shares of the shards.
SOURCES = {"web": 0.625, "code": 0.25, "tickets": 0.125}
COLORS = ("#3b6ea5", "#c8743c", "#5a8f4e")
SIDE, GAP, TOP = 240, 36, 46
DOTS = 2500


def order(num_shards: int, batch: int, window_shards: int) -> np.ndarray:
    """The examples of epoch 0 in order, each by its place in the manifest: (steps, batch)."""
    shape = RunShape(global_batch=batch, num_lanes=batch, window_shards=window_shards, seed=0)
    split = SplitOrder(shard_num_examples=np.full(num_shards, SHARD_EXAMPLES), shape=shape)
    shards, indices = split.epoch(0).steps(range(batch), 0, split.steps_per_epoch)
    places: np.ndarray = shards * SHARD_EXAMPLES + indices
    return places


def moves_picture() -> str:
    """A dot an example: its place in the epoch to the right, its place in the manifest upwards."""
    orders = {
        "window_shards=1": order(12, 8, 1).ravel(),
        "window_shards=2": order(12, 8, 2).ravel(),
        "a full shuffle": np.random.default_rng(0).permutation(12 * SHARD_EXAMPLES),
    }
    parts = []
    for number, (name, places) in enumerate(orders.items()):
        left = 20 + number * (SIDE + GAP)
        move = np.abs(places - np.arange(len(places))).mean() / len(places) * 3
        parts.append(_text(left, 18, name, bold=True))
        parts.append(_text(left, 36, f"mean move {move:.3f} of a full shuffle's"))
        parts.append(_frame(left, TOP))
        chosen = np.linspace(0, len(places) - 1, DOTS).astype(np.int64)
        dots = "".join(
            f"M{left + SIDE * at / len(places):.1f},{TOP + SIDE * (1 - places[at] / len(places)):.1f}h0"
            for at in chosen.tolist()
        )
        parts.append(f'<path d="{dots}" stroke="{COLORS[0]}" stroke-width="2" stroke-linecap="round"/>')
        parts.append(_text(left, TOP + SIDE + 18, "→ place in the epoch  ↑ in the manifest"))
    return _svg(parts, 3)


def sources_picture() -> str:
    """How many rows of a batch each source gives, beside the binomial's counts."""
    num_shards, batch = 48, 64
    steps = order(num_shards, batch, 1)
    ends = np.cumsum([round(share * num_shards) for share in SOURCES.values()]) * SHARD_EXAMPLES
    source = np.searchsorted(ends, steps, side="right")
    parts = []
    for number, (name, share) in enumerate(SOURCES.items()):
        left = 20 + number * (SIDE + GAP)
        found = np.bincount((source == number).sum(axis=1), minlength=batch + 1) / len(steps)
        expected = [math.comb(batch, k) * share**k * (1 - share) ** (batch - k) for k in range(batch + 1)]
        mean, deviation = batch * share, math.sqrt(batch * share * (1 - share))
        first, last = max(0, int(mean - 4 * deviation)), min(batch, math.ceil(mean + 4 * deviation))
        top = max(found.max(), max(expected))
        width = SIDE / (last - first + 1)
        parts.append(_text(left, 18, f"{name}, {share:.1%} of the examples", bold=True))
        parts.append(_text(left, 36, "rows of a batch; line: drawn at random"))
        parts.append(_frame(left, TOP))
        line = []
        for rows in range(first, last + 1):
            x, height = left + (rows - first) * width, SIDE * found[rows] / top
            parts.append(
                f'<rect x="{x:.1f}" y="{TOP + SIDE - height:.1f}" width="{width - 1:.1f}" height="{height:.1f}" '
                f'fill="{COLORS[number]}"/>'
            )
            line.append(f"{x + width / 2:.1f},{TOP + SIDE * (1 - expected[rows] / top):.1f}")
        parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="#222" stroke-width="1.5"/>')
        for rows in (first, round(mean), last):
            parts.append(_text(left + (rows - first + 0.5) * width, TOP + SIDE + 18, str(rows), anchor="middle"))
    return _svg(parts, 3)


def _frame(left: float, top: float) -> str:
    return f'<rect x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>'


def _text(x: float, y: float, words: str, *, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{weight}>{words}</text>'


def _svg(parts: list[str], panels: int) -> str:
    width, height = 20 + panels * (SIDE + GAP), TOP + SIDE + 30
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#222">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def pictures() -> Iterator[tuple[str, str]]:
    yield "loader-moves.svg", moves_picture()
    yield "loader-sources.svg", sources_picture()


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python benchmarks/loader_pictures.py FOLDER\n")
        return 2
    for name, text in pictures():
        path = Path(sys.argv[1]) / name
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
