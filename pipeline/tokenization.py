"""Text -> token ids: the reference engine, a fast one that must equal it, and the rules for special tokens.

1. A tokenizer is the bytes of a `tokenizer.json`, kept beside the data set under its sha256.
2. Text is encoded with a copy of it whose `added_tokens` is empty, so that the names of special tokens in user text
   come out as plain text. The switch `encode_special_tokens` of `tokenizers` neutralises only those marked special, and
   real tokenizers have dozens that are not (`<think>`, `<|EOT|>`).
3. EOS ends every document and stands nowhere else; BOS begins every document where the tokenizer itself says so. We
   append both.
4. `tokenizers` is the reference. A fast engine is used only where it gave equal ids on HARD_TEXTS for this very
   tokenizer; every task compares a sample of its own texts again, and a difference fails the build by the document's
   name.

Measured 2026-11-29 on a 2-core x86-64 machine, one core, 7.9 MB of English and Russian documentation, 128k vocabulary:
`tokenizers` 0.23.3 2.3 MB per core-second, `fastokens` 0.3.5 45 on a cold cache; ids equal.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from manifests import storage
from manifests.errors import UserError

# Names under which published tokenizers know the end of a document, the commonest first; `tokenizer.eos` in the config
# wins over them.
KNOWN_EOS = (
    "<|endoftext|>",
    "<｜end▁of▁sentence｜>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<EOT>",
    "<|im_end|>",
    "[SEP]",
)

# Texts that tell engines apart: scripts, forms, long runs, controls, names of special tokens, white space, numbers.
HARD_TEXTS = (
    "",
    " ",
    "\n\n\n \t\r\n  x",
    "The quick brown fox jumps over the lazy dog's tail, 12345678901 times.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю — №42, «ёлка».",
    "日本語とカタカナ、한국어, ไทย, العربية, עברית, हिन्दी, ελληνικά",
    "e\u0301 é ﬁ x² ½ Ⅷ ａｂｃ İstanbul ǅ ß ẞ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇷🇺 👍🏽 \u200d\u200b\ufeff",
    "a\u0300\u0301\u0302\u0303\u0304\u0305 z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "\x01\x02\x1b[31mred\x1b[0m\x7f\x80\x85\u2028\u2029\u3000",
    "=" * 3000 + "a" * 3000 + "я" * 3000 + " " * 3000,
    "<|endoftext|></s><s><|im_start|>user<think>x</think><｜User｜>[SEP][CLS]<pad><0x0A>▁▁Ġ",
    "def f(x):\n    return x**2  # don't I'm we'll THEY'VE o'clock\n",
    "https://example.org/a?b=c&d=%20#e user000001@example.org 192.0.2.1 v1.2.3-rc4 0xDEADBEEF",
    "\U0001fae8\U000e0041\ue000\U0010ffff\ufffd",
)


class TokenizerError(UserError):
    """The tokenizer cannot be used as asked."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A tokenizer and its rules, checked when read. Build it with `read_tokenizer`."""

    data: bytes
    """The tokenizer.json as it was given."""
    plain_json: str
    """The same without added tokens, truncation and padding: what text is encoded with."""
    vocab_size: int
    """Every id that can occur is below it, added tokens included."""
    eos_id: int
    bos_id: int | None
    """Begins every document, where not None."""

    @property
    def sha256(self) -> str:
        """64 hex digits over `data`."""
        return hashlib.sha256(self.data).hexdigest()


def read_tokenizer(data: bytes, *, eos: str | None = None, bos: str | None = None) -> Tokenizer:
    """Read a tokenizer.json and settle its EOS and BOS.

    Args:
        data: the file's bytes.
        eos: the token that ends a document; None looks for one of KNOWN_EOS.
        bos: the token that begins one; None takes what the tokenizer's own post-processor puts before a text, mostly
        nothing.

    Raises:
        TokenizerError: not a tokenizer.json, no EOS to be found, or one that the vocabulary lacks.
    """
    import tokenizers  # slow to import, and needed only where text is encoded

    try:
        fields = json.loads(data)
        whole = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise TokenizerError(f"tokenizer.path: not a tokenizer.json that `tokenizers` reads: {error}") from error
    # A file may carry truncation and padding: every text would become exactly 128 ids, without a warning.
    plain_json = json.dumps({**fields, "added_tokens": [], "truncation": None, "padding": None}, ensure_ascii=False)
    vocabulary: dict[str, int] = whole.get_vocab(with_added_tokens=True)
    eos_id = _eos_id(vocabulary, eos)
    bos_id = _own_bos_id(whole) if bos is None else _id_of(vocabulary, "bos", bos)
    return Tokenizer(
        data=data,
        plain_json=plain_json,
        vocab_size=max(vocabulary.values()) + 1,
        eos_id=eos_id,
        bos_id=None if bos_id == eos_id else bos_id,  # GPT-2 uses one token for both; EOS must stand only at an end
    )


