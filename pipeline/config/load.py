"""Configs from files, command lines and plain values; and their keys in words."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manifests.config_help import describe
from manifests.yaml_config import ConfigError, build, read_yaml_file, set_value
from pipeline.config.whole import BuildConfig

FIRST_TRY_VOCAB_SIZE = 8192


def parse(values: Mapping[str, Any]) -> BuildConfig:
    """The config that plain values (as YAML gives them) describe; ConfigError names the first wrong field."""
    return build(BuildConfig, values)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> BuildConfig:
    """The config in the YAML file at `path` with each `a.b=c` of `overrides` applied in order."""
    values = read_yaml_file(path)
    if not values:
        raise ConfigError(str(path), "holds no keys: a config starts with `name:`; see examples/")
    for assignment in overrides:
        set_value(values, assignment)
    return parse(values)


def from_arguments(
    inputs: Sequence[str], output: str, tokenizer: str | None = None, overrides: Sequence[str] = ()
) -> BuildConfig:
    """The config of a first try without a file: --input PATH... --output ROOT [--tokenizer T].

    One source named "input"; the data set is named by the last part of `output`, with what a name may not hold made
    "-". Without a tokenizer, the build trains one of 8,192 tokens.
    """
    last = output.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-")[:40] or "dataset"
    values: dict[str, Any] = {
        "name": name,
        "output": output,
        "sources": [{"name": "input", "paths": list(inputs)}],
        "tokenizer": {"path": tokenizer} if tokenizer else {"train": {"vocab_size": FIRST_TRY_VOCAB_SIZE}},
    }
    for assignment in overrides:
        set_value(values, assignment)
    return parse(values)


def describe_config(width: int) -> str:
    """Every key with its default and meaning, in lines of up to `width` columns."""
    return describe(BuildConfig, width)
