"""Lines counted by the read units -> the template lines of a source.

A unit is a source and a range of line hashes. A line is a template where it stands in at least `fraction` of the
documents its source was counted by, and in `min_documents`; so a source has at most (lines a document / fraction) of
them, a few thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manifests import storage
from pipeline.documents import LINE, sum_lines
from pipeline.runtime import Summary
from pipeline.stages.exact import Group


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


def read_templates(urls: Sequence[str]) -> np.ndarray:
    """LINE (k,), sorted by hash."""
    return sum_lines([np.frombuffer(storage.read_bytes(url), LINE) for url in urls])


def of_sources(templates_urls: dict[str, tuple[str, ...]], group: Group) -> dict[str, tuple[str, ...]]:
    """The part of `templates_urls`, by source, that a group of files needs."""
    sources = {file.source for file in group.files}
    return {source: urls for source, urls in templates_urls.items() if source in sources}
