"""In how many documents each line stands: LINE records, counted by the read units for the search of template lines.

A unit's file holds them sorted by hash. Of a large source a sample of the documents is counted, chosen by content hash:
copies of a text are all in it or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.dedup.templates import line_hashes

LINE = np.dtype([("hash", "<u8"), ("count", "<i8")])
MAX_UNCOUNTED = 16_000_000
"""Lines held before they are counted: 128 MB. Counting sorts them, so the fewer times the better."""


@dataclass(frozen=True, kw_only=True)
class CountedLines:
    """A file of LINE."""

    source: str
    url: str
    num_documents: int
    """By how many documents it was counted; below 0 where it is to be subtracted."""
    level: int
    """One document in 2**level was."""


def in_sample(content_hashes: np.ndarray, level: int) -> np.ndarray:
    """bool (n,) for uint8 (n, 16): whether lines of a document are counted."""
    chosen: np.ndarray = content_hashes[:, 0] & ((1 << level) - 1) == 0
    return chosen


class LineCounter:
    """Counts lines, each once a document."""

    def __init__(self) -> None:
        self._counted = np.empty(0, LINE)
        self._uncounted: list[np.ndarray] = []
        self.num_documents = 0

    def add(self, text: pa.LargeStringArray) -> None:
        """Count the lines of these documents."""
        self._uncounted.append(line_hashes(text)[0])
        self.num_documents += len(text)
        if sum(map(len, self._uncounted)) > MAX_UNCOUNTED:
            self.lines()

    def lines(self) -> np.ndarray:
        """LINE (k,), sorted by hash: of all documents so far."""
        hashes, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *self._uncounted]), return_counts=True)
        added = np.empty(len(hashes), LINE)
        added["hash"], added["count"] = hashes, counts
        self._counted, self._uncounted = sum_lines([self._counted, added]), []
        return self._counted


def sum_lines(parts: Sequence[np.ndarray]) -> np.ndarray:
    """LINE (k,), sorted by hash: equal hashes of all parts added up."""
    lines = np.concatenate([np.empty(0, LINE), *parts])
    hashes, place = np.unique(lines["hash"], return_inverse=True)
    total = np.zeros(len(hashes), LINE)
    total["hash"] = hashes
    np.add.at(total["count"], place, lines["count"])
    return total
