"""mbox: many messages in one file, each as readers/mail.py reads it.

Messages  begin at a line "From ..." to which two of these three apply: it opens the file or follows an empty line; it
          holds a weekday and a time, as an envelope does; a header follows it. So a body's line "From now on ..." is
          text, escaped or not. One level of escaping (">From ", ">>From ") is taken back.
Text      before the first message, other than white space, is one bad record: damaged_message.
Damage    messages before the fault are documents; the message it cuts is part of the damage.
"""

import re
from collections.abc import Iterator

from pipeline.readers import mail
from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import NUM_FIRST_BYTES, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source
from pipeline.readers.whole import Unreadable

_ENVELOPE = re.compile(rb"From .{0,300}\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b.{0,40}\b\d{1,2}:\d{2}\b")
_HEADER = re.compile(rb"[!-9;-~]{1,100}:")
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """The file's messages in order, in batches of about `limits.batch_bytes`."""
    batch = Batch(limits)
    messages = _Messages(limits.max_record_bytes)
    damage = None
    try:
        for piece in source.utf8_pieces():
            for message in messages.feed(piece):
                _add(message, fields, batch)
                if batch.full:
                    yield batch.take()
        for message in messages.finish():
            _add(message, fields, batch)
    except DamagedStream as fault:
        damage = fault
    if damage is not None:
        batch.bad.append(
            BadRecord(
                place=f"byte {messages.num_bytes} of the decompressed stream",
                reason=damage.reason,
                detail=damage.detail,
                num_bytes=messages.num_open_bytes,
                first_bytes=messages.open_head,
            )
        )
    if batch:
        yield batch.take()


class _Message:
    """The lines of one message, its envelope first; only their beginning once it is too long."""

    def __init__(self, number: int, first_line: int) -> None:
        self.number, self.first_line = number, first_line
        self.lines: list[bytes] = []
        self.num_bytes = 0
        self.too_long = False

    def add(self, line: bytes, limit: int) -> None:
        self.num_bytes += len(line)
        if self.num_bytes > limit and not self.too_long:
            self.too_long = True
            self.lines = [b"".join(self.lines[:20])[:NUM_FIRST_BYTES]]
        if not self.too_long:
            self.lines.append(line)


def _add(message: _Message, fields: Fields, batch: Batch) -> None:
    head = b"".join(message.lines[:20])[:NUM_FIRST_BYTES]
    place = f"message {message.number}, line {message.first_line}"
    try:
        if message.too_long:
            raise Unreadable("record_too_long", f"the message has {message.num_bytes} bytes")
        if message.number == 0:
            if not b"".join(message.lines).strip():
                return
            place = "line 1"
            raise Unreadable("damaged_message", 'there is no line "From ..." before it')
        found = mail.parsed(_ESCAPED.sub(rb"\1", b"".join(message.lines[1:])), fields)
    except Unreadable as fault:
        batch.bad.append(
            BadRecord(
                place=place,
                reason=fault.reason,
                detail=fault.detail,
                num_bytes=message.num_bytes,
                first_bytes=head,
            )
        )
    else:
        batch.add_one(found.identity, message.number, found.text, found.date)
        batch.num_attachments += found.num_attachments


class _Messages:
    """Pieces of a stream -> messages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest: list[bytes] = []  # pieces of the line not ended yet
        self._num_rest = 0
        self._message = _Message(0, 1)
        self._after_blank = True
        self._envelope: bytes | None = None  # one that the next line has to confirm
        self._line = 0
        self.num_bytes = 0

    @property
    def num_open_bytes(self) -> int:
        return self._message.num_bytes + self._num_rest

    @property
    def open_head(self) -> bytes:
        return b"".join([*self._message.lines[:20], *self._rest[:1]])[:NUM_FIRST_BYTES]

    def feed(self, piece: bytes) -> Iterator[_Message]:
        self.num_bytes += len(piece)
        *lines, last = piece.split(b"\n")
        for line in lines:
            if self._rest:
                line = b"".join([*self._rest, line])
                self._rest, self._num_rest = [], 0
            yield from self._take(line + b"\n")
        # A line beyond the limit is handed on in parts: its message is too long in any case.
        if last:
            self._rest.append(last)
            self._num_rest += len(last)
        if self._num_rest > self._limit:
            yield from self._take(b"".join(self._rest))
            self._line -= 1
            self._rest, self._num_rest = [], 0

    def finish(self) -> Iterator[_Message]:
        if self._rest:
            yield from self._take(b"".join(self._rest))
            self._rest, self._num_rest = [], 0
        if self._envelope is not None:
            self._message.add(self._envelope, self._limit)
        yield self._message

    def _take(self, line: bytes) -> Iterator[_Message]:
        self._line += 1
        if self._envelope is not None:
            if _HEADER.match(line):
                yield self._begin(self._envelope, self._line - 1)
            else:
                self._message.add(self._envelope, self._limit)
            self._envelope = None
            self._after_blank = False
        if line.startswith(b"From "):
            is_envelope = _ENVELOPE.match(line) is not None
            if self._after_blank and is_envelope:
                yield self._begin(line, self._line)
                return
            if self._after_blank or is_envelope:
                self._envelope = line
                return
        self._message.add(line, self._limit)
        self._after_blank = not line.strip()

    def _begin(self, envelope: bytes, line: int) -> _Message:
        done, self._message = self._message, _Message(self._message.number + 1, line)
        self._message.add(envelope, self._limit)
        self._after_blank = False
        return done
