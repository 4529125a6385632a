"""Files that are one document: the content in one piece, or the one bad record that says why not."""

from pipeline.readers.compression import DamagedStream
from pipeline.readers.records import BadRecord, Limits
from pipeline.readers.source import Source


class Unreadable(Exception):
    """A document that cannot be parsed; `reason` is one of records.REASONS."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def whole(source: Source, limits: Limits) -> bytes:
    """The file's content in one piece; DamagedStream where it breaks or goes beyond the limit."""
    parts: list[bytes] = []
    num_bytes = 0
    for piece in source.utf8_pieces():
        num_bytes += len(piece)
        if num_bytes <= limits.max_record_bytes:
            parts.append(piece)
    if num_bytes > limits.max_record_bytes:
        raise DamagedStream("record_too_long", f"the file has {num_bytes} bytes, limit {limits.max_record_bytes}")
    return b"".join(parts)


def whole_file(fault: "DamagedStream | Unreadable", source: Source) -> BadRecord:
    """The bad record of a file that is one document."""
    return BadRecord(
        place="the whole file",
        reason=fault.reason,
        detail=fault.detail,
        num_bytes=len(source.head),
        first_bytes=source.head,
    )
