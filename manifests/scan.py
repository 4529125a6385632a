"""One shard's bytes, read once from first to last: what they are, and where they are not what the layout says."""

import hashlib
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from manifests.manifest import TokenizerEntry
from manifests.shard import END_OF_TAR, TAR_BLOCK, TOKENS_OFFSET, ExampleFormat, Framing

# Rows are checked this many bytes at a time: large enough for numpy to pay, small enough to stay in the cache.
_READ_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that does not hold: what was stated (by the manifest or the layout) and what was found."""

    field: str
    stated: object
    found: object


@dataclass(frozen=True, kw_only=True)
class ShardScan:
    """What a shard's bytes are. `eos_places` counts tokens from the shard's first one, int64, ascending."""

    sha256: str
    num_bytes: int
    num_tokens: int
    eos_places: np.ndarray
    problems: tuple[Problem, ...]


def scan_shard(
    stream: BinaryIO,
    *,
    version: str,
    shard: int,
    num_examples: int,
    format: ExampleFormat,
    tokenizer: TokenizerEntry,
) -> ShardScan:
    """Reads `stream` to its end in blocks. Of each kind of problem the first is reported, so that a file of another
    layout gives a handful of lines, not one an example.
    """
    framing = Framing(version=version, shard=shard, format=format)
    rows = framing.empty_rows(max(1, _READ_BYTES // format.stride))
    frames = framing.empty_rows(len(rows))[:, :TOKENS_OFFSET]
    hasher = hashlib.sha256()
    problems: dict[str, Problem] = {}
    eos_places = []
    num_bytes = num_scanned = num_padding = 0
    while num_scanned < num_examples:
        wanted = rows[: num_examples - num_scanned]
        data = wanted.reshape(-1).data
        num_read = _read_into(stream, data)
        hasher.update(data[:num_read])
        num_bytes += num_read
        block = wanted[: num_read // format.stride]
        framing.number(frames[: len(block)], num_scanned)
        tokens = framing.tokens_of(block)
        is_padding = tokens == format.padding_id if format.packing == "best_fit" else None
        for problem in _problems_in(block, frames[: len(block)], tokens, is_padding, num_scanned, tokenizer):
            problems.setdefault(problem.field, problem)
        eos_places.append(np.flatnonzero(tokens == tokenizer.eos_id) + num_scanned * format.seq_len)
        num_padding += 0 if is_padding is None else int(np.count_nonzero(is_padding))
        num_scanned += len(block)
        if len(block) < len(wanted):
            break
    rest = stream.read(len(END_OF_TAR))
    while rest:
        if num_bytes == num_examples * format.stride and rest != END_OF_TAR:
            problem = Problem(field="end of archive", stated="two zero blocks", found="other bytes")
            problems.setdefault(problem.field, problem)
        hasher.update(rest)
        num_bytes += len(rest)
        rest = stream.read(_READ_BYTES)
    return ShardScan(
        sha256=hasher.hexdigest(),
        num_bytes=num_bytes,
        num_tokens=num_scanned * format.seq_len - num_padding,
        eos_places=np.concatenate([np.empty(0, np.int64), *eos_places]),
        problems=tuple(problems.values()),
    )


def _problems_in(
    rows: np.ndarray,
    frames: np.ndarray,
    tokens: np.ndarray,
    is_padding: np.ndarray | None,
    first: int,
    tokenizer: TokenizerEntry,
) -> list[Problem]:
    found = []
    wrong = rows[:, :TOKENS_OFFSET] != frames
    if wrong.any():
        row, column = _first(wrong)
        kind = "tar header" if column < TAR_BLOCK else "npy header"
        stated, actual = frames[row, column], rows[row, column]
        found.append(
            Problem(field=f"{kind} of example {first + row}, byte {column}", stated=int(stated), found=int(actual))
        )
    after_tokens = rows[:, TOKENS_OFFSET + tokens.shape[1] * tokens.itemsize :]
    if after_tokens.any():
        row, _ = _first(after_tokens != 0)
        found.append(Problem(field=f"bytes after the tokens of example {first + row}", stated="zeros", found="others"))
    # The maximum alone is twice as fast as a mask, and without padding it decides.
    if len(tokens) and (is_padding is not None or int(tokens.max()) >= tokenizer.vocab_size):
        outside = tokens >= tokenizer.vocab_size
        if is_padding is not None:
            outside &= ~is_padding
        if outside.any():
            row, column = _first(outside)
            place = f"token {column} of example {first + row}"
            stated = f"an id below {tokenizer.vocab_size}"
            found.append(Problem(field=place, stated=stated, found=int(tokens[row, column])))
    if is_padding is not None:
        early = is_padding[:, :-1] & ~is_padding[:, 1:]
        if early.any():
            row, column = _first(early)
            place = f"token {column} of example {first + row}"
            found.append(
                Problem(field=place, stated="padding only at an example's end", found="padding before a token")
            )
    return found


def _first(mask: np.ndarray) -> tuple[int, int]:
    row, column = divmod(int(mask.argmax()), mask.shape[1])
    return row, column


def _read_into(stream: BinaryIO, data: memoryview) -> int:
    """Fills `data`; fewer bytes only at the end of the stream."""
    num_read = 0
    while num_read < len(data):
        taken = stream.readinto(data[num_read:])  # type: ignore[attr-defined]  # every stream of storage.py has it
        if not taken:
            break
        num_read += taken
    return num_read
