"""Compressed streams: recognised by content, read to the last frame, and never cut in silence."""

import bz2
import contextlib
import gzip
import io
import lzma
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.readers import BadRecord, FileSummary, read_file
from pipeline.readers.compression import DECOMPRESSORS, DamagedStream, PackedInput, Readable, compression_of

LINES = b"".join(b'{"id": "%d", "text": "line %d of the file"}\n' % (n, n * 7919) for n in range(20_000))


def decompressed(stream: Readable, head: bytes) -> Iterator[bytes]:
    return DECOMPRESSORS[compression_of(head)](PackedInput(stream, head))


def zstd(data: bytes, **options: int) -> bytes:
    return zstandard.ZstdCompressor(level=3, **options).compress(data)


def zstd_checked(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "zstd": zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def unpack(data: bytes, cut: int) -> tuple[bytes, str | None]:
    """The plain bytes, and the reason where the stream is damaged; the first `cut` bytes are read ahead as a head."""
    out = []
    try:
        for piece in decompressed(io.BytesIO(data[cut:]), data[:cut]):
            out.append(piece)
    except DamagedStream as damage:
        return b"".join(out), damage.reason
    return b"".join(out), None


def read(path: Path) -> tuple[list[str], list[BadRecord], FileSummary]:
    reading = read_file(str(path))
    texts: list[str] = []
    bad: list[BadRecord] = []
    for records in reading:
        texts += records.text.to_pylist()
        bad += records.bad
    return texts, bad, reading.summary


@pytest.mark.parametrize("kind", COMPRESS)
def test_content_tells_the_compression_whatever_the_name(tmp_path, kind):
    path = tmp_path / "plain.jsonl"
    path.write_bytes(COMPRESS[kind](LINES))
    texts, bad, summary = read(path)
    assert len(texts) == 20_000
    assert bad == []
    assert summary.compression == kind


def test_a_gz_that_is_plain_is_read_as_it_is(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b'{"text": "plain"}\n')
    assert read(path)[0] == ["plain"]


@pytest.mark.parametrize("kind", COMPRESS)
def test_several_members_are_one_stream_and_zeros_between_and_after_are_padding(kind):
    compress = COMPRESS[kind]
    data = compress(b"one ") + compress(b"") + bytes(512) + compress(b"two ") + compress(b"three") + bytes(1024)
    assert unpack(data, 20) == (b"one two three", None)


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_cut_stream_gives_what_came_before_and_says_so(tmp_path, kind):
    whole = COMPRESS[kind](LINES)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    texts, bad, summary = read(path)
    assert [one.reason for one in bad] == ["truncated"]
    assert bad[0].place.endswith("of the decompressed stream")
    assert texts == [f"line {n * 7919} of the file" for n in range(len(texts))]
    assert summary.num_records == len(texts) + 1
    assert summary.num_bytes == len(whole) * 2 // 3


def test_a_cut_gzip_gives_every_whole_line_before_the_cut(tmp_path):
    whole = COMPRESS["gzip"](LINES)
    cut = whole[: len(whole) // 2]
    expected = zlib.decompressobj(31).decompress(cut)
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(cut)
    texts, bad, _ = read(path)
    assert len(texts) == expected.count(b"\n") > 5000
    assert bad[0].num_bytes == len(expected) - expected.rindex(b"\n") - 1
    assert bad[0].place == f"byte {len(expected)} of the decompressed stream"


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_stream_cut_at_any_byte_past_its_magic_number_is_a_cut_stream(kind):
    whole = COMPRESS[kind](b"some text")
    for left in range(10, len(whole)):
        content, reason = unpack(whole[:left], 10)
        assert reason == "truncated"
        assert b"some text".startswith(content)


def test_a_wrong_gzip_checksum_is_damage_and_the_data_before_it_is_kept(tmp_path):
    data = bytearray(COMPRESS["gzip"](LINES))
    data[-8] ^= 0xFF
    path = tmp_path / "crc.jsonl.gz"
    path.write_bytes(data)
    texts, bad, _ = read(path)
    assert len(texts) == 20_000
    assert [(one.reason, one.detail) for one in bad] == [
        ("damaged_stream", "Error -3 while decompressing data: incorrect data check")
    ]


def test_a_wrong_zstd_checksum_is_damage_and_the_data_before_it_is_kept():
    data = bytearray(zstd_checked(LINES))
    data[-1] ^= 0xFF
    assert unpack(bytes(data), 50) == (LINES, "damaged_stream")


@pytest.mark.parametrize("kind", COMPRESS)
def test_damage_in_the_middle_keeps_the_beginning_and_is_reported(kind):
    data = bytearray(COMPRESS[kind](LINES) + COMPRESS[kind](LINES))
    data[len(data) * 3 // 4 :] = b"\x55" * (len(data) - len(data) * 3 // 4)
    content, reason = unpack(bytes(data), 100)
    assert reason in ("damaged_stream", "truncated")
    assert content.startswith(LINES)


@pytest.mark.parametrize("kind", COMPRESS)
def test_what_follows_a_stream_and_is_none_is_damage_not_silence(kind):
    assert unpack(COMPRESS[kind](b"text") + b"trailing", 30) == (b"text", "damaged_stream")


def test_zstd_skippable_and_empty_frames_are_passed_over():
    skippable = struct.pack("<II", 0x184D2A50, 11) + b"hello world"
    data = skippable + zstd(b"a") + skippable + zstd(b"") + zstd_checked(b"b") + skippable
    assert unpack(data, 8) == (b"ab", None)
    assert unpack(data[:-1], 8) == (b"ab", "truncated")


def test_zstd_frames_without_a_size_are_read():
    data = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(LINES)
    assert unpack(data, 4) == (LINES, None)


def frame_with_window(log: int, body: bytes) -> bytes:
    """A zstd frame by hand: no size, no checksum, a window of 2**log bytes, one raw block."""
    block = struct.pack("<I", (len(body) << 3) | 1)[:3] + body
    return struct.pack("<I", 0xFD2FB528) + bytes([0, (log - 10) << 3]) + block


def test_a_zstd_window_of_two_gigabytes_is_read_and_a_larger_one_is_reported():
    assert unpack(frame_with_window(31, b"window"), 5) == (b"window", None)
    assert unpack(frame_with_window(32, b"window"), 5) == (b"", "window_too_large")


def test_a_zstd_frame_whose_header_says_anything_is_read_or_reported():
    frame = bytearray(zstd(LINES))
    faults = set()
    for frame[4] in range(256):
        faults.add(unpack(bytes(frame), len(frame))[1])
    assert faults == {None, "damaged_stream", "truncated"}
    assert unpack(b"\x28\xb5\x2f\xfd\x28\x01" + LINES, 1000) == (b"", "damaged_stream")  # a bit that is reserved


def test_a_decompression_bomb_is_given_in_small_pieces():
    for data in (gzip.compress(bytes(200_000_000), 9), zstd(bytes(200_000_000)), bz2.compress(bytes(50_000_000))):
        assert max(map(len, decompressed(io.BytesIO(data[64:]), data[:64]))) <= 1 << 20


def test_a_gigabyte_of_zeros_in_one_line_is_read_in_flat_memory(tmp_path):
    path = tmp_path / "bomb.jsonl.zst"
    compressor = zstandard.ZstdCompressor().compressobj()
    with path.open("wb") as file:
        for _ in range(64):
            file.write(compressor.compress(bytes(16 << 20)))
        file.write(compressor.flush())
    program = (
        "import resource, sys\nfrom pipeline.readers import Limits, read_file\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "bad = [one for records in read_file(sys.argv[1], limits=Limits(free_expansion_bytes=1 << 40))\n"
        " for one in records.bad]\n"
        "print(bad[0].reason, bad[0].num_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    reason, num_bytes, kilobytes = done.stdout.split()
    assert (reason, int(num_bytes)) == ("record_too_long", 1 << 30)
    assert int(kilobytes) < 300_000  # the limit of 64 MiB, held twice while it is joined, and the decoder


def test_empty_files_and_empty_streams_hold_nothing_and_are_no_faults(tmp_path):
    for index, content in enumerate([b"", *(compress(b"") for compress in COMPRESS.values())]):
        path = tmp_path / f"{index}.jsonl.gz"
        path.write_bytes(content)
        texts, bad, summary = read(path)
        assert (texts, bad, summary.num_records) == ([], [], 0)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(COMPRESS)),
    parts=st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    cut=st.floats(0, 1),
    flip=st.integers(0, 7),
)
def test_no_damage_raises_and_none_is_silent_but_where_nothing_changed(kind, parts, cut, flip):
    data = b"".join(COMPRESS[kind](part) for part in parts)
    whole = b"".join(parts)
    size = int(cut * len(data))
    content, reason = unpack(data[:size], size)
    if compression_of(data[:size]) == kind:  # a cut inside the first magic number leaves bytes of no kind
        assert whole.startswith(content)
        # Silent only where the cut falls between two members: nothing in the file could tell.
        assert reason is not None or content in {b"".join(parts[:count]) for count in range(len(parts) + 1)}
    damaged = bytearray(data)
    damaged[min(size, len(data) - 1)] ^= 1 << flip
    unpack(bytes(damaged), len(damaged))  # raises nothing but DamagedStream


def test_short_reads_of_the_network_change_nothing():
    class Dripping(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.data = io.BytesIO(data)
            self.turn = 0

        def read(self, size: int = -1) -> bytes:
            self.turn += 1
            return self.data.read(min(size, 1 + self.turn * 37 % 5000))

    damaged = bytearray(COMPRESS["gzip"](LINES))
    damaged[len(damaged) // 2] ^= 0xFF

    def content_of(stream: object) -> bytes:
        out = []
        with contextlib.suppress(DamagedStream):
            for piece in decompressed(stream, bytes(damaged[:64])):
                out.append(piece)
        return b"".join(out)

    assert content_of(Dripping(bytes(damaged[64:]))) == content_of(io.BytesIO(bytes(damaged[64:])))
