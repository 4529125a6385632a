"""Whole builds in the test's own process: the real stages, the real files, no Ray."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manifests.lineage import lineage_path, read_lineage
from manifests.manifest import Dataset
from manifests.shard import view_examples
from manifests.verify import verify_records, verify_shards
from pipeline.build import Host, build
from pipeline.config import parse
from pipeline.runtime import Summary, Unit, execute, result_url
from pipeline.tokenization import train_tokenizer


@dataclass(frozen=True)
class InlineRuntime:
    """pipeline.runtime.Runtime in this process."""

    build_url: str

    def run(self, stage: str, function: Callable[[Any], Summary], units: Sequence[Unit]) -> list[Summary]:
        return [execute(function, unit, result_url(self.build_url, stage, unit.key)) for unit in units]


def a_token_a_byte() -> bytes:
    """A tokenizer without merges: a text of n ASCII letters is n tokens, and EOS is id 0."""
    return train_tokenizer(["ab"], 257)


def build_texts(
    root: Path,
    files: Sequence[Sequence[tuple[str, str]]],
    *,
    tokenizer: bytes | None = None,
    said: list[str] | None = None,
    **changes: Any,
) -> Dataset:
    """Build a data set of (id, text) records, one JSON-lines file a list, one source; nothing is filtered.

    What the terminal would show is added to `said`.
    """
    root.mkdir(parents=True)
    for number, records in enumerate(files):
        lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in records]
        (root / f"part-{number}.jsonl").write_text("".join(lines))
    (root / "tokenizer.json").write_bytes(tokenizer or a_token_a_byte())
    weight = changes.pop("weight", 1.0)
    values = {
        "name": "letters",
        "output": str(root / "data"),
        "sources": [{"name": "letters", "paths": [str(root / "*.jsonl")], "weight": weight}],
        "filters": [],
        "dedup": {"exact": False, "near": {"enabled": False}},
        "tokenizer": {"path": str(root / "tokenizer.json"), **changes.pop("tokenizer_keys", {})},
        "validation": {"fraction": 0.0},
        **changes,
    }
    runtime = InlineRuntime(f"{values['output']}/.build")
    return build(parse(values), runtime, Host(workers=1, ray="none"), (said if said is not None else []).append)


def problems_of(dataset: Dataset) -> list[str]:
    """What `python -m manifests verify` would say."""
    found = [finding for shard in verify_shards(dataset) for finding in shard.findings]
    return [str(finding) for finding in [*found, *verify_records(dataset)]]


def examples_of(dataset: Dataset, split: str = "train") -> np.ndarray:
    """All examples of a split, (n, seq_len)."""
    example = dataset.manifest.example
    parts = [
        view_examples(Path(dataset.resolve(shard.path)).read_bytes(), example)
        for shard in dataset.manifest.splits[split].shards
    ]
    return np.concatenate([np.empty((0, example.seq_len), example.numpy_dtype), *parts])


def lineage_of(dataset: Dataset, split: str = "train") -> pa.Table:
    """The lineage of a split, with `first_example` counted through all its shards."""
    tables, first = [], 0
    for shard in dataset.manifest.splits[split].shards:
        table = read_lineage(dataset.resolve(lineage_path(shard.path)))
        examples = pa.array(table["first_example"].to_numpy() + first)
        tables.append(table.set_column(table.schema.get_field_index("first_example"), "first_example", examples))
        first += shard.num_examples
    return pa.concat_tables(tables)
