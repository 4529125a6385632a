"""JSON lines: one object a line.

Lines     end at byte 0x0A and nowhere else: U+2028, U+2029 and U+0085 are text. CR before it and a missing last one are
          fine. A line of white space is no record. A byte-order mark before any line is skipped (exports glued
          together).
Text      must be a string; null stays null. A missing field, or anything else there, is one bad record, which names the
          fields or the type found. Where a dotted path meets a null on its way, the field is missing; a list there is
          wrong_type.
Id        a string as it is; a number or truth value as Python's json writes it (1 -> "1", 1.0 -> "1.0", true -> "true",
          so the ids 1 and "1" are one spelling); null, absent, list or object: no id, and the caller names the record
          by place.
Date      a string or number, by the rules of dates.py. Whatever else is there, or on the way to it, is no date and
          spoils nothing.
Escapes   half a surrogate pair becomes U+FFFD; halves that follow each other in the right order are one character.
Keys      written twice: the last one counts.
Limits    a longer line is counted and its beginning shown, but never held; nesting beyond the parser's depth (some 990
          levels) is too_deep.
Not judged: bytes inside fields that are not asked for.

Speed: a block of lines is one call of msgspec, which checks the grammar and leaves text and id as they are spelled in
the file; a kernel then unescapes all of them at once into Arrow's memory (kernels/json_strings.py). A block with
anything out of the plain in it (a blank or broken line, a number for a text) takes the careful path, line by line.
"""

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from pipeline.kernels.json_strings import text_array
from pipeline.readers import dates
from pipeline.readers.compression import DamagedStream
from pipeline.readers.json_values import Refused, as_id, as_text, inside, inside_or_none, parsed_object
from pipeline.readers.records import NUM_FIRST_BYTES, SCHEMA, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source

WHITE_SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
_NULL = msgspec.Raw(b"null")


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """The file's records in order, in batches of about `limits.batch_bytes`."""
    parse = Parser(fields, limits)
    batch = Batch(limits)
    number = 1 if source.part is None else source.part.first_record  # of the next line
    lines = _Lines(limits.max_record_bytes)
    try:
        for piece in source.utf8_pieces():
            for block in lines.feed(piece):
                number = parse.block(block, number, batch)
                if batch.full:
                    yield batch.take()
        for block in lines.finish():
            number = parse.block(block, number, batch)
    except DamagedStream as damage:
        # Whole lines before the fault are documents; the line it cuts is part of the damage.
        batch.bad.append(
            BadRecord(
                place=f"byte {lines.num_bytes} of the decompressed stream",
                reason=damage.reason,
                detail=damage.detail,
                num_bytes=lines.num_open_bytes,
                first_bytes=lines.open_head,
            )
        )
    if batch:
        yield batch.take()


class _TooLong(bytes):
    """The beginning of a line over the limit, standing in for it. It decodes as no JSON object: it has no end."""

    num_bytes: int  # the true length of the line

    def __new__(cls, line: bytes, num_bytes: int) -> "_TooLong":
        stand_in = super().__new__(cls, line[:NUM_FIRST_BYTES])
        stand_in.num_bytes = num_bytes
        return stand_in


