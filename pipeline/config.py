"""The build's configuration: one YAML file, one frozen dataclass a stage.

    corpus.yaml + --set key=value  ->  load_config  ->  BuildConfig  ->  determining(config): what decides the data

Every key with its default and meaning is printed by `describe_config()` (the build's --help), from the fields below.
Relative paths (sources, output, tokenizer) are relative to the directory the command runs in, not to the config file,
so one config works with `ray job submit --working-dir`. `~` and $VARIABLES are taken as they stand: no hidden
expansion.
"""

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from manifests.config_help import describe
from manifests.errors import UserError
from manifests.shard import ExampleFormat
from manifests.yaml_config import ConfigError, as_plain, build, read_yaml_file, set_value, setting
from pipeline.charset_names import GUESS, is_charset

__all__ = [
    "BadRecordsConfig",
    "BuildConfig",
    "CleanConfig",
    "DedupConfig",
    "ExampleConfig",
    "NearConfig",
    "RayConfig",
    "RedactConfig",
    "ShardsConfig",
    "SourceConfig",
    "TemplatesConfig",
    "TokenizerConfig",
    "TrainConfig",
    "ValidationConfig",
    "describe_config",
    "determining",
    "from_arguments",
    "load_config",
    "parse",
    "resolved_filters",
]

# A shard's member is named by the version, and webdataset ends a key at the first dot (contract.md).
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
# 256 single bytes, the special tokens, and some merges: below this a byte-level vocabulary learns nothing.
MIN_TRAINED_VOCAB_SIZE = 300
MAX_TRAINED_VOCAB_SIZE = 1_000_000
FIRST_TRY_VOCAB_SIZE = 8192
# Copies of a document. A model that sees one text more often than this has long learned it by heart.
MAX_WEIGHT = 1000


