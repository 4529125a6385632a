"""Records on their way from many tasks to many others, through storage: written sorted, read by range.

    N tasks --write_run--> N files, each sorted into P parts --read_part, merge_part--> P tasks

A file is an index of P + 1 record counts (int64, cumulative) and then the records, so that any task finds its part with
two range reads and no driver holds an index. What is written is read once, in one piece a file: N x P reads in all, of
(volume / N / P) bytes. Records are numpy structures of fixed width; their whole order is by the fields named in
`order`, so a merge does not depend on which file a record came from.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from manifests import storage
from pipeline.reads import ByteRange, read_in_pieces, read_many
from pipeline.scratch_disk import scratch_folder, writing_to_scratch

MERGE_RECORDS = 4_000_000
"""Records a merge holds at once, over all its files: 100 MB of band records, and three times that while they are sorted
and paired.
"""
WRITE_RECORDS = 1_000_000


def write_run(url: str, records: np.ndarray, part: np.ndarray, num_parts: int, order: Sequence[str]) -> None:
    """Write `records` in the order of the fields named. `part` int64 (n,), each below num_parts, goes up as they do."""
    rows = _sorted_rows(records, order)
    assert np.all(np.diff(part[rows]) >= 0), "parts are ranges of the first field"
    index = np.zeros(num_parts + 1, "<i8")
    np.cumsum(np.bincount(part, minlength=num_parts), out=index[1:])
    with storage.atomic_writer(url) as stream:
        stream.write(index.tobytes())
        for start in range(0, len(rows), WRITE_RECORDS):
            stream.write(records[rows[start : start + WRITE_RECORDS]].view(np.uint8).data)


def _sorted_rows(records: np.ndarray, order: Sequence[str]) -> np.ndarray:
    """Rows of `records` in order. One field is sorted five times as fast as several, and ties in it are rare."""
    first = np.ascontiguousarray(records[order[0]])
    rows = np.argsort(first)
    ordered = first[rows]
    equal = ordered[1:] == ordered[:-1]
    tied = np.zeros(len(rows), np.bool_)
    tied[1:] |= equal
    tied[:-1] |= equal
    ties = rows[tied]
    rows[tied] = ties[np.lexsort([records[name][ties] for name in reversed(order)])]
    return rows


@dataclass
class _Part:
    """One file's records of one part, taken from the front."""

    url: str
    start: int
    """The byte where the first of those left begins."""
    left: int

    def take(self, num_records: int, dtype: np.dtype) -> ByteRange:
        num_records = min(num_records, self.left)
        start = self.start
        self.start += num_records * dtype.itemsize
        self.left -= num_records
        return ByteRange(self.url, start, self.start - start)


def _parts(urls: Sequence[str], dtype: np.dtype, part: int, num_parts: int) -> list[_Part]:
    indexes = read_many([ByteRange(url, 8 * part, 16) for url in urls])
    parts = []
    for url, index in zip(urls, indexes, strict=True):
        first, end = np.frombuffer(index, "<i8").tolist()
        parts.append(_Part(url, 8 * (num_parts + 1) + first * dtype.itemsize, end - first))
    return parts


def read_parts(urls: Sequence[str], dtype: np.dtype, part: int, num_parts: int) -> Iterator[np.ndarray]:
    """The records of one part, an array a file, each in order."""
    reads = [one.take(one.left, dtype) for one in _parts(urls, dtype, part, num_parts)]
    for data in read_many(reads):
        yield np.frombuffer(data, dtype)


def read_part(urls: Sequence[str], dtype: np.dtype, part: int, num_parts: int, order: Sequence[str]) -> np.ndarray:
    """All records of one part, from all files, in order."""
    chunks = [chunk for chunk in read_parts(urls, dtype, part, num_parts) if chunk.size]
    records = np.concatenate([np.empty(0, dtype), *chunks])
    if len(chunks) <= 1:
        return records
    return records[_sorted_rows(records, order)]


def merge_part(
    urls: Sequence[str],
    dtype: np.dtype,
    part: int,
    num_parts: int,
    order: Sequence[str],
) -> Iterator[np.ndarray]:
    """The same in pieces of bounded size: a part may be larger than memory, and so may a stretch of equal first fields.

    Each step holds the head of every file and gives what is certain: records not above the least of the heads' ends.
    """
    with ExitStack() as open_files:
        sources = [source for source in _parts(urls, dtype, part, num_parts) if source.left]
        head_size = max(1, MERGE_RECORDS // max(1, len(sources)))
        if sources and storage.local_path(urls[0]) is None and max(source.left for source in sources) > head_size:
            sources = open_files.enter_context(_on_disk(sources, dtype))
        heads = _heads(sources, head_size, dtype)
        while any(head.size for head in heads):
            ends = [head[-1:] for head, source in zip(heads, sources, strict=True) if source.left]
            if ends:
                last = np.concatenate(ends)
                bound = last[np.lexsort([last[name] for name in reversed(order)])[0]]
                cuts = [_num_up_to(head, bound, order) for head in heads]
            else:
                cuts = [len(head) for head in heads]
            ready = np.concatenate([head[:cut] for head, cut in zip(heads, cuts, strict=True)])
            yield ready[_sorted_rows(ready, order)]
            heads = [head[cut:] for head, cut in zip(heads, cuts, strict=True)]
            empty = [i for i, head in enumerate(heads) if not head.size]
            for i, head in zip(empty, _heads([sources[i] for i in empty], head_size, dtype), strict=True):
                heads[i] = head


def _heads(sources: Sequence[_Part], num_records: int, dtype: np.dtype) -> list[np.ndarray]:
    reads = read_many([source.take(num_records, dtype) for source in sources])
    return [np.frombuffer(data, dtype) for data in reads]


@contextmanager
def _on_disk(sources: Sequence[_Part], dtype: np.dtype) -> Iterator[list[_Part]]:
    """The same records in a file of the local disk: heads are small, and a store is asked for each part once."""
    with scratch_folder() as folder:
        path = folder / "records"
        starts = accumulate((source.left * dtype.itemsize for source in sources), initial=0)
        copies = [_Part(str(path), start, source.left) for source, start in zip(sources, starts, strict=False)]
        with writing_to_scratch(), path.open("wb") as file:
            for piece in read_in_pieces([source.take(source.left, dtype) for source in sources]):
                file.write(piece.data)
        yield copies


def _num_up_to(head: np.ndarray, bound: np.void, order: Sequence[str]) -> int:
    """How many of the sorted `head` are not above `bound`."""
    start, end = 0, len(head)
    for name in order:
        column = head[name][start:end]
        low = int(np.searchsorted(column, bound[name], "left"))
        end = start + int(np.searchsorted(column, bound[name], "right"))
        start += low
    return end
