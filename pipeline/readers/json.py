"""JSON: a file that is one value, a list of objects or a single object, or objects one after another, each over several
lines.

Records   the items of the list, in order; a single object is one record. Their fields follow the rules of jsonl.py:
          what is no object, lacks the field or has no text there is one bad record.
          Lines of JSON whose first one is a list are read as lines, each an item.
Bad       a file that is no JSON, is over the record limit, or whose compressed stream breaks, is one bad record: half a
          JSON value is none. Of objects one after another, one that does not parse costs what stands from it to the
          next line that opens an object without indentation.
"""

import json
import re
from collections.abc import Iterator

import msgspec

from pipeline.readers.compression import DamagedStream
from pipeline.readers.json_values import Refused
from pipeline.readers.jsonl import Parser
from pipeline.readers.records import BadRecord, Batch, Fields, Limits, Records
from pipeline.readers.source import Source
from pipeline.readers.whole import Unreadable, whole, whole_file

# Only where a value ends is asked, so a number of any length will do.
_VALUE = json.JSONDecoder(parse_int=float)
_OPENED = re.compile(r"(?m)^\{")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
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
        return _values(stripped)
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


def _values(content: bytes) -> list[bytes]:
    """The values that stand one after another; what does not parse is an item too, which its reader will refuse."""
    text = content.decode("utf-8", "surrogateescape")
    items: list[str] = []
    position = 0
    while position < len(text):
        try:
            end = _VALUE.raw_decode(text, position)[1]
        except (ValueError, RecursionError):
            # Only a file that has shown itself to be objects in a row is looked through for the next one.
            next_object = _OPENED.search(text, position + 1) if items else None
            end = next_object.start() if next_object else len(text)
        items.append(text[position:end])
        more = _NOT_BLANK.search(text, end)
        position = more.start() if more else len(text)
    return [item.encode("utf-8", "surrogateescape") for item in items]


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
