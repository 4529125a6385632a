"""The text that benchmarks run on: parts of the corpus as JSON lines in zstd, the same bytes every time.

    corpus/clean/<kind>/*.jsonl.zst -> from each file its first documents, in proportion to its size -> JSON lines

First documents rather than every n-th: a page and its revision stand near each other, and a sample must have near
duplicates as a corpus does.
"""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zstandard

from benchmarks.machine import REPOSITORY

KINDS = ("docs", "tickets", "mails")
ZSTD_LEVEL = 3


class CorpusError(ValueError):
    """There is no corpus to measure on."""


class _Record(msgspec.Struct):
    text: str


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Files made for a measurement."""

    files: tuple[Path, ...]
    num_documents: int
    num_bytes: int
    """UTF-8 bytes of the documents' text: what every rate is about."""

    @property
    def folder(self) -> Path:
        """Where the files lie, and nothing else."""
        return self.files[0].parent


def find_corpus(asked_for: str | None) -> Path:
    """The corpus: as asked, else SHARDMILL_CORPUS, else ../shared/corpus beside the checkout."""
    corpus = Path(asked_for or os.environ.get("SHARDMILL_CORPUS") or REPOSITORY.parent / "shared" / "corpus")
    if not (corpus / "clean").is_dir():
        raise CorpusError(f"no corpus at {corpus} (no folder clean/ in it): give --corpus or set SHARDMILL_CORPUS")
    return corpus


def make_by_kind(corpus: Path, kinds: Sequence[str], num_bytes: float, folder: Path) -> Texts:
    """`num_bytes` of text, each kind and each of its files in proportion, as one file a kind."""
    found = {kind: list(_files(corpus, kind)) for kind in kinds}
    fraction = num_bytes / sum(size for files in found.values() for lines in files for _, size in lines)
    chosen = {kind: [line for lines in files for line in _first(lines, fraction)] for kind, files in found.items()}
    return _write(folder, chosen)


def make_in_parts(corpus: Path, num_parts: int, num_bytes: float, folder: Path) -> Texts:
    """`num_bytes` of text of all kinds, its documents dealt in turn to `num_parts` files of about one size."""
    files = [lines for kind in KINDS for lines in _files(corpus, kind)]
    fraction = num_bytes / sum(size for lines in files for _, size in lines)
    chosen = [line for lines in files for line in _first(lines, fraction)]
    return _write(folder, {f"part-{part}": chosen[part::num_parts] for part in range(num_parts)})


def _files(corpus: Path, kind: str) -> Iterator[list[tuple[bytes, int]]]:
    """For each file of a kind, by name: its lines and the size of the text in each."""
    decoder = msgspec.json.Decoder(_Record)
    for path in sorted((corpus / "clean" / kind).glob("*.jsonl.zst")):
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
            yield [(line, len(decoder.decode(line).text.encode())) for line in io.BufferedReader(stream)]


def _first(lines: list[tuple[bytes, int]], fraction: float) -> Iterator[tuple[bytes, int]]:
    left = fraction * sum(size for _, size in lines)
    for line, size in lines:
        if left <= 0:
            return
        left -= size
        yield line, size


def _write(folder: Path, files: dict[str, list[tuple[bytes, int]]]) -> Texts:
    folder.mkdir(parents=True)
    paths = []
    for name, lines in files.items():
        paths.append(folder / f"{name}.jsonl.zst")
        paths[-1].write_bytes(zstandard.compress(b"".join(line for line, _ in lines), ZSTD_LEVEL))
    every = [size for lines in files.values() for _, size in lines]
    return Texts(files=tuple(paths), num_documents=len(every), num_bytes=sum(every))
