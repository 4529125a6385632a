"""From text to shards: tokenizer, examples, files, splits."""

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation

import dataclasses
from typing import Literal

from manifests.yaml_config import ConfigError, setting
from pipeline.config.fields import check

# 256 single bytes, the special tokens, and some merges: below this a byte-level vocabulary learns nothing.
MIN_TRAINED_VOCAB_SIZE = 300
MAX_TRAINED_VOCAB_SIZE = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A byte-level BPE tokenizer trained by the build on a sample of its own documents."""

    vocab_size: int = setting("tokens in the trained vocabulary, special tokens included")

    def __post_init__(self) -> None:
        check(
            MIN_TRAINED_VOCAB_SIZE <= self.vocab_size <= MAX_TRAINED_VOCAB_SIZE,
            "vocab_size",
            self.vocab_size,
            f"{MIN_TRAINED_VOCAB_SIZE} to {MAX_TRAINED_VOCAB_SIZE}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """A given tokenizer, or one to train."""

    path: str | None = setting("a tokenizer.json, local or s3://; either this or train", None)
    train: TrainConfig | None = setting("train one on this corpus; either this or path", None)
    engine: Literal["auto", "reference"] = setting(
        "auto: a fast engine checked against `tokenizers`; reference: only it", "auto"
    )
    eos: str | None = setting("the end-of-document token, where tokenizer.json alone does not tell", None)
    bos: str | None = setting("the begin-of-document token, where the model wants one", None)

    def __post_init__(self) -> None:
        if (self.path is None) == (self.train is None):
            both = "both path and train are" if self.path is not None else "neither path nor train is"
            raise ConfigError("", f"{both} set: give path (a tokenizer.json) or train (with vocab_size), exactly one")
        for name in ("path", "eos", "bos"):
            check(getattr(self, name) != "", name, "", "text that is not empty, or null")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleConfig:
    """One row of the training set."""

    seq_len: int = setting("tokens an example", 4096)
    packing: Literal["concat", "best_fit"] = setting(
        "concat: documents end to end, cut into rows; best_fit: only longer documents cut, rows padded", "concat"
    )

    def __post_init__(self) -> None:
        check(
            self.seq_len >= 2, "seq_len", self.seq_len, "2 or more (a model predicts each token from those before it)"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardsConfig:
    """How shards are cut."""

    max_bytes: int = setting("no shard file is larger", 256_000_000)

    def __post_init__(self) -> None:
        check(self.max_bytes >= 1, "max_bytes", self.max_bytes, "1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Documents held back from training."""

    fraction: float = setting(
        "share of the documents, chosen after deduplication by a keyed hash of their identity", 0.005
    )

    def __post_init__(self) -> None:
        check(0 <= self.fraction < 1, "fraction", self.fraction, "0 up to, not including, 1")
