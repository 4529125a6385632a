"""A tiny data set for the trainer's tests: random tokens with document ends, a validation split, a real tokenizer."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from manifests import ExampleFormat, TokenizerEntry, storage
from tests.datasets import EOS, write_manifest, write_split

SEQ_LEN = 32
# Not divisible by any number of ranks the tests use.
VOCAB_SIZE = 101
EXAMPLE = ExampleFormat(seq_len=SEQ_LEN, dtype="uint16", packing="concat")
# A model that takes a second to start and milliseconds a step.
TINY_MODEL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
}


def random_rows(num_examples: int, seed: int) -> np.ndarray:
    """uint16 (num_examples, SEQ_LEN): tokens with a pattern to learn, and an EOS about every ten."""
    random = np.random.default_rng(seed)
    rows = random.integers(2, 30, size=(num_examples, SEQ_LEN), dtype="<u2")
    rows[:, 1::2] = rows[:, ::2] + 40
    rows[random.random(rows.shape) < 0.1] = EOS
    return rows


def write_dataset(
    root: Path | str, train: Sequence[int] = (13, 20, 9), validation: Sequence[int] = (7,), version: str = "v1"
) -> str:
    """Shards of `train` and `validation` examples below `root`; returns the manifest's URL."""
    root = str(root)
    splits = {}
    for split, sizes in (("train", train), ("validation", validation)):
        rows = [random_rows(size, number + 100 * (split == "validation")) for number, size in enumerate(sizes)]
        splits[split] = write_split(root, rows, example=EXAMPLE, folder=f"shards/{split}", version=version)
    return write_manifest(root, splits, example=EXAMPLE, version=version, tokenizer=_write_tokenizer(root))


def _write_tokenizer(root: str) -> TokenizerEntry:
    vocabulary = {f"w{i}": i for i in range(VOCAB_SIZE)} | {"</s>": EOS}
    del vocabulary[f"w{EOS}"]
    special = {"id": EOS, "content": "</s>", "special": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special | flags],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    }
    data = json.dumps(tokenizer).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    path = f"tokenizers/{sha256}.json"
    storage.write_bytes(storage.join(root, path), data)
    return TokenizerEntry(path=path, sha256=sha256, vocab_size=VOCAB_SIZE, eos_id=EOS, bos_id=None)
