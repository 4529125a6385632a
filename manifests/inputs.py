"""The inputs table: every input file of a version, and one digest over what they hold."""

import pyarrow as pa

from manifests.canonical import fingerprint
from manifests.tables import read_table, write_table

INPUTS_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),  # relative to the source's base: stable when the corpus moves
        pa.field("path", pa.string(), nullable=False),  # where it was read
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("identity", pa.string(), nullable=False),  # "sha256:..." of the file's bytes
        pa.field("num_records", pa.int64(), nullable=False),
    ]
)


def inputs_digest(table: pa.Table) -> str:
    """The fingerprint of the sorted rows [source, name, num_bytes, identity]: moving the corpus does not change it."""
    columns = [table.column(name).to_pylist() for name in ("source", "name", "num_bytes", "identity")]
    return fingerprint(sorted([list(row) for row in zip(*columns, strict=True)]))


def write_inputs(url: str, table: pa.Table) -> None:
    """Writes the table, whole or not at all, its rows sorted by source and name."""
    write_table(url, table, INPUTS_SCHEMA, sort_by=["source", "name"])


def read_inputs(url: str) -> pa.Table:
    """The table in INPUTS_SCHEMA; TableError where the file holds another."""
    return read_table(url, INPUTS_SCHEMA)