class _Lines:
    """Pieces of a stream -> blocks: bytes of whole lines with their 0x0A (the last may lack it); or a _TooLong."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._open: list[bytes] = []  # pieces of the line not ended yet; only its beginning once it is too long
        self.num_open_bytes = 0
        self.num_bytes = 0  # fed so far

    @property
    def open_head(self) -> bytes:
        return b"".join(self._open)[:NUM_FIRST_BYTES]

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self.num_bytes += len(piece)
        end = piece.rfind(b"\n") + 1
        if not end:
            self._extend(piece)
            return
        first_end = piece.find(b"\n") + 1
        if self.num_open_bytes + first_end - 1 > self._max_bytes:
            self._extend(piece[: first_end - 1])
            yield self._close()
            yield piece[first_end:end]
        else:
            yield b"".join([*self._open, memoryview(piece)[:end]])
            self._open, self.num_open_bytes = [], 0
        self._extend(piece[end:])

    def finish(self) -> Iterator[bytes]:
        if self.num_open_bytes:
            yield self._close()

    def _extend(self, part: bytes) -> None:
        self.num_open_bytes += len(part)
        if self.num_open_bytes <= self._max_bytes:
            self._open.append(part)
        else:
            self._open = [(self.open_head + part[:NUM_FIRST_BYTES])[:NUM_FIRST_BYTES]]

    def _close(self) -> bytes:
        line, num_bytes = b"".join(self._open), self.num_open_bytes
        self._open, self.num_open_bytes = [], 0
        return line if num_bytes <= self._max_bytes else _TooLong(line, num_bytes)


class Line(NamedTuple):
    """What is taken of a line."""

    identity: str | None
    text: str | None
    date: int | None
    """UTC seconds; None where it has none, or nobody asked."""


class Parser:
    """Lines -> id, text and date by the rules above."""

    def __init__(self, fields: Fields, limits: Limits) -> None:
        self._fields, self._max_bytes = fields, limits.max_record_bytes
        optional = [(path, False) for path in (fields.date, fields.id) if path is not None]
        plain = _plain_struct([*optional, (fields.text, True)])
        self._decoder = None if plain is None else msgspec.json.Decoder(plain)
        self._plain_text = _getter(fields.text)
        self._plain_id = None if fields.id is None else _getter(fields.id)
        self._plain_date = None if fields.date is None else _getter(fields.date)

    def block(self, block: bytes, number: int, batch: Batch) -> int:
        """Adds a block of lines, whose first is line `number`, to `batch`; gives the number of the line after it."""
        plain = self._plain_block(block) if len(block) <= self._max_bytes else None
        if plain is None:
            return self._careful_block(block, number, batch)
        ids, texts, when = plain
        batch.add(ids, pa.array(np.arange(number, number + len(texts))), texts, when)
        return number + len(texts)

    def _plain_block(self, block: bytes) -> tuple[pa.Array, pa.Array, pa.Array | None] | None:
        """Ids, texts and dates, one a line; None where some line wants a closer look."""
        num_lines = _num_plain_lines(block)
        if num_lines is None or self._decoder is None:
            return None
        try:
            rows = self._decoder.decode_lines(block)
            if len(rows) != num_lines:
                return None
            texts = text_array(list(map(self._plain_text, rows)), scalars=False)
            ids = None if self._plain_id is None else text_array(list(map(self._plain_id, rows)), scalars=True)
        except (ValueError, AttributeError, RecursionError):  # msgspec's errors are ValueErrors
            return None
        if texts is None or (ids is None and self._plain_id is not None):
            return None
        when = None if self._plain_date is None else _dates([self._raw_date(row) for row in rows])
        return pa.nulls(num_lines, pa.large_string()) if ids is None else ids, texts, when

    def _raw_date(self, row: Any) -> Any:
        assert self._plain_date is not None
        try:
            return self._plain_date(row)
        except AttributeError:  # an object on its way is missing or null, which is no reason for a closer look
            return _NULL

    def _careful_block(self, block: bytes, number: int, batch: Batch) -> int:
        ids, numbers, texts, when = [], [], [], []
        lines = [block] if isinstance(block, _TooLong) else block.removesuffix(b"\n").split(b"\n")
        for line in lines:
            if line.removeprefix(BOM).strip(WHITE_SPACE):
                if len(line) > self._max_bytes:
                    line = _TooLong(line, len(line))
                try:
                    found = self.line(line)
                except Refused as refusal:
                    batch.bad.append(
                        BadRecord(
                            place=f"line {number}",
                            reason=refusal.reason,
                            detail=refusal.detail,
                            num_bytes=line.num_bytes if isinstance(line, _TooLong) else len(line),
                            first_bytes=line[:NUM_FIRST_BYTES],
                        )
                    )
                else:
                    ids.append(found.identity)
                    numbers.append(number)
                    texts.append(found.text)
                    when.append(found.date)
            number += 1
        columns = zip((ids, numbers, texts, when), SCHEMA, strict=True)
        batch.add(*(pa.array(values, field.type) for values, field in columns))
        return number

    def line(self, line: bytes) -> Line:
        """What one line holds; Refused says why that is nothing."""
        if isinstance(line, _TooLong):
            raise Refused("record_too_long", f"the line has {line.num_bytes} bytes")
        line = line.removeprefix(BOM)
        try:
            return self._one(line)
        except RecursionError:
            # How deep a parser gets depends on how deep its caller already is. A thread starts with an empty stack, so
            # there the verdict is the same whoever asks.
            return _in_fresh_stack(self._one, line)

    def _one(self, line: bytes) -> Line:
        try:
            if self._decoder is None:
                raise ValueError("text and id do not lie side by side")
            row = self._decoder.decode(line)
            text = msgspec.json.decode(self._plain_text(row))
            identity = None if self._plain_id is None else msgspec.json.decode(self._plain_id(row))
            date = None if self._plain_date is None else _decoded(self._raw_date(row))
        except (ValueError, AttributeError):  # msgspec's errors are ValueErrors
            values = parsed_object(line)
            text = inside(values, self._fields.text, "")
            identity = None if self._fields.id is None else inside(values, self._fields.id, "")
            date = None if self._fields.date is None else inside_or_none(values, self._fields.date)
        return Line(as_id(identity), as_text(text, line, self._fields.text), dates.seconds(as_id(date)))


def _num_plain_lines(block: bytes) -> int | None:
    """How many lines the block has, where each opens with "{" and closes with "}"; None where one does not.

    Then no JSON value goes over a line's end ("}" and "{" meet in none), so as many values as lines are one on each.
    """
    if not block.endswith(b"\n"):
        block += b"\n"
    content = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    if block[:1] != b"{" or (content[ends[:-1] + 1] != ord("{")).any() or ends[0] < 2:
        return None
    last = ends - 1
    last -= content[last] == ord("\r")
    return len(ends) if (content[last] == ord("}")).all() else None


# No whole number is above and below 0: a field of this type refuses whatever stands there.
_NEVER = Annotated[int, msgspec.Meta(gt=0, lt=0)]


def _attribute(key: str) -> str:
    return "k" + key.encode("utf-8", "surrogatepass").hex()


def _getter(path: str) -> Callable[[Any], Any]:
    return operator.attrgetter(".".join(map(_attribute, path.split("."))))


def _plain_struct(paths: Sequence[tuple[str, bool]]) -> type[msgspec.Struct] | None:
    """Structs in structs that lead to the (path, is it required) as they are spelled in the line, skipping the rest.

    They refuse a line in which a key spells a whole path with its dots, which would go first. None where one path is
    the beginning of another.
    """
    spelled = {path: required for path, required in paths if "." not in path}
    inner: dict[str, list[tuple[str, bool]]] = {}
    for path, required in paths:
        head, dot, rest = path.partition(".")
        if dot:
            inner.setdefault(head, []).append((rest, required))
    fields: list[Any] = [(key, msgspec.Raw, *(() if spelled[key] else (_NULL,))) for key in spelled]
    for head, rests in inner.items():
        struct = _plain_struct(rests)
        if struct is None or head in spelled:
            return None
        fields.append((head, struct, *(() if any(required for _, required in rests) else (None,))))
    fields += [(path, _NEVER, None) for path in dict(paths) if "." in path]
    return msgspec.defstruct(
        "Line",
        [(_attribute(key), *rest) for key, *rest in fields],
        rename={_attribute(key): key for key, *_ in fields},
        kw_only=True,
        gc=False,  # JSON holds no cycles; tracking these objects costs a fifth of the time
    )


def _dates(raws: Sequence[Any]) -> pa.Int64Array:
    """Dates of JSON values as they are spelled."""
    texts = text_array(raws, scalars=True)
    if texts is not None:
        return dates.of_texts(texts)
    # Some are lists or numbers with a fraction; the grammar of all has been checked.
    return pa.array([dates.seconds(as_id(_decoded(raw))) for raw in raws], pa.int64())


def _decoded(raw: Any) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError):  # half a surrogate pair, bytes that are not UTF-8, depth: no date has them
        return None


def _in_fresh_stack(parse: Callable[[bytes], Line], line: bytes) -> Line:
    result = Line(None, None, None)
    refusal: Refused | None = None

    def run() -> None:
        nonlocal result, refusal
        try:
            result = parse(line)
        except Refused as error:
            refusal = error
        except RecursionError:
            refusal = Refused("too_deep", "nested beyond what the parser follows")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if refusal is not None:
        raise refusal
    return result
