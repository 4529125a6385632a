"""One input file as a stream: hashed on the way, decompressed by content, in UTF-8.

storage -> raw bytes (counted, hashed) -> decompressed -> transcoded from UTF-16/32 where a byte-order mark says so,
else from the encoding that the config names
"""

import codecs
import contextlib
import hashlib
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from manifests import storage
from pipeline.charset_names import GUESS
from pipeline.readers.compression import (
    DECOMPRESSORS,
    READ_BYTES,
    DamagedStream,
    PackedInput,
    Readable,
    compression_of,
    read_exactly,
)
from pipeline.readers.parts import LinesPart, RowGroupsPart
from pipeline.readers.records import Limits
from pipeline.scratch_disk import scratch_folder, writing_to_scratch

# What format_of looks at: a tar's first header, and the beginning of a page or a mail.
HEAD_BYTES = 4096
# A request to a store takes some 20 ms, so reads by ranges are not small.
RANGE_BYTES = 4 << 20
MIN_UTF_16_BYTES = 16
# Longest first: the mark of UTF-16 LE is the beginning of that of UTF-32 LE.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def utf_16_of(head: bytes) -> str | None:
    """The UTF-16 that a text without a byte-order mark is in, by its beginning; None for anything else.

    Of Latin and Russian texts nearly every second byte is 0 or 4, which UTF-8 texts never hold: they pass as UTF-8 and
    read as control characters.
    """
    head = head[: min(len(head), HEAD_BYTES) & ~1]
    if len(head) < MIN_UTF_16_BYTES:
        return None
    even, odd = (sum(half.count(byte) for byte in b"\x00\x04") * 2 / len(head) for half in (head[::2], head[1::2]))
    if odd > 0.8 and even < 0.2:
        return "utf-16-le"
    return "utf-16-be" if even > 0.8 and odd < 0.2 else None


class _Hashed:
    """A stream that counts and hashes what is read from it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._sha256 = hashlib.sha256()
        self.num_bytes = 0

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._sha256.update(data)
        self.num_bytes += len(data)
        return data

    def drain(self) -> None:
        while self.read(READ_BYTES):
            pass

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


class Allowance:
    """How many plain bytes a file, with all that is packed inside it, may still give: see Limits."""

    def __init__(self, limits: Limits) -> None:
        self._free, self._factor = limits.free_expansion_bytes, limits.max_expansion
        self.num_packed_bytes = 0
        self._num_plain_bytes = 0

    def spend(self, num_bytes: int) -> None:
        """Raise DamagedStream when these bytes go beyond the limit."""
        self._num_plain_bytes += num_bytes
        if self._num_plain_bytes > self._free + self._factor * self.num_packed_bytes:
            raise DamagedStream(
                "expands_too_much",
                f"{self.num_packed_bytes} bytes gave {self._num_plain_bytes} plain ones,"
                f" limit {self._free} + {self._factor} times as many",
            )


class Source:
    """An open input file; `compression` is a key of compression.DECOMPRESSORS, told by content.

    `name` is its path or URL, for the format's sake. `path` is where it lies on this machine, where it does: a member
    of an archive does not. Members share their archive's `allowance`. With a `part`, the stream begins where the part
    does and the pieces are the part's alone; what the whole file is known to be is not looked for again.
    `encoding` is the character set of the plain content where it has no byte-order mark.
    """

    def __init__(
        self,
        name: str,
        stream: Readable,
        limits: Limits,
        *,
        path: Path | None = None,
        allowance: Allowance | None = None,
        depth: int = 0,
        part: LinesPart | RowGroupsPart | None = None,
    ) -> None:
        self.name, self.depth, self.part = name, depth, part
        self.encoding: str | None = None
        self.raw = _Hashed(stream)
        self.allowance = allowance or Allowance(limits)
        self._is_member = allowance is not None
        self._path = path
        if path is not None:
            self.allowance.num_packed_bytes = path.stat().st_size  # a zip is read from its end, not as a stream
        # The beginning of the plain content: enough to tell the format, empty for an empty or a thoroughly broken file.
        self.head = b""
        self.compression = "none"
        self._damage: DamagedStream | None = None
        self._pieces: Iterator[bytes] = iter(())
        try:
            raw_head = read_exactly(self.raw, READ_BYTES)
            self.compression = compression_of(raw_head) if part is None else part.compression
            self.packed = PackedInput(self.raw, raw_head)
            self._pieces = self._counted(DECOMPRESSORS[self.compression](self.packed))
            for piece in self._pieces:
                self.head += piece
                if len(self.head) >= HEAD_BYTES:
                    break
        except DamagedStream as damage:
            self._damage = damage

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        if (self.compression == "none" and not self._is_member) or self.part is not None:
            yield from pieces
            return
        for piece in pieces:
            if not self._is_member:
                self.allowance.num_packed_bytes = max(self.allowance.num_packed_bytes, self.raw.num_bytes)
            self.allowance.spend(len(piece))
            yield piece

    def pieces(self) -> Iterator[bytes]:
        """The plain bytes as they are in the file. Raises DamagedStream where the file breaks. Once only."""
        pieces = self._all_pieces()
        return pieces if self.part is None else self.part.cut(pieces)

    def _all_pieces(self) -> Iterator[bytes]:
        if self.head:
            yield self.head
        if self._damage:
            raise self._damage
        yield from self._pieces

    def utf8_pieces(self) -> Iterator[bytes]:
        """The same as UTF-8 without a leading byte-order mark; not checked where the file claims nothing else.

        Raises DamagedStream for UTF-16 that nothing declares. A byte that `encoding` has no character for stays as it
        is, which is no UTF-8: readers see it as such.
        """
        pieces = self.pieces()
        if self.part is not None and not self.part.is_first:
            yield from pieces
            return
        mark, encoding = next(
            (item for item in BYTE_ORDER_MARKS if self.head.startswith(item[0])),
            (b"", self.encoding if self.encoding not in (None, GUESS) else "utf-8"),
        )
        if not mark and self.encoding in (None, GUESS) and (found := utf_16_of(self.head)):
            if self.encoding is None:
                raise DamagedStream("utf_16", f"no byte-order mark says so: name the source's encoding: {found}")
            encoding = found
        first = next(pieces, b"")[len(mark) :]
        if encoding == "utf-8":
            yield first
            yield from pieces
            return
        decoder = codecs.getincrementaldecoder(encoding)("strict" if mark else "surrogateescape")
        for piece in itertools.chain([first], pieces, [b""]):
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                yield error.object[: error.start].decode(encoding).encode()
                raise DamagedStream("damaged_stream", f"the byte-order mark says {encoding}, but: {error}") from None
            yield text.encode("utf-8", "strict" if mark else "surrogateescape")

    @contextlib.contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        """The plain content for formats that seek; of a part, whose file is not copied for it, by ranges."""
        if self.part is not None and self._path is None:
            with storage.open_ranged(self.name) as stream:
                yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), RANGE_BYTES))
            return
        with self.local_file() as path, path.open("rb") as stream:
            yield stream

    @contextlib.contextmanager
    def local_file(self) -> Iterator[Path]:
        """The plain content as a file on this machine, for formats that seek: the file itself, or a temporary copy."""
        if self._path is not None and self.compression == "none":
            yield self._path
            return
        with scratch_folder() as folder:
            path = folder / "input"
            with writing_to_scratch(), path.open("wb") as copy:
                for piece in self.pieces():
                    copy.write(piece)
            yield path
