"""Exact duplicates -> their lines, to be taken off those that reading counted.

A line is a template where many *different* documents hold it, and reading cannot know which are copies. A unit is a
group of files: what has no rank is what exact deduplication dropped, and of that, as far as its lines were counted, the
text is read again. Without such documents nothing is read but ranks and hashes.
"""

import dataclasses
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manifests import storage
from pipeline.counted_lines import CountedLines, LineCounter, in_sample
from pipeline.documents import DocumentsFile, fixed_bytes, open_parquet, read_columns
from pipeline.identity import CONTENT_HASH_BYTES
from pipeline.runtime import Summary
from pipeline.stages.exact import Group
from pipeline.stages.ranks import read_ranks


@dataclass(frozen=True, kw_only=True)
class UncountTask:
    """Count the lines of one group's exact duplicates."""

    group: Group
    ranks_urls: tuple[str, ...]
    first_ranks: tuple[int, ...]
    num_groups: int
    levels: dict[str, int]
    """CountedLines.level by source."""
    lines_url: str
    """Prefix of the files' urls."""


def uncount(task: UncountTask) -> Summary:
    """Write LINE with counts below 0, a file a source that has exact duplicates here."""
    ranked = read_ranks(task.ranks_urls, task.first_ranks, task.group.number, task.num_groups)["document"]
    counters: dict[str, LineCounter] = defaultdict(LineCounter)
    for file in task.group.files:
        dropped = np.ones(file.num_documents, np.bool_)
        low, high = np.searchsorted(ranked, [file.first_document, file.first_document + file.num_documents])
        dropped[ranked[low:high] - file.first_document] = False
        if dropped.any():
            hashes = fixed_bytes(read_columns(file.url, ["content_hash"])["content_hash"], CONTENT_HASH_BYTES)
            _add(counters[file.source], file, dropped & in_sample(hashes, task.levels[file.source]))
    counted = []
    for source, counter in sorted(counters.items()):
        lines = counter.lines()
        lines["count"] *= -1
        url = f"{task.lines_url}-{source}.uncounted"
        storage.write_bytes(url, lines.tobytes())
        of_source = CountedLines(
            source=source, url=url, num_documents=-counter.num_documents, level=task.levels[source]
        )
        counted.append(dataclasses.asdict(of_source))
    return {"counted": counted, "files": [row["url"] for row in counted]}


def _add(counter: LineCounter, file: DocumentsFile, chosen: np.ndarray) -> None:
    with open_parquet(file.url) as parquet:
        start = 0
        for number in range(parquet.num_row_groups):
            of_group = chosen[start : start + parquet.metadata.row_group(number).num_rows]
            start += len(of_group)
            if of_group.any():
                table = parquet.read_row_group(number, columns=["text"], use_threads=False)
                counter.add(table.filter(pa.array(of_group))["text"].combine_chunks())
