"""Plain text and Markdown: one file, one document.

The file must be UTF-8, UTF-16/32 with a byte-order mark, which is removed, or in the source's `encoding`; where that is
to be guessed and the bytes are not UTF-8, resiliparse tells it from them. It has no id of its own. A file over the
limit, one that is not text, and one whose compressed stream breaks are one bad record each: half a text is not the
text. An empty file is one document of empty text, which the caller drops by that name.
"""

from collections.abc import Iterator

import pyarrow as pa

from pipeline.charset_names import GUESS
from pipeline.readers.charsets import decoded
from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import NUM_FIRST_BYTES, BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:  # noqa: ARG001 - a file has no fields
    """One document, or one bad record."""
    batch = Batch(limits)
    parts: list[bytes] = []
    num_bytes = 0
    try:
        for piece in source.utf8_pieces():
            num_bytes += len(piece)
            if num_bytes <= limits.max_record_bytes:
                parts.append(piece)
        if num_bytes > limits.max_record_bytes:
            raise DamagedStream("record_too_long", f"the text has {num_bytes} bytes, limit {limits.max_record_bytes}")
        content = b"".join(parts)
        text = decoded(content) if source.encoding == GUESS else content.decode()
    except UnicodeDecodeError as error:
        batch.bad.append(_bad("invalid_utf8", f"byte {error.start}: {error.reason}", num_bytes, parts))
    except DamagedStream as damage:
        batch.bad.append(_bad(damage.reason, damage.detail, num_bytes, parts))
    else:
        batch.add(pa.array([None], pa.large_string()), pa.array([1]), pa.array([text], pa.large_string()))
    yield batch.take()


def _bad(reason: str, detail: str, num_bytes: int, parts: list[bytes]) -> BadRecord:
    head = b"".join(part[:NUM_FIRST_BYTES] for part in parts[:NUM_FIRST_BYTES])
    return BadRecord(place="the whole file", reason=reason, detail=detail, num_bytes=num_bytes, first_bytes=head)
