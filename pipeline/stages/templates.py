"""Lines counted by the read units, less those of exact duplicates (uncount.py) -> the template lines of a source.

1. find     a unit is a source and a range of line hashes. A line is a template where it stands in at least `fraction`
            of the documents its source was counted by, and in `min_documents`; so a source has at most (lines a
            document / fraction) of them, a few thousand.
2. join     a unit is a source: its own and those of the version it continues. A few new documents on a form that the
            old version knew are too few to show that it is one.
3. keep     one unit: all of them, for the next version, `<root>/signatures/<version>/templates.parquet`

    source        large_string
    line_hash     uint64        dedup/templates.py
    num_documents int64         in how many it was counted
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from manifests import storage
from pipeline.counted_lines import LINE, sum_lines
from pipeline.documents import read_columns
from pipeline.runtime import Summary
from pipeline.stages.exact import Group

FILE = "templates.parquet"
SCHEMA = pa.schema([("source", pa.large_string()), ("line_hash", pa.uint64()), ("num_documents", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class TemplatesTask:
    """Find template lines among the hashes of one range."""

    lines_urls: tuple[str, ...]
    part: int
    num_parts: int
    min_count: int
    templates_url: str


def find_templates(task: TemplatesTask) -> Summary:
    """Write LINE, sorted by hash: the lines that count as templates, and in how many documents each was seen."""
    bound = [part * 2**64 // task.num_parts for part in (task.part, task.part + 1)]
    counted = np.empty(0, LINE)
    for url in task.lines_urls:
        lines = np.frombuffer(storage.read_bytes(url), LINE)
        start = int(np.searchsorted(lines["hash"], np.uint64(bound[0])))
        end = len(lines) if bound[1] == 2**64 else int(np.searchsorted(lines["hash"], np.uint64(bound[1])))
        counted = sum_lines([counted, lines[start:end]])
    templates = counted[counted["count"] >= task.min_count]
    storage.write_bytes(task.templates_url, templates.tobytes())
    return {"num_templates": len(templates), "files": [task.templates_url]}


@dataclass(frozen=True, kw_only=True)
class JoinTask:
    """Bring a source's template lines together."""

    source: str
    own_urls: tuple[str, ...]
    known_url: str | None
    """SCHEMA, of the base version."""
    templates_url: str


def join_templates(task: JoinTask) -> Summary:
    """Write LINE, sorted by hash: old and new."""
    own = read_templates(task.own_urls)
    known = _of_source(read_columns(task.known_url), task.source) if task.known_url is not None else own[:0]
    templates = sum_lines([known, own])
    storage.write_bytes(task.templates_url, templates.tobytes())
    return {"num_templates": len(templates), "files": [task.templates_url]}


def _of_source(known: pa.Table, source: str) -> np.ndarray:
    table = known.filter(pc.equal(known["source"], source))
    lines = np.empty(table.num_rows, LINE)
    lines["hash"], lines["count"] = table["line_hash"].to_numpy(), table["num_documents"].to_numpy()
    return lines


@dataclass(frozen=True, kw_only=True)
class KeepTask:
    """Keep a version's template lines for the next."""

    templates_urls: dict[str, tuple[str, ...]]
    """By source, those of the base among them."""
    known_url: str | None
    kept_url: str


def keep_templates(task: KeepTask) -> Summary:
    """Write SCHEMA by source and hash: of the build's sources, and what the base knew of others."""
    tables = {}
    if task.known_url is not None:
        known = read_columns(task.known_url)
        tables = {name: _table(name, _of_source(known, name)) for name in known["source"].unique().to_pylist()}
    tables |= {source: _table(source, read_templates(urls)) for source, urls in task.templates_urls.items()}
    table = pa.concat_tables([SCHEMA.empty_table(), *(tables[source] for source in sorted(tables))])
    with storage.atomic_writer(task.kept_url) as stream:
        pq.write_table(table, stream, compression="zstd")
    return {"num_templates": table.num_rows, "files": [task.kept_url]}


def _table(source: str, lines: np.ndarray) -> pa.Table:
    columns = [pa.repeat(pa.scalar(source, pa.large_string()), len(lines)), lines["hash"], lines["count"]]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def read_templates(urls: Sequence[str]) -> np.ndarray:
    """LINE (k,), sorted by hash."""
    return sum_lines([np.frombuffer(storage.read_bytes(url), LINE) for url in urls])


def of_sources(templates_urls: dict[str, tuple[str, ...]], group: Group) -> dict[str, tuple[str, ...]]:
    """The part of `templates_urls`, by source, that a group of files needs."""
    sources = {file.source for file in group.files}
    return {source: urls for source, urls in templates_urls.items() if source in sources}
