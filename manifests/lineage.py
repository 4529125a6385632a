"""Lineage: which document's tokens lie where. One Parquet file a shard, one row a run of tokens."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from manifests.manifest import Dataset, ManifestError
from manifests.tables import read_table, write_table

LINEAGE_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("repeat", pa.int32(), nullable=False),  # 0 for the first copy, where a source's weight makes more
        pa.field("first_example", pa.int64(), nullable=False),
        pa.field("first_token", pa.int64(), nullable=False),  # offset inside that example
        pa.field("num_tokens", pa.int64(), nullable=False),  # EOS included; a run may go on through several examples
        pa.field("document_offset", pa.int64(), nullable=False),  # tokens of the document before this run
        pa.field("ends", pa.bool_(), nullable=False),  # the document's EOS is in this run
    ]
)

# Stored sorted by document, so that a row group's minimum and maximum tell a search which one to read. Smaller groups
# cost a longer footer, larger ones more reading: 16,384 rows are 100-300 kB.
_ROW_GROUP_ROWS = 1 << 14
_PLACE_ORDER = [("first_example", "ascending"), ("first_token", "ascending")]
# A search opens one small file a shard: on S3 it waits for the network, not for a core.
_SEARCH_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One run of a document's tokens: in `shard`, from token `first_token` of `first_example` on, to `last_example`."""

    source: str
    document_id: str
    repeat: int
    split: str
    shard: str
    first_example: int
    last_example: int
    first_token: int
    num_tokens: int
    document_offset: int
    ends: bool


def lineage_path(shard_path: str) -> str:
    """Where the lineage of a shard lies, relative or absolute as the shard is.

    >>> lineage_path("shards/train/v3-000000.tar")
    'lineage/train/v3-000000.parquet'
    """
    head, separator, tail = f"/{shard_path}".rpartition("/shards/")
    if not separator or not tail.endswith(".tar"):
        raise ManifestError(f"shard path {shard_path} is not shards/<split>/<name>.tar: its lineage has no place")
    return f"{head}/lineage/{tail.removesuffix('.tar')}.parquet"[1:]


def write_lineage(url: str, table: pa.Table) -> None:
    """Writes one shard's lineage, whole or not at all; the rows may come in any order."""
    write_table(
        url,
        table,
        LINEAGE_SCHEMA,
        sort_by=["document_id", "source", "first_example", "first_token"],
        row_group_size=_ROW_GROUP_ROWS,
        use_dictionary=["source"],
    )


def read_lineage(url: str) -> pa.Table:
    """One shard's lineage in LINEAGE_SCHEMA, in the order of place: first example, first token."""
    return read_table(url, LINEAGE_SCHEMA).sort_by(_PLACE_ORDER)


def find_document(dataset: Dataset, document_id: str) -> list[Placement]:
    """Every run of the documents with this id, of whichever source, in the order of splits, shards and places.

    Reads of each shard's lineage only the row groups that can hold the id.
    """
    manifest = dataset.manifest
    places = [(name, shard.path) for name, split in manifest.splits.items() for shard in split.shards]

    def search(place: tuple[str, str]) -> list[Placement]:
        split, shard = place
        filters = [("document_id", "=", document_id)]
        table = read_table(dataset.resolve(lineage_path(shard)), LINEAGE_SCHEMA, filters).sort_by(_PLACE_ORDER)
        return [_placement(row, split, shard, manifest.example.seq_len) for row in table.to_pylist()]

    with ThreadPoolExecutor(_SEARCH_THREADS) as threads:
        return [placement for found in threads.map(search, places) for placement in found]


def copies(placements: Iterable[Placement]) -> list[list[Placement]]:
    """The runs of one document id, put together to whole documents: each copy's runs by their offset.

    Two documents of one source may bear one id. A run continues the first copy that reaches just up to it.
    """
    found: list[list[Placement]] = []
    for run in sorted(placements, key=lambda run: (run.source, run.repeat, run.document_offset)):
        for copy in found:
            last = copy[-1]
            follows = not last.ends and last.document_offset + last.num_tokens == run.document_offset
            if follows and (last.source, last.repeat) == (run.source, run.repeat):
                copy.append(run)
                break
        else:
            found.append([run])
    return found


def _placement(row: dict[str, Any], split: str, shard: str, seq_len: int) -> Placement:
    last = row["first_example"] + (row["first_token"] + row["num_tokens"] - 1) // seq_len
    return Placement(split=split, shard=shard, last_example=last, **row)
