"""The build's configuration: one YAML file, one frozen dataclass a stage.

    corpus.yaml + --set key=value  ->  load_config  ->  BuildConfig  ->  determining(config): what decides the data

    sources.py   what is read, cleaned, redacted       dedup.py   duplicates       tokens.py   tokenizer to shards
    whole.py     all of it together                    load.py    from files and command lines

Every key with its default and meaning is printed by `describe_config()` (the build's --help), from the fields.
Relative paths (sources, output, tokenizer) are relative to the directory the command runs in, not to the config file,
so one config works with `ray job submit --working-dir`. `~` and $VARIABLES are taken as they stand: no hidden
expansion.
"""

from pipeline.config.dedup import DedupConfig, NearConfig, TemplatesConfig
from pipeline.config.load import describe_config, from_arguments, load_config, parse
from pipeline.config.sources import BadRecordsConfig, CleanConfig, RedactConfig, SourceConfig
from pipeline.config.tokens import ExampleConfig, ShardsConfig, TokenizerConfig, TrainConfig, ValidationConfig
from pipeline.config.whole import BuildConfig, RayConfig, determining, resolved_filters

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
