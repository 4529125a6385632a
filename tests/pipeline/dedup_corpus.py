"""Small corpora through reading and deduplication, and the same decisions made by plain Python."""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from pipeline.config import BuildConfig, parse
from pipeline.stages.deduplicate import Dropped, deduplicate, kept_rows
from pipeline.stages.read import find_all_inputs, read
from tests.pipeline.inline_runtime import InlineRuntime

Document = tuple[str, str, str]
"""(source, id, text)"""
Dates = Mapping[tuple[str, str], int | None]
"""(source, id) -> UTC seconds"""


def values_for(
    folder: Path, documents: Sequence[Document], files: int = 3, *, dates: Dates | None = None, **dedup: Any
) -> dict[str, Any]:
    """Write the documents as JSON lines, `files` a source; the config that reads them. Source "b" has priority 1."""
    of_source: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        of_source[document[0]].append(document)
    for source, rows in of_source.items():
        for number in range(files):
            path = folder / "in" / source / f"{number}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            dated = [
                {"written": (dates or {}).get((source, id_))} if dates else {} for _, id_, _ in rows[number::files]
            ]
            lines = [
                json.dumps({"id": id_, "text": text, **date}) + "\n"
                for (_, id_, text), date in zip(rows[number::files], dated, strict=True)
            ]
            path.write_text("".join(lines), encoding="utf-8")
    return {
        "name": "corpus",
        "output": str(folder / "out"),
        "sources": [
            {
                "name": source,
                "paths": [str(folder / "in" / source)],
                "priority": int(source == "b"),
                "date": "written" if dates else None,
            }
            for source in sorted(of_source)
        ],
        "tokenizer": {"train": {"vocab_size": 300}},
        "dedup": dedup,
    }


def config_for(
    folder: Path, documents: Sequence[Document], files: int = 3, *, dates: Dates | None = None, **dedup: Any
) -> BuildConfig:
    """The same, checked."""
    return parse(values_for(folder, documents, files, dates=dates, **dedup))


def decisions_of(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], tuple[str, str, str, float]]:
    """See Outcome.decisions."""
    return {
        (row["source"], row["document_id"]): (
            row["keeper_source"],
            row["keeper_id"],
            row["kind"],
            round(row["similarity"], 9),
        )
        for row in rows
    }


def rows_of(folder: str) -> list[dict[str, Any]]:
    """What `<root>/duplicates/<version>` tells."""
    files = [info.url for info in storage.list_objects(folder) if info.url.endswith(".parquet")]
    return [row for url in files for row in table_of(url).to_pylist()]


def table_of(url: str) -> pa.Table:
    """A Parquet file wherever it lies."""
    return pq.read_table(pa.BufferReader(storage.read_bytes(url)))


@dataclass(frozen=True)
class Outcome:
    dropped: Dropped
    rows: list[dict[str, Any]]
    files: list[tuple[str, bool]]
    """(text, whether it stays) of every document, as later stages see it."""

    @property
    def decisions(self) -> dict[tuple[str, str], tuple[str, str, str, float]]:
        """(source, id) of each dropped document -> source and id of its keeper, kind, similarity."""
        return decisions_of(self.rows)


def run(config: BuildConfig, *, backwards: bool = False) -> Outcome:
    """Read and deduplicate in this process."""
    runtime = InlineRuntime(build_url=f"{config.output}/.build", backwards=backwards)
    documents = read(runtime, config, find_all_inputs(config))
    dropped = deduplicate(runtime, config.output, config.version, documents.files, documents.lines, config.dedup)
    rows = rows_of(dropped.url)
    files = [
        (text, bool(stays))
        for file in documents.files
        for text, stays in zip(table_of(file.url)["text"].to_pylist(), kept_rows(dropped.url, file), strict=True)
    ]
    return Outcome(dropped, rows, files)


def dropped_of(folder: Path, documents: Sequence[Document], **dedup: Any) -> Outcome:
    return run(config_for(folder, documents, **dedup))


def shingles(text: str, ngram: int = 5) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + ngram]) for start in range(len(words) - ngram + 1)}


def jaccard(left: set[Any], right: set[Any]) -> float:
    return len(left & right) / len(left | right) if left | right else 0.0


