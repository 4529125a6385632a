"""JSON lines: one object a line.

Lines     end at byte 0x0A and nowhere else: U+2028, U+2029 and U+0085 are text. CR before it and a missing last one are
          fine. A line of white space is no record. A byte-order mark before any line is skipped (exports glued
          together).
Text      must be a string; null stays null. A missing field, or anything else there, is one bad record, which names the
          fields or the type found. A null on the way of a dotted path counts as null text; a list there is wrong_type.
Id        a string as it is; a number or truth value as Python's json writes it (1 -> "1", 1.0 -> "1.0", true -> "true",
          so the ids 1 and "1" are one spelling); null, absent, list or object: no id, and the caller names the record
          by place.
Escapes   half a surrogate pair becomes U+FFFD; halves that follow each other in the right order are one character.
Keys      written twice: the last one counts.
Limits    a longer line is counted and its beginning shown, but never held; nesting beyond the parser's depth (some 990
          levels) is too_deep.
Not judged: bytes inside fields that are not asked for.

Speed: msgspec into a struct of the fields asked for, one call a line, Arrow arrays by block of about 256 kB, which
stays in the processor's cache (blocks of 4 MB took twice the time). A line that msgspec refuses takes the careful path
alone.
"""

import json
import math
import operator
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import NUM_FIRST_BYTES, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source

WHITE_SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MISSING = msgspec.UNSET


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """The file's records in order, in batches of about `limits.batch_bytes`."""
    parse = Parser(fields)
    batch = Batch(limits)
    number = 1  # of the next line
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
    """Pieces of a stream -> blocks of whole lines. A block is a list of lines, without their 0x0A."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._open: list[bytes] = []  # pieces of the line not ended yet; only its beginning once it is too long
        self.num_open_bytes = 0
        self.num_bytes = 0  # fed so far

    @property
    def open_head(self) -> bytes:
        return b"".join(self._open)[:NUM_FIRST_BYTES]

    def feed(self, piece: bytes) -> Iterator[list[bytes]]:
        self.num_bytes += len(piece)
        first, *rest = piece.split(b"\n")
        self._extend(first)
        if rest:
            last = rest.pop()
            if len(piece) > self._max_bytes:  # only then can a line inside one piece be too long
                rest = [line if len(line) <= self._max_bytes else _TooLong(line, len(line)) for line in rest]
            yield [self._close(), *rest]
            self._extend(last)

    def finish(self) -> Iterator[list[bytes]]:
        if self.num_open_bytes:
            yield [self._close()]

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


class Refused(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Parser:
    """Lines -> (id, text) by the rules above."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        paths = [fields.text] if fields.id is None else [fields.text, fields.id]
        # A dotted path may be one key or lead through several: both top-level keys are decoded, the rest is skipped
        # over.
        keys = sorted({key for path in paths for key in (path, path.partition(".")[0])})
        struct = msgspec.defstruct(
            "Line",
            [(f"k{index}", Any, _MISSING) for index in range(len(keys))],
            rename={f"k{index}": key for index, key in enumerate(keys)},
            gc=False,  # JSON holds no cycles; tracking these objects costs a fifth of the time
        )
        self._decode = msgspec.json.Decoder(struct).decode
        self._keys = {key: f"k{index}" for index, key in enumerate(keys)}
        self._text = self._getter(fields.text)
        self._id = self._getter(fields.id) if fields.id is not None else _no_id

    def _getter(self, path: str) -> Callable[[Any], Any]:
        whole = operator.attrgetter(self._keys[path])
        head, dot, rest = path.partition(".")
        if not dot:
            return whole
        outer = operator.attrgetter(self._keys[head])

        def get(line: Any) -> Any:
            value = whole(line)
            return _inside(outer(line), rest, head) if value is _MISSING else value

        return get

    def block(self, lines: list[bytes], number: int, batch: Batch) -> int:
        """Adds the block whose first line is line `number` to `batch`; gives the number of the line after it."""
        try:
            decoded = list(map(self._decode, lines))
            texts = pa.array(list(map(self._text, decoded)), pa.large_string())
            identities = list(map(self._id, decoded))
        except (ValueError, TypeError, RecursionError, Refused):
            # Some line is not plain: msgspec's and Arrow's errors are ValueErrors and TypeErrors.
            return self._careful_block(lines, number, batch)
        try:
            ids = pa.array(identities, pa.large_string())
        except (ValueError, TypeError):  # numbers, or lines without an id
            ids = pa.array(list(map(_as_id, identities)), pa.large_string())
        batch.add(ids, pa.array(np.arange(number, number + len(lines))), texts)
        return number + len(lines)

    def _careful_block(self, lines: list[bytes], number: int, batch: Batch) -> int:
        ids, numbers, texts = [], [], []
        for line in lines:
            if line.removeprefix(BOM).strip(WHITE_SPACE):
                try:
                    identity, text = self.line(line)
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
                    ids.append(identity)
                    numbers.append(number)
                    texts.append(text)
            number += 1
        batch.add(pa.array(ids, pa.large_string()), pa.array(numbers, pa.int64()), pa.array(texts, pa.large_string()))
        return number

    def line(self, line: bytes) -> tuple[str | None, str | None]:
        """One line's id and text; Refused says why there are none."""
        if isinstance(line, _TooLong):
            raise Refused("record_too_long", f"the line has {line.num_bytes} bytes")
        line = line.removeprefix(BOM)
        try:
            return self._one(line)
        except RecursionError:
            # How deep a parser gets depends on how deep its caller already is. A thread starts with an empty stack, so
            # there the verdict is the same whoever asks.
            return _in_fresh_stack(self._one, line)

    def _one(self, line: bytes) -> tuple[str | None, str | None]:
        try:
            record = self._decode(line)
        except ValueError:
            values = _careful_json(line)
            text = _inside(values, self._fields.text, "")
            identity = None if self._fields.id is None else _inside(values, self._fields.id, "")
        else:
            text, identity = self._text(record), self._id(record)
        return _as_id(identity), _as_text(text, line, self._fields.text)


