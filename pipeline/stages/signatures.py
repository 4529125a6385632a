"""What the next version compares its documents with: `<root>/signatures/<version>/*.parquet`, a file a group.

    source, id    large_string
    num_bytes     int64
    content_hash  binary(16)
    text_hash     uint64
    signature     binary(4 * bands * rows)   of the core, where the text holds template lines; null where it is short

One row a kept document. So 480 bytes a document beside the shards, and no old text is read again. Beside them lie the
version's template lines, `templates.parquet` (templates.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests import storage
from manifests.errors import UserError
from manifests.manifest import Dataset, Manifest, load, manifest_url
from pipeline.config import NearConfig
from pipeline.documents import DocumentsFile, open_parquet
from pipeline.runtime import Summary
from pipeline.stages import templates
from pipeline.stages.candidates import read_cores
from pipeline.stages.exact import Group
from pipeline.stages.outcome import kept_rows

GROUP_ROWS = 65_536
"""Of a row group: 30 MB of signatures."""
COLUMNS = ["source", "id", "num_bytes", "content_hash", "text_hash", "signature"]


@dataclass(frozen=True, kw_only=True)
class SignaturesTask:
    """Write the signatures of one group."""

    group: Group
    dropped_folder: str
    cores_url: str | None
    num_permutations: int
    signatures_url: str


def write_signatures(task: SignaturesTask) -> Summary:
    """Write COLUMNS of every kept document."""
    schema = pa.schema(
        [
            ("source", pa.large_string()),
            ("id", pa.large_string()),
            ("num_bytes", pa.int64()),
            ("content_hash", pa.binary(16)),
            ("text_hash", pa.uint64()),
            ("signature", pa.binary(4 * task.num_permutations)),
        ]
    )
    num_documents = 0
    with (
        storage.atomic_writer(task.signatures_url) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=["source"]) as writer,
    ):
        for file in task.group.files:
            for table in _kept(file, task):
                source = pa.repeat(pa.scalar(file.source, pa.large_string()), table.num_rows)
                table = table.add_column(0, pa.field("source", pa.large_string()), source).select(COLUMNS)
                writer.write_table(table.cast(schema))
                num_documents += table.num_rows
    return {"num_documents": num_documents, "files": [task.signatures_url]}


def _kept(file: DocumentsFile, task: SignaturesTask) -> Iterator[pa.Table]:
    """Kept documents of one file without their source, some GROUP_ROWS at a time."""
    kept, start, waiting = kept_rows(task.dropped_folder, file), 0, []
    with open_parquet(file.url) as parquet:
        for number in range(parquet.num_row_groups):
            table = parquet.read_row_group(number, columns=COLUMNS[1:], use_threads=False)
            first, end = file.first_document + start, file.first_document + start + table.num_rows
            own = kept[start : start + table.num_rows]
            start += table.num_rows
            if own.any():
                waiting.append(_with_cores(table, first, end, task.cores_url).filter(pa.array(own)))
            if sum(table.num_rows for table in waiting) >= GROUP_ROWS:
                yield pa.concat_tables(waiting)
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _with_cores(table: pa.Table, first: int, end: int, cores_url: str | None) -> pa.Table:
    """`table` of the documents first..end - 1, with the signature of the core where there is one."""
    if cores_url is None:
        return table
    with open_parquet(cores_url) as parquet:
        cores = read_cores(parquet, first, end)
    place = np.arange(table.num_rows)
    place[cores["document"].to_numpy() - first] = table.num_rows + np.arange(cores.num_rows)
    both = pa.concat_arrays([*table["signature"].chunks, *cores["signature"].chunks])
    return table.set_column(table.schema.get_field_index("signature"), "signature", both.take(pa.array(place)))


def signatures_url(root: str, version: str, group: int) -> str:
    """Where a group's signatures lie."""
    return storage.join(root, "signatures", version, f"{group:06d}.parquet")


def templates_url(root: str, version: str) -> str:
    """Where a version's template lines lie, those of the versions it continues among them."""
    return storage.join(root, "signatures", version, templates.FILE)


def base_templates(base: Dataset) -> str:
    """Where the base version's lie. UserError where they do not: forms it knew would be taken for likeness."""
    url = templates_url(base.root, base.manifest.version)
    if not storage.exists(url):
        raise UserError(
            f"base: the template lines of {base.manifest.version} are not at {url} (builds of older code left none):"
            " put the file back, or build without a base"
        )
    return url


def versions_of(base: Dataset) -> Iterator[Manifest]:
    """The base version and all that it continues, newest first. UserError where one is not there any more."""
    manifest = base.manifest
    while True:
        yield manifest
        if manifest.parent is None:
            return
        url = manifest_url(base.root, manifest.parent.version)
        try:
            parent = load(url).manifest
        except FileNotFoundError:
            raise UserError(
                f"base: {manifest.version} continues {manifest.parent.version}, whose manifest is not at {url}: without"
                " its signatures new documents cannot be compared; put it back, or build without a base"
            ) from None
        if parent.digest != manifest.parent.digest:
            raise UserError(
                f"base: {url} has digest {parent.digest}, but {manifest.version} continues {manifest.parent.digest}:"
                " put the right one back, or build without a base"
            )
        manifest = parent


def base_files(base: Dataset, near: NearConfig, first_document: int, first_group: int) -> tuple[DocumentsFile, ...]:
    """The signature files of the base version, numbered on as documents and groups of the build.

    Raises UserError where they are missing, or made with other settings than this build's: such cannot be compared.
    """
    files: list[DocumentsFile] = []
    for manifest in versions_of(base):
        settings = manifest.config.get("dedup", {}).get("near", {})
        for key in ("ngram", "bands", "rows"):
            if near.enabled and settings.get(key) != getattr(near, key):
                raise UserError(
                    f"dedup.near.{key} is {getattr(near, key)}, but {manifest.version}, which base continues, was built"
                    f" with {settings.get(key)}: signatures of the two cannot be compared; set it as there"
                )
        folder = storage.join(base.root, "signatures", manifest.version)
        try:
            found_urls = [info.url for info in storage.list_objects(folder)]
            urls = [url for url in found_urls if storage.basename(url) != templates.FILE]
        except FileNotFoundError:
            urls = []
        found = sum(split.num_documents for split in manifest.splits.values())
        if not urls and found:
            raise UserError(
                f"base: there are no signatures of {manifest.version} in {folder}: put the folder back, or build"
                " without a base"
            )
        for url in urls:
            with open_parquet(url) as parquet:
                num_rows = parquet.metadata.num_rows
            if num_rows:
                files.append(
                    DocumentsFile(
                        key=f"{manifest.digest}/{storage.basename(url)}",
                        url=url,
                        source="",
                        priority=0,
                        num_documents=num_rows,
                        first_document=first_document,
                        group=first_group + len(files),
                    )
                )
                first_document += num_rows
    return tuple(files)