def _eos_id(vocabulary: dict[str, int], eos: str | None) -> int:
    if eos is not None:
        return _id_of(vocabulary, "eos", eos)
    for name in KNOWN_EOS:
        if name in vocabulary:
            return vocabulary[name]
    raise TokenizerError(
        "tokenizer.eos: this tokenizer has none of the known end-of-document tokens"
        f" ({', '.join(KNOWN_EOS)}): name the one to use"
    )


def _id_of(vocabulary: dict[str, int], key: str, token: str) -> int:
    if token not in vocabulary:
        raise TokenizerError(
            f"tokenizer.{key} is {token!r}, which is not among the tokenizer's {len(vocabulary):,} tokens: correct it"
        )
    return vocabulary[token]


def _own_bos_id(whole: Any) -> int | None:
    """The id that the tokenizer's own post-processor puts before a text, if any."""
    whole.no_truncation()
    whole.no_padding()
    with_rule = whole.encode("a", add_special_tokens=True)
    without = whole.encode("a", add_special_tokens=False).ids
    if not without or len(with_rule.ids) <= len(without) or not with_rule.special_tokens_mask[0]:
        return None
    return int(with_rule.ids[0])


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> bytes:
    """Train a byte-level BPE tokenizer with one special token, `<|endoftext|>`; equal texts in equal order give equal
    bytes.

    Args:
        texts: what to learn from; the caller bounds it.
        vocab_size: ids wanted, at least 257 (256 bytes and EOS); a small corpus may yield fewer.
    """
    from tokenizers import Tokenizer as HfTokenizer
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = HfTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[KNOWN_EOS[0]],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str().encode()


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

    def __init__(self, tokenizer: Tokenizer) -> None:
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer.plain_json)

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

    def __init__(self, tokenizer: Tokenizer) -> None:
        import fastokens

        self._tokenizer = fastokens.Tokenizer.from_json_str(tokenizer.plain_json)

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


def open_engines(tokenizer: Tokenizer, setting: str) -> Engines:
    """Load the engines in this process, on one thread, and prove the fast one on HARD_TEXTS.

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
    try:
        fast = FastEngine(tokenizer)
        different = first_difference(fast, reference, HARD_TEXTS)
    except (ValueError, RuntimeError, TypeError, UnicodeError) as error:
        return Engines(chosen=reference, reference=reference, why=f"fastokens cannot read this tokenizer: {error}")
    if different is not None:
        text = HARD_TEXTS[different]
        return Engines(chosen=reference, reference=reference, why=f"fastokens gives other ids for {text[:40]!r}")
    return Engines(chosen=fast, reference=reference, why=f"ids equal to tokenizers' on {len(HARD_TEXTS)} hard texts")


def first_difference(engine: Engine, reference: Engine, texts: Sequence[str]) -> int | None:
    """The index of the first text for which two engines give other ids, or None."""
    ids, offsets = engine.encode(texts)
    right, right_offsets = reference.encode(texts)
    for i in range(len(texts)):
        if not np.array_equal(ids[offsets[i] : offsets[i + 1]], right[right_offsets[i] : right_offsets[i + 1]]):
            return i
    return None


def with_special_tokens(ids: np.ndarray, offsets: np.ndarray, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Put BOS (where there is one) before and EOS after every document.

    >>> with_special_tokens([5, 6, 7], [0, 2, 3], eos 0, no BOS)  ->  [5, 6, 0, 7, 0], [0, 3, 5]

    Raises:
        ValueError: naming the document's index, when EOS (or BOS) came out of its text.
    """
    head = 0 if tokenizer.bos_id is None else 1
    lengths = np.diff(offsets)
    for special in {tokenizer.eos_id, tokenizer.bos_id} - {None}:
        found = np.flatnonzero(ids == special)
        if found.size:
            document = int(np.searchsorted(offsets, found[0], side="right")) - 1
            raise ValueError(f"document {document} of the batch: its text was encoded to the special id {special}")
    new_offsets = np.zeros_like(offsets)
    np.cumsum(lengths + head + 1, out=new_offsets[1:])
    out = np.empty(new_offsets[-1], ids.dtype)
    # Every text token moves right by what was inserted before it: (head + 1) a document before its own, and its own
    # head.
    moved = np.repeat(new_offsets[:-1] + head - offsets[:-1], lengths)
    out[np.arange(len(ids)) + moved] = ids
    out[new_offsets[1:] - 1] = tokenizer.eos_id
    if tokenizer.bos_id is not None:
        out[new_offsets[:-1]] = tokenizer.bos_id
    return out, new_offsets


def read_tokenizer_file(path: str) -> bytes:
    """The bytes of a tokenizer.json, given its path or url, or the local folder that holds it."""
    if storage.local_path(path) is not None and Path(path).is_dir():
        path = str(Path(path) / "tokenizer.json")
    try:
        return storage.read_bytes(path)
    except FileNotFoundError as error:
        raise TokenizerError(f"tokenizer.path: {path} does not exist: name a tokenizer.json or its folder") from error
