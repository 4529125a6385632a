"""Compressed bytes -> plain bytes, recognised by magic number, in pieces of bounded size.

gzip   all members; checksums verified
zstd   all frames, skippable and empty ones too; windows up to MAX_WINDOW_BYTES (what `zstd -d --long=31` reads)
bz2    all streams
xz     all streams; decoder memory up to MAX_XZ_BYTES

Zero bytes between and after members, frames and streams are padding; anything else there is damage.

A file that is cut or damaged gives every byte that decodes before the fault and then raises DamagedStream: never a
silent end. Where the fault shows does not depend on how the input happens to arrive: reads are of fixed size.
"""

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import zstandard

# Input is read in pieces of READ_BYTES and output is given in pieces of at most about PIECE_BYTES, so a decompression
# bomb costs time, never memory.
READ_BYTES = 256 << 10
PIECE_BYTES = 1 << 20
# At the start of a member the reads are small and grow: what lies beyond its end is put back, and a file can be made of
# a million members.
FIRST_READ_BYTES = 4 << 10
MAX_WINDOW_BYTES = 1 << 31
MAX_XZ_BYTES = 1 << 30

MAGICS = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    *((bytes([0x50 + n]) + b"\x2a\x4d\x18", "zstd") for n in range(16)),  # a skippable frame may come first
    *((b"BZh%d\x31\x41\x59\x26\x53\x59" % n, "bz2") for n in range(1, 10)),
    *((b"BZh%d\x17\x72\x45\x38\x50\x90" % n, "bz2") for n in range(1, 10)),  # of an empty file
    (b"\xfd7zXZ\x00", "xz"),
)
NAME_ENDINGS = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz")


class DamagedStream(Exception):
    """The stream ends or breaks here; everything before has been given. `reason` is one of records.REASONS."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def compression_of(head: bytes) -> str:
    """The key of DECOMPRESSORS that the first bytes of a file ask for; "none" for anything else, an empty file too."""
    return next((name for magic, name in MAGICS if head.startswith(magic)), "none")


def read_exactly(stream: Readable, size: int) -> bytes:
    """`size` bytes, fewer only at the end: a network stream may answer a read in part."""
    data = stream.read(size)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := stream.read(missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class PackedInput:
    """A stream with a few bytes put back: what a decoder left over, or what was read to recognise the file.

    `frame_start` is the place (in bytes of `head` + `stream`) where the member or frame being decoded begins: decoding
    can start there afresh. When a piece is given, everything before its frame has been given.
    """

    def __init__(self, stream: Readable, head: bytes) -> None:
        self.stream = stream
        self._head, self._used = head, 0
        self._position = 0
        self.frame_start = 0

    def begin_frame(self) -> None:
        self.frame_start = self._position

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end."""
        data = self._head[self._used : self._used + size]
        self._used += len(data)
        if len(data) < size:
            self._head, self._used = b"", 0
            data += read_exactly(self.stream, size - len(data))
        self._position += len(data)
        return data

    def put_back(self, data: bytes) -> None:
        """`data` is the end of what was read last."""
        self._position -= len(data)
        if len(data) <= self._used and self._head.endswith(data, 0, self._used):
            self._used -= len(data)
        else:
            self._head, self._used = data + self._head[self._used :], 0

    def skip_zeros(self) -> bytes:
        """Leaves zero padding behind; gives the first bytes after it, which stay unread. Empty at the end."""
        while data := self.read(FIRST_READ_BYTES):
            if rest := data.lstrip(b"\0"):
                self.put_back(rest)
                return rest
        return b""


def _plain(source: PackedInput) -> Iterator[bytes]:
    while data := source.read(READ_BYTES):
        yield data


def _gzip(source: PackedInput) -> Iterator[bytes]:
    while True:
        source.begin_frame()
        yield from _gzip_member(source)
        rest = source.skip_zeros()
        if not rest:
            return
        if compression_of(rest) != "gzip":
            raise DamagedStream("damaged_stream", "the bytes after the last gzip member are neither padding nor gzip")


def _gzip_member(source: PackedInput) -> Iterator[bytes]:
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    size = FIRST_READ_BYTES
    while not decoder.eof:
        data = source.read(size)
        size = min(2 * size, READ_BYTES)
        if not data:
            raise DamagedStream("truncated", "the gzip data ends inside a member")
        while data and not decoder.eof:
            # zlib throws away what a failing call has decoded. A copy of its state (about 40 kB, against 1 MB of
            # output) lets the fault be approached again byte by byte, so that nothing before it is lost.
            before = decoder.copy()
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                yield from _gzip_until_fault(before, data)
                raise DamagedStream("damaged_stream", str(error)) from None
            if piece:
                yield piece
            data = decoder.unconsumed_tail
    source.put_back(decoder.unused_data)


