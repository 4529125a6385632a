"""Records that could not be read: kept aside with file, place, reason and first bytes, so that none is lost in silence.

bad records -> Quarantine -> .build/read/<key>.quarantine.parquet -> publish -> <root>/quarantine/<version>/
"""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from pipeline.documents import open_parquet
from pipeline.readers import BadRecord

SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("place", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("num_records", pa.int64()),
        ("num_bytes", pa.int64()),
        ("first_bytes", pa.binary()),
    ]
)


class Quarantine:
    """Writes a unit's bad records as they come, so that a file of nothing else takes no memory; no record, no file."""

    def __init__(self, url: str) -> None:
        self.num_rows = 0
        self._url = url
        self._open = ExitStack()
        self._writer: pq.ParquetWriter | None = None

    def add(self, source: str, file: str, records: Sequence[BadRecord]) -> None:
        """Write bad records of one file."""
        if not records:
            return
        if self._writer is None:
            stream = self._open.enter_context(storage.atomic_writer(self._url))
            self._writer = self._open.enter_context(pq.ParquetWriter(stream, SCHEMA, compression="zstd"))
        rows = [{**dataclasses.asdict(bad), "source": source, "file": file} for bad in records]
        self._writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
        self.num_rows += len(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An error goes on to the atomic writer, which then leaves no file.
        self._open.__exit__(kind, error, traceback)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """What lies under `<root>/quarantine/<version>/`."""

    folder: str
    num_records: int
    first: tuple[dict[str, Any], ...]
    """The first rows, for the report."""


def publish(root: str, version: str, urls: Sequence[tuple[str, str]], *, num_first: int) -> Published:
    """Copy units' quarantine files to their place, a file a unit that has one, named by source and number.

    Files that an earlier, unfinished run of this version left there go.

    Args:
        root: the data set's.
        version: its version.
        urls: (source, url) of each file.
        num_first: how many rows to give back.
    """
    folder = storage.join(root, "quarantine", version)
    written: list[str] = []
    first: list[dict[str, Any]] = []
    num_records = 0
    for number, (source, url) in enumerate(urls):
        written.append(storage.join(folder, f"{source}-{number:06d}.parquet"))
        storage.write_bytes(written[-1], storage.read_bytes(url))
        with open_parquet(url) as file:
            for batch in file.iter_batches():
                num_records += sum(batch["num_records"].to_pylist())
                first += batch.slice(0, max(0, num_first - len(first))).to_pylist()
    for stale in storage_urls(folder):
        if stale not in written:
            storage.delete(stale)
    return Published(folder=folder, num_records=num_records, first=tuple(first))


def storage_urls(folder: str) -> list[str]:
    """Urls of the objects in a folder that may not exist."""
    try:
        return [info.url for info in storage.list_objects(folder)]
    except FileNotFoundError:
        return []