def plain_unique(
    documents: Sequence[Document], dates: Dates | None = None
) -> tuple[list[Document], list[tuple[Document, Document]]]:
    """By preference, (what exact deduplication leaves, (copy, its keeper) of the rest).

    With `dates` the newest is preferred, and a document without one least.
    """

    def preference(document: Document) -> tuple[Any, ...]:
        date = (dates or {}).get(document[:2])
        return -(document[0] == "b"), dates is not None and date is None, -(date or 0), document[1], document[0]

    first: dict[str, Document] = {}
    copies: list[tuple[Document, Document]] = []
    for document in sorted(documents, key=preference):
        text = " ".join(document[2].split())
        if text in first:
            copies.append((document, first[text]))
        else:
            first[text] = document
    return list(first.values()), copies


def plain_cores(
    documents: Sequence[Document], fraction: float, min_documents: int, dates: Dates | None = None
) -> dict[tuple[str, str], str]:
    """Every text without its source's template lines: those of many documents that are not copies."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    num: Counter[str] = Counter()
    for source, _, text in plain_unique(documents, dates)[0]:
        num[source] += 1
        counts[source].update({line.strip(" \t\r") for line in text.split("\n")} - {""})
    templates = {
        source: {line for line, n in lines.items() if n >= max(min_documents, fraction * num[source])}
        for source, lines in counts.items()
    }
    return {
        (source, id_): "\n".join(line for line in text.split("\n") if line.strip(" \t\r") not in templates[source])
        for source, id_, text in documents
    }


def plain_decisions(
    documents: Sequence[Document], threshold: float, templates: Mapping[str, Any], dates: Dates | None = None
) -> dict[tuple[str, str], tuple[str, str, str, float]]:
    """Who goes for whom when every pair is compared: by rank, each for the most similar of those that stay."""
    core_of = plain_cores(documents, templates["fraction"], templates["min_documents"], dates)
    decisions: dict[tuple[str, str], tuple[str, str, str, float]] = {}
    unique, copies = plain_unique(documents, dates)
    kept: list[tuple[Document, set[Any], set[Any]]] = []
    for document in unique:
        whole, core = shingles(document[2]), shingles(core_of[document[:2]])
        best = None
        for other, other_whole, other_core in kept:
            similarity = jaccard(whole, other_whole)
            is_alike = similarity >= threshold and jaccard(core, other_core) >= 0.875 * threshold
            if is_alike and (best is None or similarity > best[1]):
                best = (other, similarity)
        if best is None:
            kept.append((document, whole, core))
        else:
            decisions[document[:2]] = (*best[0][:2], "near", round(best[1], 9))
    for document, keeper in copies:
        gone = decisions.get(keeper[:2])
        decisions[document[:2]] = (*keeper[:2], "exact", 1.0) if gone is None else gone
    return decisions


# So many bands of one row that every pair above the threshold meets: then plain Python knows what must come out.
SURE = {"bands": 60, "rows": 1, "threshold": 0.7, "templates": {"fraction": 0.2, "min_documents": 15}}


def words(generator: random.Random, number: int) -> list[str]:
    return [generator.choice("абвгдежзик") + str(generator.randrange(300)) for _ in range(number)]


def mixed_corpus(seed: int) -> list[Document]:
    """Revisions of revisions, exact copies across sources, tickets on a form, short texts: some 200 documents."""
    generator = random.Random(seed)
    made: list[Document] = []
    texts: list[list[str]] = []
    for number in range(150):
        text = words(generator, generator.randrange(6, 60))
        if texts and generator.random() < 0.7:
            text = list(generator.choice(texts))
            for _ in range(generator.randrange(3)):
                text[generator.randrange(len(text))] = words(generator, 1)[0]
        texts.append(text)
        body = " ".join(text)
        if generator.random() < 0.4:
            body = f"Добрый день, уважаемые коллеги!\n{body}\n\n  С уважением, отдел поддержки и сопровождения\n"
        made.append((generator.choice("ab"), f"{number:03d}", body))
    for number in range(40):
        source, _, same = generator.choice(made)
        made.append((generator.choice("ab"), f"copy {number}", same.replace(" ", "  ") if number % 2 else same))
        made.append((source, f"short {number}", " ".join(words(generator, 3))))
    return made
