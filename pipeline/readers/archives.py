"""tar and zip: an archive counts as a folder of the files in it, each read by its own format.

Members   are read one after the other, never written to disk and never to the place their name says, so `..` and a
          leading slash in a name are letters only. Names that mark no data in a folder (names.py) are no data here
          either, and are listed as skipped.
Links     symbolic and hard links and devices are one bad record each (not_a_file): they are never followed.
Nesting   compressed members are decompressed, archives in archives opened down to MAX_DEPTH.
Bombs     all plain bytes that come out of a file, through all its members, count against one allowance (Limits).
Damage    members before it are read; a member that it cuts keeps what its own format keeps; then one bad record says
          where the archive breaks (damaged_archive). A zip whose directory is lost is one bad record; so is whatever
          is no padding after a tar's end mark, or stands before a zip's first member: archives glued together.

tarfile reads the tar as a stream. It takes a broken header for the end of the archive; here that is told apart from the
two zero blocks that end one.
"""

import contextlib
import dataclasses
import errno
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.readers.compression import READ_BYTES, DamagedStream
from pipeline.readers.records import BadRecord, Batch, Limits, Records
from pipeline.readers.source import Source

MAX_DEPTH = 3
# A header with its long name and its pax records; more is an attack on memory.
MAX_HEADER_BYTES = 4 << 20

# Names gathered before they are handed on.
_MAX_SKIPPED = 1000

ReadMember = Callable[[Source], Iterator[Records]]
# A member's path -> why it is no data by its name, or None.
NoData = Callable[[str], str | None]
# What tarfile, zipfile and their decompressors raise on damaged content besides their own errors.
_FAULTS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    RecursionError,
    NotImplementedError,
    RuntimeError,
)


@contextlib.contextmanager
def _faults(what: str) -> Iterator[None]:
    """Turn what the libraries raise on content into DamagedStream; the machine's own trouble passes."""
    try:
        yield
    except DamagedStream:
        raise
    except _FAULTS as error:
        is_cut = isinstance(error, EOFError) or "unexpected end of data" in str(error)
        reason = "truncated" if is_cut else "damaged_archive"
        raise DamagedStream(reason, f"{what}: {type(error).__name__}: {error}"[:500]) from None
    except OSError as error:
        # bz2 has no error number; a place before the file's beginning is "invalid argument".
        if error.errno not in (None, errno.EINVAL):
            raise
        raise DamagedStream("damaged_archive", f"{what}: {error}"[:500]) from None


