"""Records -> texts as every later step sees them: named, cleaned, redacted. What `python -m pipeline read` shows.

Records -> found (ids, nulls apart) -> gathered into batches of some 16 MB, across small files
    -> prepared (cleaned, redacted)
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import BuildConfig, CleanConfig, RedactConfig, SourceConfig
from pipeline.readers import Fields, Limits, Records
from pipeline.redaction import chosen_rules, redact
from pipeline.transforms import clean

SCHEMA = pa.schema([("id", pa.large_string()), ("text", pa.large_string()), ("date", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Texts in the order given. `changed`: bool (n,), by cleaning; `redacted`: replacements by rule."""

    text: pa.LargeStringArray
    changed: np.ndarray
    redacted: Counter[str]


def file_of(file_name: str, member: str) -> str:
    """What a file inside an archive is called: an archive counts as a folder."""
    return f"{file_name}/{member}" if member else file_name


def fields_of(config: BuildConfig, source: SourceConfig) -> Fields:
    """What is read of a source's records: dates only where they decide something."""
    dated = config.dedup.keep == "newest"
    return Fields(text=source.text, id=source.id, date=source.date if dated else None, dated=dated)


def identities(records: Records, file_name: str) -> pa.ChunkedArray:
    """Ids as the records give them; where there is none, the file's name and the record's place in it, "a.jsonl#17"."""
    ids = records.documents["id"]
    if not ids.null_count:
        return ids
    place = pc.binary_join_element_wise(
        pa.scalar(file_of(file_name, records.member), pa.large_string()),
        pc.cast(records.documents["record"], pa.large_string()),
        pa.scalar("#", pa.large_string()),
    )
    return pc.coalesce(ids, place)


def found(records: Records, file_name: str) -> tuple[pa.Table, int]:
    """The batch's documents by SCHEMA, named by `identities`, and how many had null for a text."""
    text = records.documents["text"]
    columns = {"id": identities(records, file_name), "text": text, "date": records.documents["date"]}
    table = pa.table(columns, schema=SCHEMA)
    return (table.filter(pc.is_valid(text)), text.null_count) if text.null_count else (table, 0)


def gathered(tables: Iterable[pa.Table], batch_bytes: int = Limits().batch_bytes) -> Iterator[pa.Table]:
    """The same documents in batches of about `batch_bytes`, columns in one piece; none is empty.

    A folder of pages, a document each, would else cost a millisecond of fixed work for every kilobyte of text.
    """
    waiting: list[pa.Table] = []
    num_bytes = 0
    for table in tables:
        if table.num_rows:
            waiting.append(table)
            num_bytes += table.nbytes
        if num_bytes >= batch_bytes:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, num_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def num_bytes(text: pa.LargeStringArray) -> int:
    """UTF-8 bytes of all texts, by where the last ends: no document is counted apart."""
    offsets = np.frombuffer(text.buffers()[1], np.int64)
    return int(offsets[text.offset + len(text)] - offsets[text.offset])


def prepared(text: pa.LargeStringArray, cleaning: CleanConfig, redaction: RedactConfig) -> Prepared:
    """Texts cleaned, then redacted."""
    cleaned = clean(text, cleaning)
    redacted = redact(cleaned.text, chosen_rules(redaction))
    return Prepared(text=redacted.text, changed=cleaned.changed, redacted=redacted.counts)
