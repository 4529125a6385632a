"""Parquet: one row, one record, read by small batches of rows so that no row group, however large, is held whole.

Text      string, large_string, string_view and dictionaries of them; binary where it is UTF-8 (a row that is not is one
          bad record: invalid_utf8; the string types are checked the same way, since a file may say string and hold
          anything). null stays null, and a column of type null is all null. Any other type (numbers, lists, structs,
          maps) makes every row of the file wrong_type, as one bad record that counts them.
Id        any scalar, as Arrow casts it to text (10 -> "10", 1.50 -> "1.50", a timestamp -> "2024-03-05
          10:15:00.000000"); null, a list or a struct: no id.
Date      a date or timestamp, of UTC where it has no zone, or any scalar that spells one (dates.py).
Fields    a column spelled like the whole path goes first; else the path leads through structs; a null struct is null
          text. A file without the text column, but with rows, is one bad record that counts them and names the columns.
Damage    costs the rest of its row group: one bad record that counts the rows; those before it and the other row groups
          are read. A file whose footer cannot be read is one bad record; so is one of 0 bytes, which a writer left
          behind.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.readers import dates
from pipeline.readers.compression import READ_BYTES, DamagedStream
from pipeline.readers.parts import RowGroupsPart
from pipeline.readers.records import BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source

# Rows decoded at a time: enough that Arrow's cost a batch (0.1 ms) does not show at 300-byte tickets, few enough that
# rows of a megabyte each stay within a gigabyte.
MAX_BATCH_ROWS = 1024


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """The file's rows in order, in batches of about `limits.batch_bytes`."""
    batch = Batch(limits)
    try:
        with source.seekable() as stream:
            with _faults("the whole file"):
                # Buffered: otherwise a column's whole share of a row group is fetched at once, gigabytes in some files.
                file = pq.ParquetFile(stream, pre_buffer=False, buffer_size=READ_BYTES)
            assert isinstance(source.part, RowGroupsPart | None)
            yield from _rows(file, fields, limits, batch, source.part)
    except DamagedStream as damage:
        batch.bad.append(_bad("the whole file", damage.reason, damage.detail, source.head))
    except _Damaged as damage:
        batch.bad.append(damage.bad)
    if batch:
        yield batch.take()


class _Damaged(Exception):
    def __init__(self, bad: BadRecord) -> None:
        super().__init__(bad)
        self.bad = bad


@contextlib.contextmanager
def _faults(place: str, num_records: int = 1) -> Iterator[None]:
    """What Arrow says of a file's content becomes a bad record; the disk's trouble (an OSError with errno) passes."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        first_line = str(error).partition("\n")[0]
        raise _Damaged(_bad(place, "damaged_parquet", first_line, b"", num_records)) from None


def _bad(
    place: str, reason: str, detail: str, first_bytes: bytes = b"", num_records: int = 1, num_bytes: int = 0
) -> BadRecord:
    return BadRecord(
        place=place, reason=reason, detail=detail, num_bytes=num_bytes, first_bytes=first_bytes, num_records=num_records
    )


def has_text(file: pq.ParquetFile, fields: Fields) -> bool:
    """Whether the file has the text column, with text in it."""
    found = _type_at(file.schema_arrow, fields.text)
    return found is not None and _holds_text(found)


def _rows(
    file: pq.ParquetFile, fields: Fields, limits: Limits, batch: Batch, part: RowGroupsPart | None
) -> Iterator[Records]:
    num_rows = file.metadata.num_rows
    if not num_rows:
        return
    schema = file.schema_arrow
    text_type = _type_at(schema, fields.text)
    everything = f"rows 1 to {num_rows}"
    if text_type is None:
        names = ", ".join(schema.names) or "none"
        batch.bad.append(
            _bad(
                everything,
                "missing_field",
                f'there is no column "{fields.text}"; columns: {names}',
                num_records=num_rows,
            )
        )
        return
    if not _holds_text(text_type):
        batch.bad.append(
            _bad(
                everything, "wrong_type", f'"{fields.text}" is of type {text_type}, expected text', num_records=num_rows
            )
        )
        return
    id_path, date_path = (
        path if path is not None and _type_at(schema, path) is not None else None for path in (fields.id, fields.date)
    )
    columns = [fields.text, *(path for path in (id_path, date_path) if path is not None)]
    batch_rows = _batch_rows(file, limits)
    done = 0 if part is None else part.first_record - 1
    groups = range(file.num_row_groups) if part is None else range(part.first_group, part.end_group)
    for group in groups:
        end = done + file.metadata.row_group(group).num_rows
        try:
            for rows in _group_rows(file, group, batch_rows, columns, done, end):
                ids = pa.nulls(len(rows), pa.large_string()) if id_path is None else _ids(_column(rows, id_path))
                numbers = pa.array(np.arange(done + 1, done + 1 + len(rows)))
                when = None if date_path is None else _dates(_column(rows, date_path))
                _add(ids, numbers, _column(rows, fields.text), when, limits, batch)
                done += len(rows)
                if batch.full:
                    yield batch.take()
        except _Damaged as damage:
            batch.bad.append(damage.bad)
            done = end


def _group_rows(
    file: pq.ParquetFile, group: int, batch_rows: int, columns: list[str], done: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The batches of row group `group`, which holds the file's rows `done` (from 0) up to `end`."""
    with _faults(f"rows {done + 1} to {end}", end - done):
        batches = file.iter_batches(batch_rows, row_groups=[group], columns=columns, use_threads=False)
    while done < end:
        with _faults(f"rows {done + 1} to {end}", end - done):
            rows = next(batches, None)
            if rows is None or not len(rows):
                raise pa.ArrowInvalid(f"the footer promises {end} rows up to here, the file holds {done}")
        done += len(rows)
        yield rows


