"""Records on their way from many tasks to many others, through storage: written sorted, read by range.

    N tasks --write_run--> N files, each sorted into P parts --read_part, merge--> P tasks

A file is an index of P + 1 record counts (int64, cumulative) and then the records, so that any task finds its part with
two range reads and no driver holds an index. What is written is read once, in one piece a file: N x P reads in all, of
(volume / N / P) bytes. Records are numpy structures of fixed width; their whole order is by the fields named in
`order`, so a merge does not depend on which file a record came from.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from manifests import storage

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


class _Part:
    """One file's records of one part, taken from the front."""

    def __init__(self, url: str, dtype: np.dtype, part: int, num_parts: int) -> None:
        self._url, self._dtype = url, dtype
        start, end = np.frombuffer(storage.read_bytes(url, 8 * part, 16), "<i8").tolist()
        self._header = 8 * (num_parts + 1)
        self._next, self._end = start, end

    @property
    def left(self) -> int:
        return self._end - self._next

    def take(self, num_records: int) -> np.ndarray:
        num_records = min(num_records, self.left)
        if not num_records:
            return np.empty(0, self._dtype)
        size = self._dtype.itemsize
        data = storage.read_bytes(self._url, self._header + self._next * size, num_records * size)
        self._next += num_records
        return np.frombuffer(data, self._dtype)


def read_part(urls: Sequence[str], dtype: np.dtype, part: int, num_parts: int, order: Sequence[str]) -> np.ndarray:
    """All records of one part, from all files, in order."""
    chunks = [chunk for url in urls if (chunk := _Part(url, dtype, part, num_parts).take(1 << 62)).size]
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
    sources = [source for url in urls if (source := _Part(url, dtype, part, num_parts)).left]
    head_size = max(1, MERGE_RECORDS // max(1, len(sources)))
    heads = [source.take(head_size) for source in sources]
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
        for i, (head, cut, source) in enumerate(zip(heads, cuts, sources, strict=True)):
            rest = head[cut:]
            heads[i] = rest if rest.size or not source.left else source.take(head_size)


def _num_up_to(head: np.ndarray, bound: np.void, order: Sequence[str]) -> int:
    """How many of the sorted `head` are not above `bound`."""
    start, end = 0, len(head)
    for name in order:
        column = head[name][start:end]
        low = int(np.searchsorted(column, bound[name], "left"))
        end = start + int(np.searchsorted(column, bound[name], "right"))
        start += low
    return end
