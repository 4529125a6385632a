"""The shard: a plain USTAR file that is also an array with a fixed stride.

    +-- stride bytes ------------------------------------------------------+
    | tar header 512 | npy header 128 | seq_len little-endian tokens | 0 … | x num_examples, then two zero blocks of 512

Tokens of example i start at `i * stride + 640`, so a reader finds them by arithmetic: by mmap, or by one range request.
GNU tar, `tarfile` and stock `webdataset` read the same file; one member is one example.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from manifests.errors import UserError

TAR_BLOCK = 512
NPY_HEADER = 128
TOKENS_OFFSET = TAR_BLOCK + NPY_HEADER
END_OF_TAR = bytes(2 * TAR_BLOCK)

# webdataset ends a key at the first dot, and a member's name must fit USTAR's 100 bytes: 40 + 27 do.
VERSION_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
# The widths of the two numbers in a member's name. Wider ones would no longer sort as text.
MAX_SHARDS = 10**6
MAX_EXAMPLES_PER_SHARD = 10**8

# USTAR holds a member's size in 11 octal digits.
_MAX_MEMBER_BYTES = 8**11 - 1
# Rows are framed and written this many bytes at a time: small enough for the L2 cache, where the hash finds them again.
_WRITE_BYTES = 1 << 20

_CHECKSUM_AT = 148
_NUM_CHECKSUM_DIGITS = 6


class ShardError(UserError):
    """Bytes or numbers that do not make a shard."""


def check_version_name(version: str) -> str:
    """`version` itself; raises ShardError unless it is 1 to 40 of letters, digits, `-` and `_`."""
    if not VERSION_NAME.fullmatch(version):
        raise ShardError(f"version {version!r} is not a version name: use 1 to 40 of A-Z a-z 0-9 _ -")
    return version


@dataclass(frozen=True, kw_only=True)
class ExampleFormat:
    """What one example is: `seq_len` tokens of `dtype`, and how documents were laid into it."""

    seq_len: int
    dtype: Literal["uint16", "uint32"]
    packing: Literal["concat", "best_fit"]

    def __post_init__(self) -> None:
        if type(self.seq_len) is not int or self.seq_len < 1:
            raise ShardError(f"example.seq_len is {self.seq_len!r}: give a whole number of tokens, 1 or more")
        if self.dtype not in ("uint16", "uint32"):
            raise ShardError(f"example.dtype is {self.dtype!r}: it is uint16 or uint32")
        if self.packing not in ("concat", "best_fit"):
            raise ShardError(f"example.packing is {self.packing!r}: it is concat or best_fit")
        if self._member_num_bytes > _MAX_MEMBER_BYTES:
            raise ShardError(f"example.seq_len is {self.seq_len}: a tar member holds {_MAX_MEMBER_BYTES} bytes at most")

    @classmethod
    def dtype_for(cls, vocab_size: int) -> Literal["uint16", "uint32"]:
        """The narrowest dtype for ids 0 .. vocab_size - 1 that leaves its largest value free for padding."""
        return "uint16" if vocab_size <= np.iinfo(np.uint16).max else "uint32"

    @property
    def numpy_dtype(self) -> np.dtype:
        """Little-endian, whatever the machine."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def itemsize(self) -> int:
        return self.numpy_dtype.itemsize

    @property
    def padding_id(self) -> int:
        """The dtype's largest value: never a real token's id."""
        return int(np.iinfo(self.dtype).max)

    @property
    def stride(self) -> int:
        """Bytes from one example to the next.

        >>> ExampleFormat(seq_len=4096, dtype="uint32", packing="concat").stride
        17408
        """
        return TAR_BLOCK + -(-self._member_num_bytes // TAR_BLOCK) * TAR_BLOCK

    @property
    def _member_num_bytes(self) -> int:
        return NPY_HEADER + self.seq_len * self.itemsize

    def shard_num_bytes(self, num_examples: int) -> int:
        """The exact size of a shard file."""
        return num_examples * self.stride + len(END_OF_TAR)

    def max_examples(self, max_bytes: int) -> int:
        """The most examples a file of at most `max_bytes` holds; 0 where not even one fits."""
        fitting = (max_bytes - len(END_OF_TAR)) // self.stride
        return min(max(0, fitting), MAX_EXAMPLES_PER_SHARD)

    def to_json(self) -> dict[str, Any]:
        return {"seq_len": self.seq_len, "dtype": self.dtype, "stride": self.stride, "packing": self.packing}

    @classmethod
    def from_json(cls, value: Any) -> "ExampleFormat":
        """Raises ShardError for unknown or missing keys, wrong types, and a stride that the other fields contradict."""
        expected = {"seq_len", "dtype", "stride", "packing"}
        if not isinstance(value, dict) or set(value) != expected:
            keys = sorted(value) if isinstance(value, dict) else value
            raise ShardError(f"example has {keys!r}: it needs exactly the keys {sorted(expected)}")
        example = cls(seq_len=value["seq_len"], dtype=value["dtype"], packing=value["packing"])
        if type(value["stride"]) is not int or value["stride"] != example.stride:
            raise ShardError(
                f"example.stride is {value['stride']!r}, "
                f"but {example.seq_len} tokens of {example.dtype} need {example.stride}"
            )
        return example


@dataclass(frozen=True, kw_only=True)
class ShardDigest:
    """What was written: 64 hex digits over the whole file, and its size."""

    sha256: str
    num_bytes: int


class ByteSink(Protocol):
    """Anything with a file's `write`."""

    def write(self, data: memoryview, /) -> int | None: ...


class Framing:
    """The bytes around the tokens of one shard's examples: pure, and the same for writer and verifier."""

    def __init__(self, *, version: str, shard: int, format: ExampleFormat) -> None:
        check_version_name(version)
        if not 0 <= shard < MAX_SHARDS:
            raise ShardError(f"shard number {shard} is outside 0 .. {MAX_SHARDS - 1}: raise shards.max_bytes")
        self.format = format
        prefix = f"{version}-{shard:06d}-"
        template = _tar_header(f"{prefix}{0:08d}.tokens.npy", format._member_num_bytes) + npy_header(format)
        self._template = np.frombuffer(template, dtype=np.uint8)
        self._index_at = slice(len(prefix), len(prefix) + 8)
        self._checksum_of_zero = _checksum(template[:TAR_BLOCK])

    def empty_rows(self, num_rows: int) -> np.ndarray:
        """uint8 (num_rows, stride): framed, with zeros for tokens. `number` gives the rows their names."""
        rows = np.zeros((num_rows, self.format.stride), dtype=np.uint8)
        rows[:, :TOKENS_OFFSET] = self._template
        return rows

    def number(self, rows: np.ndarray, first: int) -> None:
        """Writes into `rows`, uint8 (k, >= TOKENS_OFFSET), the names and checksums of examples first .. first+k-1."""
        digits = _digits(np.arange(first, first + len(rows)), base=10, width=8)
        # Only the digits differ from the template's header, so the checksum moves by their sum.
        checksums = self._checksum_of_zero + digits.sum(axis=1)
        rows[:, self._index_at] = digits + ord("0")
        rows[:, _CHECKSUM_AT : _CHECKSUM_AT + _NUM_CHECKSUM_DIGITS] = _digits(
            checksums, base=8, width=_NUM_CHECKSUM_DIGITS
        ) + ord("0")

    def tokens_of(self, rows: np.ndarray) -> np.ndarray:
        """The tokens inside framed rows, (k, seq_len), as a view."""
        num_bytes = self.format.seq_len * self.format.itemsize
        return rows[:, TOKENS_OFFSET : TOKENS_OFFSET + num_bytes].view(self.format.numpy_dtype)


def write_shard(
    stream: ByteSink,
    blocks: Iterable[np.ndarray],
    *,
    version: str,
    shard: int,
    num_examples: int,
    format: ExampleFormat,
) -> ShardDigest:
    """Writes one shard from blocks of examples, each (k, seq_len) of the format's dtype; returns its sha256 and size.

    Raises ShardError, before the end of the archive is written, where the blocks hold another number of examples than
    `num_examples`, or have another dtype: a cast here could wrap ids silently. Give `stream` an atomic writer.
    """
    if not 1 <= num_examples <= MAX_EXAMPLES_PER_SHARD:
        raise ShardError(f"a shard of {num_examples} examples: a shard holds 1 to {MAX_EXAMPLES_PER_SHARD}")
    framing = Framing(version=version, shard=shard, format=format)
    rows = framing.empty_rows(min(num_examples, max(1, _WRITE_BYTES // format.stride)))
    tokens = framing.tokens_of(rows)
    hasher = hashlib.sha256()

    def put(data: memoryview) -> None:
        hasher.update(data)
        written = stream.write(data)
        if written is not None and written != len(data):
            raise OSError(f"a write took {written} of {len(data)} bytes: give write_shard a buffered stream")

    num_written = num_filled = 0
    for block in blocks:
        _check_block(block, format)
        start = 0
        while start < len(block):
            taken = min(len(block) - start, len(rows) - num_filled)
            tokens[num_filled : num_filled + taken] = block[start : start + taken]
            start += taken
            num_filled += taken
            if num_filled == len(rows):
                _check_count(num_written + num_filled, num_examples, more=True)
                framing.number(rows, num_written)
                put(rows.data.cast("B"))
                num_written += num_filled
                num_filled = 0
    _check_count(num_written + num_filled, num_examples, more=False)
    if num_filled:
        framing.number(rows[:num_filled], num_written)
        put(rows[:num_filled].data.cast("B"))
    put(memoryview(END_OF_TAR))
    return ShardDigest(sha256=hasher.hexdigest(), num_bytes=format.shard_num_bytes(num_examples))


def num_examples_in(num_bytes: int, format: ExampleFormat) -> int:
    """How many examples a shard file of this size holds; ShardError where no whole number does."""
    num_examples, rest = divmod(num_bytes - len(END_OF_TAR), format.stride)
    if rest or num_examples < 1:
        raise ShardError(
            f"{num_bytes} bytes are not a shard of examples with stride {format.stride}: "
            f"the size must be num_examples * {format.stride} + {len(END_OF_TAR)}; the file is cut or of another format"
        )
    return num_examples


def view_examples(buffer: Any, format: ExampleFormat) -> np.ndarray:
    """The tokens of a whole shard's bytes: (num_examples, seq_len), read-only, without a copy.

    `buffer` is bytes, a mmap, an array, whatever numpy.frombuffer takes, and the view keeps it alive. Raises ShardError
    where the size does not fit.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    num_examples = num_examples_in(data.nbytes, format)
    rows = data[: num_examples * format.stride].reshape(num_examples, format.stride)
    num_bytes = format.seq_len * format.itemsize
    examples = rows[:, TOKENS_OFFSET : TOKENS_OFFSET + num_bytes].view(format.numpy_dtype)
    examples.flags.writeable = False
    return examples


def npy_header(format: ExampleFormat) -> bytes:
    """The 128 bytes numpy itself writes before a (seq_len,) array, version 1.0."""
    text = f"{{'descr': '{format.numpy_dtype.str}', 'fortran_order': False, 'shape': ({format.seq_len},), }}"
    prelude = b"\x93NUMPY\x01\x00" + (NPY_HEADER - 10).to_bytes(2, "little")
    return prelude + text.ljust(NPY_HEADER - len(prelude) - 1).encode("ascii") + b"\n"


def _tar_header(name: str, num_bytes: int) -> bytes:
    """One USTAR header, as GNU tar writes it for `--format=ustar --mode=0644 --owner=0 --group=0 --mtime=@0`."""
    fields = (
        name.encode("ascii").ljust(100, b"\0"),
        b"0000644\0",  # mode
        b"0000000\0",  # uid
        b"0000000\0",  # gid
        b"%011o\0" % num_bytes,
        b"%011o\0" % 0,  # mtime
        b" " * 8,  # the checksum counts as spaces while it is summed
        b"0",  # a regular file
        bytes(100),  # no link
        b"ustar\0" + b"00",
        bytes(32) + bytes(32),  # no user or group name
        b"0000000\0" + b"0000000\0",  # no device
    )
    header = b"".join(fields).ljust(TAR_BLOCK, b"\0")
    checksum = b"%06o\0 " % sum(header)
    return header[:_CHECKSUM_AT] + checksum + header[_CHECKSUM_AT + len(checksum) :]


def _checksum(header: bytes) -> int:
    return int(header[_CHECKSUM_AT : _CHECKSUM_AT + _NUM_CHECKSUM_DIGITS], 8)


def _digits(values: np.ndarray, *, base: int, width: int) -> np.ndarray:
    """uint8 (len(values), width): the digits of each value, most significant first."""
    powers = base ** np.arange(width - 1, -1, -1)
    return (values[:, None] // powers % base).astype(np.uint8)


def _check_block(block: np.ndarray, format: ExampleFormat) -> None:
    if block.ndim != 2 or block.shape[1] != format.seq_len:
        raise ShardError(f"a block of shape {block.shape} is not (k, {format.seq_len}): one row an example")
    if block.dtype != format.numpy_dtype:
        raise ShardError(f"a block of {block.dtype} for a shard of {format.dtype}: convert it where its range is known")


def _check_count(found: int, expected: int, *, more: bool) -> None:
    if found > expected or (found < expected and not more):
        raise ShardError(f"the blocks hold {found}{' or more' if more else ''} examples, the plan says {expected}")