def kind_of(head: bytes) -> str | None:
    """The key of ARCHIVES that the first plain bytes of a file ask for."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return "zip"
    if len(head) >= tarfile.BLOCKSIZE and _is_tar(head[: tarfile.BLOCKSIZE]):
        return "tar"
    return None


def _is_tar(block: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True  # the block's checksum fits: old tars have no other mark


def read(kind: str, source: Source, limits: Limits, read_member: ReadMember, no_data: NoData) -> Iterator[Records]:
    """The records of all members, in the archive's order, each labelled with its member's path."""
    if source.depth >= MAX_DEPTH:
        yield _one(
            limits, _bad("the whole file", "nested_too_deep", f"archives in archives, limit {MAX_DEPTH}", source)
        )
        return
    yield from ARCHIVES[kind](source, limits, read_member, no_data)


def _one(limits: Limits, bad: BadRecord) -> Records:
    batch = Batch(limits)
    batch.bad.append(bad)
    return dataclasses.replace(batch.take(), member=bad.member)


def _skipped(limits: Limits, skipped: list[tuple[str, str]]) -> Iterator[Records]:
    """What was skipped so far, where that is much: a batch for each of a million hidden files would take minutes."""
    if len(skipped) >= _MAX_SKIPPED:
        yield dataclasses.replace(Batch(limits).take(), skipped=tuple(skipped))
        skipped.clear()


def _bad(place: str, reason: str, detail: str, source: Source | None = None, member: str = "") -> BadRecord:
    head = source.head if source is not None else b""
    return BadRecord(place=place, reason=reason, detail=detail, num_bytes=len(head), first_bytes=head, member=member)


def _labelled(records: Iterator[Records], name: str) -> Iterator[Records]:
    for batch in records:
        member = f"{name}/{batch.member}" if batch.member else name
        bad = tuple(
            dataclasses.replace(one, member=f"{name}/{one.member}" if one.member else name) for one in batch.bad
        )
        skipped = tuple((f"{name}/{path}", reason) for path, reason in batch.skipped)
        yield dataclasses.replace(batch, member=member, bad=bad, skipped=skipped)


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class _Member:
    """A member as a stream whose faults are DamagedStream, as everywhere."""

    def __init__(self, stream: Any, num_bytes: int | None) -> None:
        self._stream = stream
        self._left = num_bytes if num_bytes is None else max(0, num_bytes)

    def read(self, size: int, /) -> bytes:
        with _faults("inside the member"):
            data: bytes = self._stream.read(size if self._left is None else min(size, self._left))
        if self._left is not None:
            if self._left > 0 and not data and size:
                raise DamagedStream("truncated", f"the archive ends inside the member, {self._left} bytes are missing")
            self._left -= len(data)
        return data

    def drain(self) -> None:
        """Leave what the reader did not want."""
        while self.read(1 << 20):
            pass


# ------------------------------------------------------------------------------------------------------------------ tar


class _Stream:
    """The pieces of a source as the file that tarfile wants, with a bound on what a header may take."""

    def __init__(self, source: Source) -> None:
        self._pieces = filter(None, source.pieces())
        self._rest, self._used = b"", 0
        self.position = 0
        self.bound: int | None = None  # the position that reading may not pass now
        self.damage: DamagedStream | None = None

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing and self.damage is None:
            if self._used == len(self._rest):
                try:
                    self._rest, self._used = next(self._pieces, b""), 0
                except DamagedStream as damage:
                    self.damage = damage
                    break
                if not self._rest:
                    break
            part = self._rest[self._used : self._used + missing]
            self._used += len(part)
            missing -= len(part)
            parts.append(part)
        self.position += size - missing
        if self.bound is not None and self.position > self.bound:
            raise DamagedStream("damaged_archive", f"a header of more than {MAX_HEADER_BYTES} bytes")
        return b"".join(parts)


# Not in the type stubs, and public in the module: what tarfile knows about an ending and does not tell.
_EmptyHeader: type[Exception] = vars(tarfile)["EmptyHeaderError"]
_EndOfArchive: type[Exception] = vars(tarfile)["EOFHeaderError"]


class _Info(tarfile.TarInfo):
    """A header that remembers how the archive ended."""

    @classmethod
    def fromtarfile(cls, tar: Any) -> "_Info":
        tar.ending = None
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError as error:
            tar.ending = error
            raise


def _tar(source: Source, limits: Limits, read_member: ReadMember, no_data: NoData) -> Iterator[Records]:
    stream = _Stream(source)
    last = "the beginning"
    skipped: list[tuple[str, str]] = []
    fault: DamagedStream | None = None
    tar: Any = None
    try:
        stream.bound = MAX_HEADER_BYTES
        with _faults("the first header"):
            tar = tarfile.open(fileobj=stream, mode="r|", tarinfo=_Info, bufsize=READ_BYTES)  # type: ignore[call-overload]  # noqa: SIM115 - closed with its source
        while True:
            stream.bound = max(stream.position, tar.offset) + MAX_HEADER_BYTES
            with _faults("a header"):
                info = tar.next()
            tar.members = []  # tarfile keeps every header it has met
            if info is None:
                break
            stream.bound = None
            name = _printable(info.name)
            if info.size < 0:
                raise DamagedStream("damaged_archive", f"a member of {info.size} bytes")
            reason = None if info.isdir() else no_data(name)
            if reason is not None:
                skipped.append((name, reason))
                yield from _skipped(limits, skipped)
            elif not info.isdir():
                if not info.isreg() or info.issparse():
                    kind = "a sparse file" if info.isreg() else "a link" if info.issym() or info.islnk() else "a device"
                    yield _one(limits, _bad("the whole file", "not_a_file", f"is {kind}", member=name))
                else:
                    with _faults("a member"):
                        content = tar.extractfile(info)
                    member = _source(source, name, _Member(content, info.size), limits)
                    yield from _labelled(read_member(member), name)
            # What is left of the member is read here: tarfile would go on to skip a size of exabytes after the end.
            _Member(tar.fileobj, tar.offset - tar.fileobj.tell()).drain()
            last = name
        if isinstance(tar.ending, _EmptyHeader):
            fault = DamagedStream("truncated", "the archive has no end mark")
        elif tar.ending is not None and not isinstance(tar.ending, _EndOfArchive):
            fault = DamagedStream("damaged_archive", str(tar.ending))
        elif (num_bytes := _num_bytes_after(tar)) > 0:
            fault = DamagedStream("damaged_archive", f"{num_bytes} bytes after the end mark, from the first not zero")
    except DamagedStream as damage:
        fault = damage
    if skipped:
        yield dataclasses.replace(Batch(limits).take(), skipped=tuple(skipped))
    fault = stream.damage or fault
    if fault is not None:
        place = f"after {last}, byte {stream.position} of the archive"
        yield _one(limits, _bad(place, fault.reason, fault.detail))


def _num_bytes_after(tar: Any) -> int:
    """How many bytes stand after the end mark, from the first on that is not zero."""
    found = 0
    while data := tar.fileobj.read(READ_BYTES):
        found += len(data) if found else len(data.lstrip(b"\0"))
    return found


def _source(outer: Source, name: str, member: _Member, limits: Limits) -> Source:
    return Source(name, member, limits, allowance=outer.allowance, depth=outer.depth + 1)


# ------------------------------------------------------------------------------------------------------------------ zip

_LINK, _TYPE_BITS = 0o120000, 0o170000


def _zip(source: Source, limits: Limits, read_member: ReadMember, no_data: NoData) -> Iterator[Records]:
    last = "the beginning"
    skipped: list[tuple[str, str]] = []
    try:
        with source.local_file() as path, contextlib.ExitStack() as closing:
            with _faults("the directory"):
                archive = closing.enter_context(zipfile.ZipFile(path))
            # ZipFile counts from where the archive whose directory it found begins, and leaves what is before it.
            first = min((info.header_offset for info in archive.infolist()), default=archive.start_dir)
            if first > 0:
                yield _one(limits, _bad(f"the first {first} bytes", "damaged_archive", "no member is there", source))
            for info in archive.infolist():
                name = _printable(info.filename)
                if info.is_dir():
                    continue
                if (reason := no_data(name)) is not None:
                    skipped.append((name, reason))
                    yield from _skipped(limits, skipped)
                    continue
                last = name
                if info.external_attr >> 16 & _TYPE_BITS == _LINK:
                    yield _one(limits, _bad("the whole file", "not_a_file", "is a link", member=name))
                elif info.flag_bits & 1:
                    yield _one(limits, _bad("the whole file", "encrypted", "needs a password", member=name))
                else:
                    yield from _labelled(_zip_member(archive, info, name, source, limits, read_member), name)
    except DamagedStream as damage:
        yield _one(limits, _bad(f"after {last}", damage.reason, damage.detail, source))
    if skipped:
        yield dataclasses.replace(Batch(limits).take(), skipped=tuple(skipped))


def _zip_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, source: Source, limits: Limits, read_member: ReadMember
) -> Iterator[Records]:
    try:
        with _faults("the member"):
            stream = archive.open(info)
    except DamagedStream as damage:
        yield _one(limits, _bad("the whole file", damage.reason, damage.detail))
        return
    with stream:
        # A zip's stream tells its own end and checks it.
        yield from read_member(_source(source, name, _Member(stream, None), limits))


ARCHIVES: dict[str, Callable[[Source, Limits, ReadMember, NoData], Iterator[Records]]] = {"tar": _tar, "zip": _zip}