def _batch_rows(file: pq.ParquetFile, limits: Limits) -> int:
    """Rows a batch, so that rows of the average size of the fullest row group make about a batch."""
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    row_bytes = max(group.total_byte_size / max(group.num_rows, 1) for group in groups)
    return max(1, min(MAX_BATCH_ROWS, int(limits.batch_bytes / max(row_bytes, 1))))


def _type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type `path` leads to, None where it leads nowhere."""
    if path in schema.names:
        return schema.field(path).type
    head, dot, rest = path.partition(".")
    if not dot or head not in schema.names:
        return None
    inner = schema.field(head).type
    return _type_at(pa.schema(list(inner)), rest) if pa.types.is_struct(inner) else None


def _column(rows: pa.RecordBatch, path: str) -> pa.Array:
    """The column `path` leads to; null wherever a struct on the way is null."""
    if path in rows.schema.names:
        return rows.column(path)
    head, _, rest = path.partition(".")
    struct = rows.column(head)
    inner = pa.RecordBatch.from_arrays(
        struct.flatten(), schema=pa.schema(list(struct.type))
    )  # flatten() hands nulls down
    return _column(inner, rest)


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_null,
        )
    )


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _add(
    ids: pa.Array, numbers: pa.Array, texts: pa.Array, when: pa.Array | None, limits: Limits, batch: Batch
) -> None:
    raw = _plain(texts).cast(pa.large_binary())
    if (pc.max(pc.binary_length(raw)).as_py() or 0) <= limits.max_record_bytes:
        with contextlib.suppress(pa.ArrowInvalid):  # raised where it is not UTF-8: see below
            batch.add(ids, numbers, raw.cast(pa.large_string()), when)
            return
    # Some row is no text: one by one, so that only it is lost.
    good, decoded = [], []
    for index, (number, value) in enumerate(zip(numbers.to_pylist(), raw.to_pylist(), strict=True)):
        try:
            if value is not None and len(value) > limits.max_record_bytes:
                batch.bad.append(
                    _bad(
                        f"row {number}",
                        "record_too_long",
                        f"the text has {len(value)} bytes",
                        value,
                        num_bytes=len(value),
                    )
                )
                continue
            decoded.append(None if value is None else value.decode())
            good.append(index)
        except UnicodeDecodeError as error:
            detail = f"byte {error.start} of the text: {error.reason}"
            batch.bad.append(_bad(f"row {number}", "invalid_utf8", detail, value, num_bytes=len(value)))
    kept = pa.array(good, pa.int64())
    when = None if when is None else when.take(kept)
    batch.add(ids.take(kept), numbers.take(kept), pa.array(decoded, pa.large_string()), when)


def _ids(column: pa.Array) -> pa.Array:
    column = _plain(column)
    try:
        if pa.types.is_binary_view(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.large_binary())
        if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
            column = column.cast(pa.large_string()).cast(pa.large_binary())
        return column.cast(pa.large_binary()).cast(pa.large_string())  # through binary: that way UTF-8 is checked
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(column), pa.large_string())
    except pa.ArrowInvalid:
        return pa.array(
            [_utf8_or_none(value) for value in column.cast(pa.large_binary()).to_pylist()], pa.large_string()
        )


def _dates(column: pa.Array) -> pa.Int64Array:
    column = _plain(column)
    return dates.of_values(column) if dates.is_of_values(column.type) else dates.of_texts(_ids(column))


def _utf8_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
