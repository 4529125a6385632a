"""Is any shard a fair sample? Sources and lengths of documents by shard, held against the multinomial, as a picture.

    python benchmarks/mix.py data/manifests/v1.json docs/mix.svg

A document counts in the shard where it ends. If every document fell into a shard by lot, Pearson's chi-squared of the
table shards x classes would follow its distribution: p below 0.001 says the order is not fair (or chance, once in a
thousand). Exit code 1 then. Standard output has the numbers, the SVG the bars. With best_fit it holds for shards of
several groups: a part of a group is whole rows, and a row's documents are of like length (docs/tokens.md).
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from manifests.lineage import lineage_path, read_lineage
from manifests.manifest import Dataset, load

LENGTH_BOUNDS = (64, 256, 1024, 4096)
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac")
LEAST_P = 0.001


@dataclass(frozen=True, kw_only=True)
class Table:
    """Documents by shard and class."""

    title: str
    classes: tuple[str, ...]
    counts: np.ndarray
    """int64 (shards, classes)."""

    @property
    def chi_squared(self) -> tuple[float, int, float]:
        """Pearson's statistic, its degrees of freedom, and the chance of one as large (Wilson-Hilferty)."""
        counts = self.counts[:, self.counts.sum(axis=0) > 0].astype(float)
        expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
        statistic = float(((counts - expected) ** 2 / expected).sum())
        freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
        if not freedom:
            return statistic, 0, 1.0
        z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
        return statistic, freedom, 0.5 * math.erfc(z / math.sqrt(2))

    def in_words(self) -> str:
        """One line."""
        statistic, freedom, chance = self.chi_squared
        fractions = self.counts / self.counts.sum(axis=1, keepdims=True)
        spread = ", ".join(
            f"{name} {100 * low:.1f}-{100 * high:.1f} %"
            for name, low, high in zip(self.classes, fractions.min(axis=0), fractions.max(axis=0), strict=True)
        )
        return (
            f"{self.title}: chi-squared {statistic:.0f} with {freedom} degrees of freedom, p = {chance:.3f}; {spread}"
        )


def tables_of(dataset: Dataset) -> list[Table]:
    """Sources and lengths of the training split's documents, by shard."""
    names = sorted(dataset.manifest.sources)
    by_source, by_length = [], []
    for shard in dataset.manifest.splits["train"].shards:
        table = read_lineage(dataset.resolve(lineage_path(shard.path)))
        ending = table.filter(table["ends"])
        sources = ending["source"].to_pylist()
        by_source.append([sources.count(name) for name in names])
        lengths = ending["document_offset"].to_numpy() + ending["num_tokens"].to_numpy()
        by_length.append(np.bincount(np.digitize(lengths, LENGTH_BOUNDS), minlength=len(LENGTH_BOUNDS) + 1))
    bounds = [f"under {LENGTH_BOUNDS[0]}", *(f"{low}-" for low in LENGTH_BOUNDS)]
    return [
        Table(title="sources", classes=tuple(names), counts=np.array(by_source)),
        Table(title="tokens of a document", classes=tuple(bounds), counts=np.array(by_length)),
    ]


def svg(title: str, tables: Sequence[Table]) -> str:
    """A bar a shard, a colour a class; dashed lines where the whole split's shares are."""
    width, height, left, gap = 860, 170, 56, 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 20}"'
        f' height="{60 + len(tables) * (height + gap)}" font-family="sans-serif" font-size="12" fill="#333">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{left}" y="24" font-size="15" font-weight="600">{title}</text>',
    ]
    top = 66.0
    for table in tables:
        statistic, freedom, chance = table.chi_squared
        summary = f"{table.title}: chi-squared {statistic:.0f}, {freedom} degrees of freedom, p = {chance:.2f}"
        parts.append(f'<text x="{left}" y="{top - 10:.1f}">{summary}</text>')
        shares = table.counts / table.counts.sum(axis=1, keepdims=True)
        whole = table.counts.sum(axis=0) / table.counts.sum()
        bar = width / len(shares)
        for shard, row in enumerate(shares):
            y = top
            for number, share in enumerate(row):
                x = left + shard * bar
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, bar - 1):.1f}" height="{share * height:.1f}"'
                    f' fill="{COLOURS[number % len(COLOURS)]}"/>'
                )
                y += share * height
        for edge in np.cumsum(whole)[:-1]:
            y = top + edge * height
            parts.append(
                f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#000"'
                ' stroke-dasharray="4 3"/>'
            )
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * edge:.0f} %</text>')
        x = float(left)
        for number, name in enumerate(table.classes):
            parts.append(f'<rect x="{x}" y="{top + height + 10}" width="11" height="11" fill="{COLOURS[number]}"/>')
            parts.append(f'<text x="{x + 16}" y="{top + height + 20}">{name}</text>')
            x += 40 + 7 * len(name)
        top += height + gap
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: Sequence[str]) -> int:
    """0 where no table is unlikely, 1 where one is, 2 for a wrong call."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python benchmarks/mix.py MANIFEST.json [PICTURE.svg]\n")
        return 2
    dataset = load(arguments[0])
    tables = tables_of(dataset)
    for table in tables:
        sys.stdout.write(table.in_words() + "\n")
    if len(arguments) == 2:
        manifest = dataset.manifest
        num_documents = manifest.splits["train"].num_documents
        title = (
            f"{num_documents:,} documents in {manifest.splits['train'].num_shards} shards, packed by"
            f" {manifest.example.packing}: a bar a shard, dashed the whole split"
        )
        Path(arguments[1]).write_text(svg(title, tables))
    return int(any(table.chi_squared[2] < LEAST_P for table in tables))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
