"""Parquet tables of a fixed schema, on any storage."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from manifests.errors import UserError


class TableError(UserError):
    """A file that does not hold the table it should."""


def read_table(url: str, schema: pa.Schema, filters: list[tuple[str, str, Any]] | None = None) -> pa.Table:
    """The rows that pass `filters`; of row groups whose statistics rule them out, nothing is read.

    Raises TableError where the file is no Parquet or has other columns, FileNotFoundError where there is none.
    """
    with storage.open_ranged(url) as stream:
        try:
            # Arrow's own threads, asked for from several of ours, end one process in 20 by SIGABRT when it exits.
            table = pq.read_table(stream, filters=filters, use_threads=False)
        except pa.ArrowException as error:
            raise TableError(f"{url} is no Parquet file that can be read: {error}; write it again") from error
    if table.schema.names != schema.names:
        raise TableError(f"{url} has the columns {table.schema.names}, not {schema.names}: it is another table")
    try:
        return table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise TableError(f"{url} has columns of other types than {schema.names} need: {error}") from error


def write_table(url: str, table: pa.Table, schema: pa.Schema, *, sort_by: list[str], **options: Any) -> None:
    """Writes `table`, whole or not at all, sorted: the same rows, in any order, give the same bytes."""
    table = table.cast(schema).sort_by([(name, "ascending") for name in sort_by])
    with storage.atomic_writer(url) as stream:
        pq.write_table(table, stream, compression="zstd", **options)