def _gzip_until_fault(decoder: Any, data: bytes) -> Iterator[bytes]:
    pieces: list[bytes] = []
    num_bytes = 0
    with contextlib.suppress(zlib.error):  # the fault the caller is about to report
        for index in range(len(data)):
            pieces.append(decoder.decompress(data[index : index + 1]))
            num_bytes += len(pieces[-1])
            if num_bytes >= PIECE_BYTES:
                yield b"".join(pieces)
                pieces, num_bytes = [], 0
    yield b"".join(pieces)


def _zstd(source: PackedInput) -> Iterator[bytes]:
    # The decoder swallows a cut frame without a word, so frames are walked here, block by block (RFC 8878, 3.1.1): a
    # block gives at most 128 kB, which bounds memory, and a frame that does not end is seen.
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    while source.skip_zeros():
        source.begin_frame()
        magic = source.read(4)
        if len(magic) == 4 and magic[1:] == b"\x2a\x4d\x18" and magic[0] & 0xF0 == 0x50:
            left = int.from_bytes(_need(source, 4), "little")
            while left:
                left -= len(_need(source, min(left, READ_BYTES)))
        elif magic == zstandard.FRAME_HEADER:
            yield from _zstd_frame(source, decompressor)
        else:
            raise DamagedStream("truncated" if len(magic) < 4 else "damaged_stream", "what follows is no zstd frame")


def _zstd_frame(source: PackedInput, decompressor: zstandard.ZstdDecompressor) -> Iterator[bytes]:
    # The descriptor byte tells the length of the rest of the header: window, dictionary id and content size.
    descriptor = _need(source, 1)[0]
    single_segment = descriptor >> 5 & 1
    size_flag = descriptor >> 6
    rest = (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + (single_segment if size_flag == 0 else 1 << size_flag)
    header = zstandard.FRAME_HEADER + bytes([descriptor]) + _need(source, rest)
    if not single_segment and (window := _window_bytes(header[5])) > MAX_WINDOW_BYTES:
        raise DamagedStream("window_too_large", f"the frame needs a window of {window} bytes, limit {MAX_WINDOW_BYTES}")
    decoder = decompressor.decompressobj()
    # Blocks are handed on several together: so the window stays in the processor's cache. 38 MB were decoded in 33 ms
    # alone, in 153 ms where each block was parsed before the next.
    pieces: list[bytes] = []
    num_waiting = 0
    try:
        pieces.append(decoder.decompress(header))
        last = False
        while not last:
            block_header = _need(source, 3)
            block = int.from_bytes(block_header, "little")
            last = bool(block & 1)
            num_bytes = 1 if block >> 1 & 3 == 1 else block >> 3  # a run stores one byte, whatever its length
            pieces.append(decoder.decompress(block_header + _need(source, num_bytes)))
            num_waiting += len(pieces[-1])
            if num_waiting >= PIECE_BYTES:
                yield b"".join(pieces)
                pieces, num_waiting = [], 0
        if descriptor & 4:
            pieces.append(decoder.decompress(_need(source, 4)))
    except DamagedStream:
        yield b"".join(pieces)
        raise
    except zstandard.ZstdError as error:
        yield b"".join(pieces)
        raise DamagedStream("damaged_stream", str(error)) from None
    if pieces:
        yield b"".join(pieces)


def _window_bytes(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 7)


def _need(source: PackedInput, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise DamagedStream("truncated", "the zstd data ends inside a frame")
    return data


def _streams(
    source: PackedInput, name: str, make: Callable[[], Any], faults: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """bz2 and xz: one decoder a stream. What the failing call had decoded (at most PIECE_BYTES) is lost with it."""
    while True:
        source.begin_frame()
        decoder = make()
        while not decoder.eof:
            data = source.read(READ_BYTES) if decoder.needs_input else b""
            if decoder.needs_input and not data:
                raise DamagedStream("truncated", f"the {name} data ends inside a stream")
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except faults as error:
                raise DamagedStream("damaged_stream", str(error)) from None
            if piece:
                yield piece
        source.put_back(decoder.unused_data)
        rest = source.skip_zeros()
        if not rest:
            return
        if compression_of(rest) != name:
            raise DamagedStream(
                "damaged_stream", f"the bytes after the last {name} stream are neither padding nor {name}"
            )


def _bz2(source: PackedInput) -> Iterator[bytes]:
    return _streams(source, "bz2", bz2.BZ2Decompressor, (OSError, ValueError))


def _xz(source: PackedInput) -> Iterator[bytes]:
    return _streams(
        source, "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_BYTES), (lzma.LZMAError,)
    )


DECOMPRESSORS: dict[str, Callable[[PackedInput], Iterator[bytes]]] = {
    "none": _plain,
    "gzip": _gzip,
    "zstd": _zstd,
    "bz2": _bz2,
    "xz": _xz,
}