def _no_id(line: Any) -> None:
    """The id of every line where the config asks for ids by place."""


def _inside(value: Any, path: str, way: str) -> Any:
    """What `path` leads to inside `value`. At every level a key that spells the whole remaining path goes first."""
    if value is _MISSING or value is None:
        return value
    if not isinstance(value, dict):
        raise Refused("wrong_type", f'"{way}" is {_kind(value)}, a path goes through objects only')
    if path in value:
        return value[path]
    head, dot, rest = path.partition(".")
    return _inside(value.get(head, _MISSING), rest, f"{way}.{head}" if way else head) if dot else _MISSING


def _as_text(value: Any, line: bytes, path: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if value is _MISSING:
        found = ", ".join(_LONE_SURROGATE.sub("\ufffd", key) for key in sorted(_careful_json(line))) or "none"
        raise Refused("missing_field", f'there is no field "{path}"; fields found: {found[:MAX_DETAIL_CHARS]}')
    raise Refused("wrong_type", f'"{path}" is {_kind(value)}, expected text')


def _as_id(value: Any) -> str | None:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    return None


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "true or false", str: "text"}.get(type(value), "a number")


def _careful_json(line: bytes) -> dict[str, Any]:
    """The line by Python's json, which takes the halves of surrogate pairs that msgspec refuses."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise Refused("invalid_utf8", f"byte {error.start} of the line: {error.reason}") from None
    try:
        value = json.loads(text, parse_int=_parse_int, parse_constant=_no_constant)
    except RecursionError:
        raise
    except ValueError as error:
        raise Refused("invalid_json", str(error)) from None
    if not isinstance(value, dict):
        raise Refused("not_an_object", f"the line is {'null' if value is None else _kind(value)}")
    return value


# Python refuses to convert longer digit strings, as a guard against quadratic time.
MAX_INT_DIGITS = 4300
# A record can hold thousands of fields; the first few tell the user what went wrong.
MAX_DETAIL_CHARS = 500


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else math.inf


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _in_fresh_stack(
    parse: Callable[[bytes], tuple[str | None, str | None]], line: bytes
) -> tuple[str | None, str | None]:
    result: tuple[str | None, str | None] = (None, None)
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
