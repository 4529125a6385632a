"""The whole configuration of a build, and what of it decides the data."""

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation

import dataclasses
from typing import Any

from manifests.shard import ExampleFormat
from manifests.yaml_config import ConfigError, as_plain, setting
from pipeline.config.dedup import DedupConfig
from pipeline.config.fields import check, check_name, resolve_filters
from pipeline.config.sources import BadRecordsConfig, CleanConfig, RedactConfig, SourceConfig
from pipeline.config.tokens import ExampleConfig, ShardsConfig, TokenizerConfig, ValidationConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Where the build runs; never what it makes."""

    address: str | None = setting("a running Ray cluster; null: the job's own, else a local one is started", None)
    num_cpus: int | None = setting("cores of a local Ray; null: all", None)

    def __post_init__(self) -> None:
        check(self.num_cpus is None or self.num_cpus >= 1, "num_cpus", self.num_cpus, "1 or more, or null")


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
        check_name("name", self.name)
        check_name("version", self.version)
        check(0 <= self.seed < 2**63, "seed", self.seed, "0 to 2**63 - 1")
        check(self.output != "", "output", self.output, "a folder or s3://bucket/prefix")
        check(len(self.sources) > 0, "sources", [], "at least one source")
        check(self.workers is None or self.workers >= 1, "workers", self.workers, "1 or more, or null")
        first: dict[str, int] = {}
        for index, source in enumerate(self.sources):
            if source.name in first:
                raise ConfigError(
                    f"sources.{index}.name",
                    f'"{source.name}" already names sources.{first[source.name]}: rename one, or join their paths',
                )
            first[source.name] = index
        resolve_filters(self.filters, "filters")
        smallest = ExampleFormat(seq_len=self.example.seq_len, dtype="uint16", packing=self.example.packing)
        if smallest.max_examples(self.shards.max_bytes) < 1:
            raise ConfigError(
                "shards.max_bytes",
                f"is {self.shards.max_bytes}, but one example of example.seq_len {self.example.seq_len} alone makes "
                f"a shard of {smallest.shard_num_bytes(1)} bytes: raise max_bytes or lower seq_len",
            )


def resolved_filters(config: BuildConfig, source: SourceConfig) -> Any:
    """What `source` goes through, as pipeline.filters.presets.resolve gives it: its preset, else the common filters."""
    return resolve_filters(config.filters if source.preset is None else source.preset, "filters")


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
