"""CSV and TSV: a header, then one row a record.

Lines     end at LF, CR or CR LF and nowhere else; inside quotes line ends are text. A blank line is no record.
Columns   are named by the first row. The delimiter is the candidate (, ; tab |) that stands most often in it outside
          quotes; tab first in a file named .tsv; Excel's `sep=;` line is obeyed. Text, id and date are columns by
          their exact names; a name written twice means the first one.
Text      every field is text; an empty one is empty, there is no null. A file without the text column is one bad record
          that counts the rows and names the columns.
Id        as it is written; an empty field is no id, and the caller names the record by place.
Bad rows  a row with more or fewer fields than the header (its columns cannot be trusted), a row with bytes that are not
          UTF-8, a row over the limit: one bad record each, the neighbours stay.
Quotes    a quote that never closes would swallow the rest of the file: the line that opens it is one bad record, and
          reading goes on at the next line. So is one that is closed only by a quote of a later row, which text follows
          where a delimiter should. Going back is bounded: beyond MAX_REWINDS times the record limit, the rest
          of the file is one bad record.

Rows are split by the standard library's csv.
"""

import csv
import itertools
import re
from collections import deque
from collections.abc import Iterator

from pipeline.readers import dates
from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source

DELIMITERS = ",;\t|"
MAX_REWINDS = 4
_EXCEL_HINT = re.compile(rb'"?sep=(.)"?\r?\n?')
_QUOTED = re.compile(r'"[^"]*"')
_BAD_BYTES = re.compile("[\udc80-\udcff]")


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """The table's rows in order, in batches of about `limits.batch_bytes`."""
    csv.field_size_limit(max(csv.field_size_limit(), limits.max_record_bytes))
    lines = _Lines(source, limits)
    batch = Batch(limits)
    table = _Table(source.name, lines, fields, limits)
    for _ in table.rows(batch):
        if batch.full:
            yield batch.take()
    if table.header is not None and table.text is None and table.num_rows:
        names = ", ".join(table.header)[:500]
        detail = f'there is no column "{fields.text}"; columns: {names}'
        batch.bad.append(_bad("all rows", "missing_field", detail, 0, b"", num_records=table.num_rows))
    if (damage := lines.damage) is not None:
        place = f"byte {lines.num_bytes} of the decompressed stream"
        batch.bad.append(_bad(place, damage.reason, damage.detail, lines.num_open_bytes, lines.open_head))
    if batch:
        yield batch.take()


def _bad(place: str, reason: str, detail: str, num_bytes: int, first_bytes: bytes, num_records: int = 1) -> BadRecord:
    return BadRecord(
        place=place, reason=reason, detail=detail, num_bytes=num_bytes, first_bytes=first_bytes, num_records=num_records
    )


class _TooLong(Exception):
    """The row being read is longer than the limit."""


class _Lines:
    """The file's physical lines, with their ends, as csv asks for them; can be taken back to try again from there."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._limit = limits.max_record_bytes
        self.num_bytes = 0
        self.damage: DamagedStream | None = None
        self.open_head, self.num_open_bytes = b"", 0
        self._again: deque[bytes] = deque()
        self._fresh = self._read(source)
        self.number = 0  # of the line given last
        self.ended = False
        self.row: list[bytes] = []  # the lines of the row being read
        self._row_bytes = 0

    def _read(self, source: Source) -> Iterator[bytes]:
        rest = b""
        parts: list[bytes] = []  # of a line longer than a piece
        num_open = 0

        def close(line: bytes) -> bytes:
            nonlocal num_open
            whole = b"".join([*parts, line]) if parts else line
            parts.clear()
            num_open = 0
            return whole

        try:
            for piece in itertools.chain(source.utf8_pieces(), [b""]):
                self.num_bytes += len(piece)
                block = rest + piece
                rest = b""
                if piece and block.endswith(b"\r"):  # its LF may come with the next piece
                    block, rest = block[:-1], b"\r"
                lines = block.splitlines(keepends=True)
                last = lines.pop() if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
                for line in lines:
                    yield close(line)
                if last:
                    num_open += len(last)
                    # Over the limit only the length counts, so what is held stops growing there.
                    if num_open - len(last) <= self._limit:
                        parts.append(last)
                self.open_head, self.num_open_bytes = b"".join(parts[:1])[:200], num_open
        except DamagedStream as damage:
            self.damage = damage
            return
        if parts or rest:
            yield close(rest)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._fresh, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self.number += 1
        self.row.append(line)
        self._row_bytes += len(line)
        if self._row_bytes > self._limit:
            raise _TooLong
        return line.decode("utf-8", "surrogateescape")

    def begin_row(self) -> None:
        self.row, self._row_bytes, self.ended = [], 0, False

    @property
    def num_row_bytes(self) -> int:
        return self._row_bytes

    def take_back_all_but_first(self) -> int:
        """The row's further lines will be given again; their number of bytes."""
        back = self.row[1:]
        self._again.extendleft(reversed(back))
        self.number -= len(back)
        return self._row_bytes - len(self.row[0])

    def skip_to_end(self) -> int:
        """Leave the rest behind; its number of bytes."""
        self._again.clear()
        return sum(map(len, self._fresh))


