"""Large files in parts, each read by a task of its own: the same records, places and ids as the file read whole.

    survey(url) once, in one pass -> Survey(sha256, parts) -> read_file(url, part=...) for each

Which formats  JSON lines, plain or in several zstd frames, gzip members, bz2 or xz streams (decoding starts at one of
               them, the part at the first line that begins in it); Parquet by row groups. Everything else is one task:
               a quote may span a CSV file, one frame decodes from its beginning only.
Which cuts     a function of the file's content and of `part_bytes`, so a build that starts again cuts the same. Places
               are absolute: a part knows the number of its first line or row.
What it costs  the file is read twice: once here, to count lines and hash (1,080 MB of plain text per core-second, 520
               from zstd). A file in which anything is damaged is not cut: one reader meets the damage where it is.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pipeline.readers.source import Source


@dataclass(frozen=True, kw_only=True)
class LinesPart:
    """Whole lines: `num_bytes` plain bytes, of which the first is `skip_bytes` after where decoding starts."""

    format: str = "jsonl"
    compression: str
    offset: int
    """Of the packed byte at which decoding starts."""
    skip_bytes: int
    num_bytes: int
    packed_bytes: int
    """About what it takes in storage."""
    first_record: int
    """The number of its first line in the file, from 1."""

    @property
    def is_first(self) -> bool:
        """Whether the file begins with it."""
        return self.first_record == 1

    def cut(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """What of the decoded pieces is the part's."""
        skip, left = self.skip_bytes, self.num_bytes
        for piece in pieces:
            mine = piece[skip : skip + left]
            skip = max(0, skip - len(piece))
            left -= len(mine)
            if mine:
                yield mine
            if not left:
                return


@dataclass(frozen=True, kw_only=True)
class RowGroupsPart:
    """Row groups first_group .. end_group - 1 of a Parquet file."""

    format: str = "parquet"
    compression: str = "none"
    first_group: int
    end_group: int
    first_record: int
    """The number of its first row in the file, from 1."""
    packed_bytes: int
    """About what it takes in storage."""
    offset: int = 0

    @property
    def is_first(self) -> bool:
        """Whether the file begins with it."""
        return self.first_group == 0

    def cut(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The whole file: a Parquet file is read from its end."""
        return pieces


Part = LinesPart | RowGroupsPart
PARTS: dict[str, type[Part]] = {"jsonl": LinesPart, "parquet": RowGroupsPart}
"""By format."""


def lines_parts(source: "Source", part_bytes: int) -> tuple[LinesPart, ...]:
    """Parts of some `part_bytes` packed bytes each; none where the file gives fewer than two.

    Reads `source` to its end. Raises DamagedStream where it breaks.
    """
    # Of each part's first line: place of its frame in the file, place in the frame, place in the plain content, number.
    starts = [(0, 0, 0, 1)]
    num_bytes, num_ends = 0, 0
    # The frame being decoded: its place in the file and in the plain content. The first piece may hold several frames,
    # so the one it ends in is not begun in.
    frame, frame_bytes, seen = 0, 0, source.packed.frame_start
    for piece in source.pieces():
        if source.compression == "none":
            frame = frame_bytes = num_bytes
        elif source.packed.frame_start != seen:
            frame = seen = source.packed.frame_start
            frame_bytes = num_bytes
        if frame - starts[-1][0] >= part_bytes and (end := piece.find(b"\n") + 1):
            number = num_ends + 2
            starts.append((frame, num_bytes + end - frame_bytes, num_bytes + end, number))
        num_ends += piece.count(b"\n")
        num_bytes += len(piece)
    starts.append((source.raw.num_bytes, 0, num_bytes, 0))  # the end
    parts = [
        LinesPart(
            compression=source.compression,
            offset=offset,
            skip_bytes=skip,
            num_bytes=end - plain,
            packed_bytes=next_offset - offset,
            first_record=number,
        )
        for (offset, skip, plain, number), (next_offset, _, end, _) in itertools.pairwise(starts)
        if end > plain
    ]
    return tuple(parts) if len(parts) > 1 else ()


def row_group_parts(file: pq.ParquetFile, part_bytes: int) -> tuple[RowGroupsPart, ...]:
    """Parts of some `part_bytes` packed bytes each; none where the file gives fewer than two."""
    parts: list[RowGroupsPart] = []
    first_group, first_row, row, num_bytes = 0, 0, 0, 0
    metadata = file.metadata
    for group in range(metadata.num_row_groups):
        about = metadata.row_group(group)
        row += about.num_rows
        num_bytes += sum(about.column(column).total_compressed_size for column in range(about.num_columns))
        if num_bytes >= part_bytes or group == metadata.num_row_groups - 1:
            parts.append(
                RowGroupsPart(
                    first_group=first_group, end_group=group + 1, first_record=first_row + 1, packed_bytes=num_bytes
                )
            )
            first_group, first_row, num_bytes = group + 1, row, 0
    return tuple(parts) if len(parts) > 1 else ()