def _check(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(field, f"is {value!r}, allowed: {allowed}")


def _check_name(field: str, value: str) -> None:
    _check(
        NAME.fullmatch(value) is not None, field, value, "1 to 40 letters, digits, - and _ (no dots, it names files)"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """Which transforms clean the text: pipeline/transforms/ says what each does."""

    unicode: Literal["nfc", "none"] = setting("nfc: canonical composition, compatibility forms such as x² stay", "nfc")
    control_characters: Literal["remove", "keep"] = setting("NUL, escape sequences and their like", "remove")
    newlines: Literal["unify", "keep"] = setting("CR LF, CR, vertical tab and form feed become LF", "unify")
    zero_width: Literal["remove", "keep"] = setting(
        "invisible characters, save joiners that scripts and emoji need", "remove"
    )
    mojibake: Literal["repair", "keep"] = setting("text decoded by a wrong character set on its way", "keep")
    quoted_replies: Literal["remove", "keep"] = setting("mail: what a reply quotes", "keep")
    forwarded_headers: Literal["remove", "keep"] = setting("mail: the headers of what is forwarded", "keep")
    signatures: Literal["remove", "keep"] = setting("mail: signatures and closings", "keep")
    disclaimers: Literal["remove", "keep"] = setting("mail: legal disclaimers and list footers", "keep")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """One named group of input files."""

    name: str = setting("what manifest and report call it: letters, digits, - and _")
    paths: tuple[str, ...] = setting("files, folders (recursive) and globs (* ? [] **), local or s3://bucket/key")
    format: Literal["auto", "jsonl", "json", "parquet", "csv", "text", "html", "mbox", "eml"] = setting(
        "auto: by content and name; archives are opened in any case", "auto"
    )
    text: str = setting("the field that holds the text; a.b for a field inside another", "text")
    id: str | None = setting(
        "the field that holds the id; a record without it, or null here: its place is its id", "id"
    )
    date: str | None = setting(
        "the field that says when the record was written (ISO 8601, RFC 2822, seconds since 1970), for dedup.keep:"
        " newest; of mails their header says it",
        None,
    )
    encoding: str | None = setting(
        "character set of files without a byte-order mark: cp1251, koi8-r, ...; guess: told from a text file's bytes"
        " where they are no UTF-8; null: UTF-8",
        None,
    )
    markup: Literal["html"] | None = setting(
        "html: the text field of JSON, CSV or Parquet holds HTML, whose visible text is taken", None
    )
    weight: float = setting("copies of each document in training; 2.5: two, and of half of them a third", 1.0)
    priority: int = setting("of two duplicates the one from the source with the higher priority stays", 0)
    clean: CleanConfig | None = setting("cleaning for this source alone, instead of the common `clean`", None)
    preset: str | None = setting(
        "filters for this source alone, by a preset's name, instead of the common `filters`", None
    )

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        _check(len(self.paths) > 0, "paths", list(self.paths), "at least one path")
        for index, path in enumerate(self.paths):
            _check(path != "" and "\0" not in path, f"paths.{index}", path, "a path, a glob or s3://bucket/prefix")
        _check(self.text != "", "text", self.text, "a field's name")
        _check(
            self.encoding is None or self.encoding == GUESS or is_charset(self.encoding),
            "encoding",
            self.encoding,
            "a character set that Python knows (cp1251, koi8-r, utf-16-le, ...), guess, or null for UTF-8",
        )
        _check(self.id != "", "id", self.id, "a field's name, or null for ids by place")
        _check(self.date != "", "date", self.date, "a field's name, or null for no dates")
        _check(
            0 < self.weight <= MAX_WEIGHT,
            "weight",
            self.weight,
            f"above 0, up to {MAX_WEIGHT} (to leave it out, remove it)",
        )
        if self.preset is not None:
            _resolve(self.preset, "preset")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RedactConfig:
    """What is replaced by a typed placeholder: pipeline/redaction/ says what each rule finds, keeps and misses."""

    all: bool = setting("every rule whose own key does not say otherwise", False)
    email: bool | None = setting("e-mail addresses -> [EMAIL]; null: as `all`", None)
    phone: bool | None = setting("telephone numbers -> [PHONE]", None)
    ip_address: bool | None = setting("IPv4 and IPv6 addresses -> [IP_ADDRESS]", None)
    payment_card: bool | None = setting("payment cards by issuer and Luhn digit -> [PAYMENT_CARD]", None)
    iban: bool | None = setting("bank accounts by length and remainder -> [IBAN]", None)
    inn: bool | None = setting("Russian taxpayer numbers by check digits -> [INN]", None)
    snils: bool | None = setting("Russian social insurance numbers by check digits -> [SNILS]", None)
    passport: bool | None = setting("Russian passports -> [PASSPORT]", None)
    api_key: bool | None = setting("keys and tokens of services -> [API_KEY]", None)
    private_key: bool | None = setting("blocks of private keys -> [PRIVATE_KEY]", None)
    url_password: bool | None = setting("passwords in URLs -> [PASSWORD]", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemplatesConfig:
    """Lines that many documents of a source share: they do not count as similarity."""

    enabled: bool = setting("whether such lines are left out when documents are compared", True)
    fraction: float = setting("share of a source's documents from which a line counts as template", 0.02)
    min_documents: int = setting("and documents it has to stand in at least", 100)

    def __post_init__(self) -> None:
        _check(0 < self.fraction <= 1, "fraction", self.fraction, "above 0, up to 1")
        _check(self.min_documents >= 2, "min_documents", self.min_documents, "2 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NearConfig:
    """Near duplicates: MinHash candidates, each verified by exact Jaccard similarity."""

    enabled: bool = setting("whether near duplicates are removed", True)
    ngram: int = setting("words a shingle; shorter documents are compared exactly only", 5)
    bands: int = setting("bands of the signature; bands x rows = its length", 14)
    rows: int = setting("rows a band", 8)
    threshold: float = setting("Jaccard similarity from which a document counts as a near duplicate", 0.8)
    templates: TemplatesConfig = setting("template lines", TemplatesConfig)

    def __post_init__(self) -> None:
        for name in ("ngram", "bands", "rows"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        _check(0 < self.threshold <= 1, "threshold", self.threshold, "above 0, up to 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DedupConfig:
    """Which duplicates are removed."""

    exact: bool = setting("whether documents with equal text are removed (white space aside)", True)
    keep: Literal["smallest_id", "longest", "newest"] = setting(
        "of duplicates from sources of equal priority: the longest text first, the newest (sources.N.date), or"
        " smallest_id at once",
        "smallest_id",
    )
    near: NearConfig = setting("near duplicates: MinHash, then exact similarity", NearConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A byte-level BPE tokenizer trained by the build on a sample of its own documents."""

    vocab_size: int = setting("tokens in the trained vocabulary, special tokens included")

    def __post_init__(self) -> None:
        _check(
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
            _check(getattr(self, name) != "", name, "", "text that is not empty, or null")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleConfig:
    """One row of the training set."""

    seq_len: int = setting("tokens an example", 4096)
    packing: Literal["concat", "best_fit"] = setting(
        "concat: documents end to end, cut into rows; best_fit: only longer documents cut, rows padded", "concat"
    )

    def __post_init__(self) -> None:
        _check(
            self.seq_len >= 2, "seq_len", self.seq_len, "2 or more (a model predicts each token from those before it)"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardsConfig:
    """How shards are cut."""

    max_bytes: int = setting("no shard file is larger", 256_000_000)

    def __post_init__(self) -> None:
        _check(self.max_bytes >= 1, "max_bytes", self.max_bytes, "1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Documents held back from training."""

    fraction: float = setting(
        "share of the documents, chosen after deduplication by a keyed hash of their identity", 0.005
    )

    def __post_init__(self) -> None:
        _check(0 <= self.fraction < 1, "fraction", self.fraction, "0 up to, not including, 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRecordsConfig:
    """How much unreadable input a build accepts."""

    budget_fraction: float = setting("share of a source's records that may be unreadable before the build stops", 0.001)

    def __post_init__(self) -> None:
        _check(0 <= self.budget_fraction <= 1, "budget_fraction", self.budget_fraction, "0 to 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Where the build runs; never what it makes."""

    address: str | None = setting("a running Ray cluster; null: the job's own, else a local one is started", None)
    num_cpus: int | None = setting("cores of a local Ray; null: all", None)

    def __post_init__(self) -> None:
        _check(self.num_cpus is None or self.num_cpus >= 1, "num_cpus", self.num_cpus, "1 or more, or null")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """Everything one build is told."""

    name: str = setting("the data set's name")
    version: str = setting("this version's name: letters, digits, - and _", "v1")
    seed: int = setting("decides the order of documents and the validation split", 0)
    output: str = setting("root of the data set: a folder or s3://bucket/prefix")
    base: str | None = setting(
        "manifest of the version this one continues: its shards are kept, new duplicates of its documents dropped", None
    )
    sources: tuple[SourceConfig, ...] = setting("the input, a list of sources")
    clean: CleanConfig = setting("cleaning of the text", CleanConfig)
    redact: RedactConfig = setting("people's data and secrets", RedactConfig)
    filters: Any = setting(
        "a preset's name, or a list of filters: names or {name: {setting: value}}; [] filters nothing", ()
    )
    dedup: DedupConfig = setting("removal of duplicates", DedupConfig)
    tokenizer: TokenizerConfig = setting("a given tokenizer, or one to train")
    example: ExampleConfig = setting("the rows of the training set", ExampleConfig)
    shards: ShardsConfig = setting("the files of the training set", ShardsConfig)
    validation: ValidationConfig = setting("the validation split", ValidationConfig)
    bad_records: BadRecordsConfig = setting("the budget for unreadable records", BadRecordsConfig)
    ray: RayConfig = setting("where it runs", RayConfig)
    workers: int | None = setting("tasks at a time; null: as many as there are cores", None)

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        _check_name("version", self.version)
        _check(0 <= self.seed < 2**63, "seed", self.seed, "0 to 2**63 - 1")
        _check(self.output != "", "output", self.output, "a folder or s3://bucket/prefix")
        _check(len(self.sources) > 0, "sources", [], "at least one source")
        _check(self.workers is None or self.workers >= 1, "workers", self.workers, "1 or more, or null")
        first: dict[str, int] = {}
        for index, source in enumerate(self.sources):
            if source.name in first:
                raise ConfigError(
                    f"sources.{index}.name",
                    f'"{source.name}" already names sources.{first[source.name]}: rename one, or join their paths',
                )
            first[source.name] = index
        _resolve(self.filters, "filters")
        smallest = ExampleFormat(seq_len=self.example.seq_len, dtype="uint16", packing=self.example.packing)
        if smallest.max_examples(self.shards.max_bytes) < 1:
            raise ConfigError(
                "shards.max_bytes",
                f"is {self.shards.max_bytes}, but one example of example.seq_len {self.example.seq_len} alone makes "
                f"a shard of {smallest.shard_num_bytes(1)} bytes: raise max_bytes or lower seq_len",
            )


def _resolve(spec: Any, field: str) -> Any:
    """pipeline.filters' own reading of a spec; its complaint, under the field's name."""
    from pipeline.filters.presets import resolve  # here, not above: it loads numba, which a mere --help does not need

    try:
        return resolve(list(spec) if isinstance(spec, tuple) else spec)
    except UserError as error:
        raise ConfigError(field, str(error)) from None


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


def resolved_filters(config: BuildConfig, source: SourceConfig) -> Any:
    """What `source` goes through, as pipeline.filters.presets.resolve gives it: its preset, else the common filters."""
    return _resolve(config.filters if source.preset is None else source.preset, "filters")


def determining(config: BuildConfig) -> dict[str, Any]:
    """The part that decides the data, defaults filled in, as plain JSON values: the manifest's `config`.

    Left out: output, workers, ray and bad_records (how and where, not what); base, which the manifest's parent names;
    the tokenizer's engine, since every engine gives the same ids; and every path: the inputs' digest and the
    tokenizer's hash cover their content, so a moved corpus gives the same digest. A source's filters are written out
    with every threshold, so a preset's name can never hide a change of what it stands for. Sources are sorted by name.
    """
    values = as_plain(config)
    for key in ("output", "workers", "ray", "bad_records", "filters", "base"):
        del values[key]
    del values["tokenizer"]["path"], values["tokenizer"]["engine"]
    values["sources"] = []
    for source in sorted(config.sources, key=lambda item: item.name):
        entry = as_plain(source)
        del entry["paths"], entry["preset"]
        if config.dedup.keep != "newest":
            del entry["date"]  # nobody looks at it
        if source.clean is None:
            del entry["clean"]  # the common one, said once
        entry["filters"] = [{name: as_plain(chosen)} for name, chosen in resolved_filters(config, source)]
        values["sources"].append(entry)
    return values


def describe_config(width: int) -> str:
    """Every key with its default and meaning, in lines of up to `width` columns."""
    return describe(BuildConfig, width)