class _Table:
    """Rows -> documents and bad records, by the rules above."""

    def __init__(self, name: str, lines: _Lines, fields: Fields, limits: Limits) -> None:
        self._is_tsv = ".tsv" in name.lower()
        self._lines, self._fields, self._limits = lines, fields, limits
        self._delimiter = ""
        self._num_rewound = 0
        self.header: list[str] | None = None
        self.text: int | None = None
        self._id: int | None = None
        self.num_rows = 0

    def rows(self, batch: Batch) -> Iterator[None]:
        """Read all rows into `batch`; control returns after each."""
        lines = self._lines
        reader = None
        while True:
            lines.begin_row()
            try:
                if reader is None:
                    reader = self._reader()
                if reader is None:
                    return
                row = next(reader)
            except StopIteration:
                return
            except _TooLong:
                reader = None
                row = None
            except csv.Error as error:
                self._refuse(batch, "invalid_row", str(error))
                reader = None
                yield
                continue
            if row is None or (lines.ended and lines.row):
                if lines.damage is not None and lines.ended:
                    # The row that the damage cuts is part of it.
                    lines.open_head, lines.num_open_bytes = lines.row[0], lines.num_row_bytes + lines.num_open_bytes
                    return
                reader = None
                if not self._unclosed(batch):
                    return
            elif len(lines.row) > 1 and not self._is_strict(row):
                reader = None
                if not self._unclosed(batch):
                    return
            elif any(field.strip() for field in row) or len(row) > 1:
                self._row(row, batch)
            yield

    def _reader(self) -> Iterator[list[str]] | None:
        lines: Iterator[str] = self._lines
        while not self._delimiter:
            first = next(self._lines, None)
            if first is None:
                return None
            if hint := _EXCEL_HINT.fullmatch(self._lines.row[0]):
                self._delimiter = hint[1].decode("latin-1")
            elif first.strip():
                plain = _QUOTED.sub("", first)
                order = "\t,;|" if self._is_tsv else DELIMITERS
                self._delimiter = max(order, key=plain.count)
                lines = itertools.chain([first], self._lines)
                break
            self._lines.begin_row()
        return csv.reader(lines, delimiter=self._delimiter)

    def _unclosed(self, batch: Batch) -> bool:
        """The row never ends, or is too long: quarantine its first line and go back to the next. False at the end."""
        lines = self._lines
        first = lines.row[0]
        place = f"line {lines.number - len(lines.row) + 1}"
        if len(lines.row) == 1 and len(first) > self._limits.max_record_bytes:
            detail = f"the line has more than {self._limits.max_record_bytes} bytes"
            batch.bad.append(_bad(place, "record_too_long", detail, len(first), first))
            return True
        self._num_rewound += lines.num_row_bytes
        if self._num_rewound > MAX_REWINDS * self._limits.max_record_bytes and len(lines.row) > 1:
            num_bytes = lines.num_row_bytes + lines.skip_to_end()
            detail = "quotes that never close, too many to look for rows after each of them"
            batch.bad.append(_bad(f"{place} to the end", "unclosed_quote", detail, num_bytes, first))
            return False
        lines.take_back_all_but_first()
        detail = "the quote opened here never closes, or inside a later row"
        batch.bad.append(_bad(place, "unclosed_quote", detail, len(first), first))
        return True

    def _is_strict(self, row: list[str]) -> bool:
        """Whether a row of several lines is one by the rules: its quotes end at a delimiter or at the row's end."""
        lines = (line.decode("utf-8", "surrogateescape") for line in self._lines.row)
        try:
            return next(csv.reader(lines, delimiter=self._delimiter, strict=True)) == row
        except (csv.Error, StopIteration):
            return False

    def _refuse(self, batch: Batch, reason: str, detail: str) -> None:
        lines = self._lines
        first_line = lines.number - len(lines.row) + 1
        head = lines.row[0] if lines.row else b""
        batch.bad.append(_bad(f"line {first_line}", reason, detail, lines.num_row_bytes, head))

    def _row(self, row: list[str], batch: Batch) -> None:
        if self.header is None:
            self.header = [_BAD_BYTES.sub("\ufffd", name) for name in row]
            self.text = self.header.index(self._fields.text) if self._fields.text in self.header else None
            self._id = self.header.index(self._fields.id) if self._fields.id in self.header else None
            self._date = self.header.index(self._fields.date) if self._fields.date in self.header else None
            return
        if self.text is None:
            self.num_rows += 1
            return
        if len(row) != len(self.header):
            self._refuse(batch, "wrong_columns", f"{len(row)} fields, the header has {len(self.header)}")
            return
        if any(map(_BAD_BYTES.search, row)):
            self._refuse(batch, "invalid_utf8", "the row's bytes are not UTF-8")
            return
        identity = row[self._id] if self._id is not None else ""
        date = dates.seconds(row[self._date]) if self._date is not None else None
        batch.add_one(identity or None, self._lines.number - len(self._lines.row) + 1, row[self.text], date)
