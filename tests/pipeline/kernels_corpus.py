"""Real documents for the tests of kernels, filters and deduplication."""

import gzip
import io
import json
from pathlib import Path

import zstandard


def sample_texts(corpus_dir: Path) -> list[str]:
    """The 630 texts of the corpus' sample: Russian and English documentation, tickets and mail."""
    with gzip.open(corpus_dir / "clean" / "sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def source_texts(corpus_dir: Path, name: str) -> dict[str, str]:
    """The texts of clean/<name>.jsonl.zst by id."""
    with (corpus_dir / "clean" / f"{name}.jsonl.zst").open("rb") as file:
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8", newline="\n")
        return {record["id"]: record["text"] for record in map(json.loads, stream)}


def labelled_revisions(corpus_dir: Path) -> list[tuple[str, str, float]]:
    """(id, id, exact Jaccard of 5-word shingles, to four places) of pages in two package versions."""
    lines = (corpus_dir / "neardup" / "doc_revisions.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    return [(pair["id_a"], pair["id_b"], pair["jaccard_w5"]) for pair in pairs]
