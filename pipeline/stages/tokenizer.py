"""The data set's tokenizer: a given one, or one trained on what was kept; either way copied beside the data under its
sha256.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.config import TokenizerConfig
from pipeline.documents import DocumentsFile, open_parquet
from pipeline.identity import identities
from pipeline.runtime import Runtime, Summary, Unit
from pipeline.stages.deduplicate import Dropped
from pipeline.stages.outcome import kept_rows
from pipeline.tokenization import (
    Tokenizer,
    read_tokenizer,
    read_tokenizer_file,
    train_tokenizer,
)

FORMAT = 1
MAX_TRAINING_BYTES = 100_000_000
"""Text a tokenizer learns from at most: merges hardly change past it, and it is held in memory, about 12 times over,
while training.
"""


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """Train a tokenizer on a sample of the kept documents."""

    files: tuple[DocumentsFile, ...]
    dropped_url: str
    fraction: float
    """Share of the documents to learn from."""
    seed: int
    vocab_size: int
    folder: str
    """Where tokenizers lie: `<root>/tokenizers`."""


def train(task: TrainTask) -> Summary:
    """Write the trained tokenizer.json under its sha256."""
    keys, texts = [], []
    for file in task.files:
        kept = kept_rows(task.dropped_url, file)
        with open_parquet(file.url) as parquet:
            start = 0
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group, columns=["id", "content_hash"])
                own = identities(task.seed, file.source, table["id"].to_pylist(), table["content_hash"].to_pylist())
                # The draw for repeats serves as the sample's: both only ask for a fraction that nothing else depends
                # on.
                chosen = kept[start : start + table.num_rows] & (own.repeat_draws < task.fraction)
                start += table.num_rows
                if chosen.any():  # of a large corpus, most batches give nothing: then their text is not read
                    keys.append(own.keys[chosen])
                    text = parquet.read_row_group(group, columns=["text"])["text"]
                    texts += text.filter(pa.array(chosen)).to_pylist()
    # In key order, so that neither the listing nor the cutting into units decides how equal merges are ranked.
    both = np.concatenate([np.empty((0, 2), np.uint64), *keys])
    order = np.lexsort((both[:, 1], both[:, 0]))
    data = train_tokenizer([texts[i] for i in order], task.vocab_size)
    tokenizer = read_tokenizer(data)
    url = storage.join(task.folder, f"{tokenizer.sha256}.json")
    storage.write_bytes(url, data)
    return {"url": url, "num_documents": len(texts), "files": [url]}


def given_tokenizer(config: TokenizerConfig) -> Tokenizer | None:
    """The tokenizer that the config names, None where one is to be trained; checked before any text is read.

    Raises:
        TokenizerError: no such file, no tokenizer, no EOS, or one that text can give.
    """
    if config.path is None:
        return None
    return read_tokenizer(read_tokenizer_file(config.path), eos=config.eos, bos=config.bos)


def in_words(tokenizer: Tokenizer, engine: str) -> str:
    """Which special tokens and which engine a build goes on with."""
    special_ids = tokenizer.special_ids
    bos = "no BOS" if special_ids.bos is None else f"BOS {special_ids.bos}"
    return f"tokenizer of {tokenizer.vocab_size:,} ids, EOS {special_ids.eos}, {bos}; encoding by {engine}"


@dataclass(frozen=True, kw_only=True)
class TrainingTexts:
    """What a tokenizer is trained on: the kept documents, or a sample of them."""

    files: tuple[DocumentsFile, ...]
    dropped: Dropped
    num_bytes: int
    """UTF-8 bytes of what is kept."""
    seed: int


def trained_tokenizer(runtime: Runtime, root: str, texts: TrainingTexts, config: TokenizerConfig) -> Tokenizer:
    """A tokenizer of the corpus's own, which lies in `root` under its sha256."""
    assert config.train is not None, "the config holds path or train"
    task = TrainTask(
        files=texts.files,
        dropped_url=texts.dropped.url,
        fraction=min(1.0, MAX_TRAINING_BYTES / max(1, texts.num_bytes)),
        seed=texts.seed,
        vocab_size=config.train.vocab_size,
        folder=storage.join(root, "tokenizers"),
    )
    key = fingerprint(["tokenizer", FORMAT, texts.dropped.key, task.seed, task.vocab_size, task.fraction])
    [trained] = runtime.run("tokenizer", train, [Unit(key=key, label="training", task=task)])
    return read_tokenizer(storage.read_bytes(trained["url"]), eos=config.eos, bos=config.bos)
