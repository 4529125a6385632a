"""JSON: a file that is one value, a list of objects or a single object, rather than lines of them.

Records   the items of the list, in order; a single object is one record. Their fields follow the rules of jsonl.py:
          what is no object, lacks the field or has no text there is one bad record.
          Lines of JSON whose first one is a list are read as lines, each an item.
Bad       a file that is no JSON, is over the record limit, or whose compressed stream breaks, is one bad record: half a
          JSON value is none.
"""

import json
from collections.abc import Iterator

import msgspec

from pipeline.readers.compression import DamagedStream
from pipeline.readers.json_values import Refused
from pipeline.readers.jsonl import Parser
from pipeline.readers.records import BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source
from pipeline.readers.whole import Unreadable, whole, whole_file

_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def read(source: Source, fields: Fields, limits: Limits) -> Iterator[Records]:
    """The file's records in order, in batches of about `limits.batch_bytes`."""
    batch = Batch(limits)
    parser = Parser(fields, limits)
    try:
        content = whole(source, limits)
        items = _items(content)
    except (DamagedStream, Unreadable) as fault:
        batch.bad.append(whole_file(fault, source))
        items = []
    for number, item in enumerate(items, 1):
        try:
            line = parser.line(item)
        except Refused as refusal:
            batch.bad.append(
                BadRecord(
                    place=f"item {number}",
                    reason=refusal.reason,
                    detail=refusal.detail,
                    num_bytes=len(item),
                    first_bytes=item,
                )
            )
        else:
            batch.add_one(line.identity, number, line.text, line.date)
        if batch.full:
            yield batch.take()
    if batch:
        yield batch.take()


def _items(content: bytes) -> list[bytes]:
    stripped = content.strip()
    if not stripped:
        return []
    if not stripped.startswith(b"["):
        return [stripped]
    try:
        return [bytes(item) for item in _ITEMS.decode(stripped)]
    except RecursionError:
        raise Unreadable("too_deep", "nested beyond what the parser follows") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # halves of surrogate pairs, which msgspec refuses, or no JSON
    try:
        return [json.dumps(item).encode() for item in json.loads(stripped)]
    except UnicodeDecodeError as error:
        raise Unreadable("invalid_utf8", f"byte {error.start}: {error.reason}") from None
    except ValueError as error:
        if _is_json(stripped.partition(b"\n")[0]):
            return [line for line in stripped.split(b"\n") if line.strip()]
        raise Unreadable("invalid_json", str(error)) from None
    except RecursionError:
        raise Unreadable("too_deep", "nested beyond what the parser follows") from None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
