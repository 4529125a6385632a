"""The engines: `tokenizers`, whose ids define what is right, and a fast one used only after it has proved equal.

`fastokens` 0.3.5 reads byte-level BPE (GPT-2, Qwen, DeepSeek, Llama 3) and SentencePiece-style BPE written with a
normalizer; it says no to Metaspace, Unigram, WordPiece, and to the normalizers NFKC and BERT's. There the reference
encodes, some forty times slower, and the build says so. Speeds, memory and how both were measured: docs/tokens.md.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.tokenization.hard_texts import hard_texts
from pipeline.tokenization.plain import PlainTokenizer

# What fastokens raises: for a tokenizer.json it cannot read, and for a text on which its regular expressions run out of
# steps.
FAST_ENGINE_ERRORS = (ValueError, RuntimeError, TypeError)


class Engine(Protocol):
    """Encodes a batch of texts as plain text."""

    name: str

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts end to end, uint32, and where each begins and ends in them, int64 of shape (len(texts) +
        1,).
        """
        ...


class ReferenceEngine:
    """`tokenizers`, whose ids define what is right."""

    name = "tokenizers"

    def __init__(self, tokenizer: PlainTokenizer) -> None:
        self._tokenizer = tokenizer.loaded

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """See Engine."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        offsets = np.zeros(len(encodings) + 1, np.int64)
        np.cumsum([len(encoding.ids) for encoding in encodings], out=offsets[1:])
        ids = np.empty(offsets[-1], np.uint32)
        for encoding, start, end in zip(encodings, offsets, offsets[1:], strict=False):
            ids[start:end] = encoding.ids
        return ids, offsets


class FastEngine:
    """`fastokens`, used only after it has proved equal."""

    name = "fastokens"

    def __init__(self, tokenizer: PlainTokenizer) -> None:
        import fastokens

        self._tokenizer = fastokens.Tokenizer.from_json_str(tokenizer.json)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """See Engine."""
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts))
        return np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Engines:
    """The engine a build encodes with, and the reference it is held against."""

    chosen: Engine
    reference: Engine
    why: str
    """One clause for the log: why this one was chosen."""


def open_engines(tokenizer: PlainTokenizer, setting: str) -> Engines:
    """Load the engines in this process, on one thread, and prove the fast one on hard_texts.

    Args:
        tokenizer: what to encode with.
        setting: "auto" or "reference" (`tokenizer.engine`).
    """
    # A task owns one core; both libraries would start a thread a core of the whole machine otherwise.
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    reference = ReferenceEngine(tokenizer)
    if setting == "reference":
        return Engines(chosen=reference, reference=reference, why="asked for")
    texts = hard_texts(tokenizer)
    try:
        fast = FastEngine(tokenizer)
        different = first_difference(fast, reference, texts)
    except FAST_ENGINE_ERRORS as error:
        return Engines(chosen=reference, reference=reference, why=f"fastokens cannot read this tokenizer: {error}")
    if different is not None:
        return Engines(
            chosen=reference, reference=reference, why=f"fastokens gives other ids for {texts[different][:40]!r}"
        )
    return Engines(chosen=fast, reference=reference, why=f"ids equal to tokenizers' on {len(texts)} hard texts")


def first_difference(engine: Engine, reference: Engine, texts: Sequence[str]) -> int | None:
    """The index of the first text for which two engines give other ids, or None."""
    ids, offsets = engine.encode(texts)
    right, right_offsets = reference.encode(texts)
    for i in range(len(texts)):
        if not np.array_equal(ids[offsets[i] : offsets[i + 1]], right[right_offsets[i] : right_offsets[i + 1]]):
            return i
    return None


def encode_surely(engines: Engines, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int]:
    """Encode by the chosen engine; where it gives up on a text, that one by the reference, whose ids are right by
    definition: no text stops a build.

    Returns:
        ids, offsets, as Engine.encode, and how many texts the reference had to encode.
    """
    try:
        return (*engines.chosen.encode(texts), 0)
    except FAST_ENGINE_ERRORS:
        if engines.chosen is engines.reference:
            raise
    parts, num_by_reference = [], 0
    for text in texts:
        try:
            parts.append(engines.chosen.encode([text])[0])
        except FAST_ENGINE_ERRORS:
            parts.append(engines.reference.encode([text])[0])
            num_by_reference += 1
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate(parts), offsets, num_by_reference
