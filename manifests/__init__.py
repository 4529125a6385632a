"""manifests: the contract between who makes a data set and who reads it.

    documents' tokens -> shard.write_shard -> a tar that is also an array
                      -> lineage.write_lineage -> which document lies where
                      -> Manifest -> manifest.save -> <root>/manifests/<version>.json, written last

    <version>.json -> manifest.load -> Dataset -> shard.view_examples   (a loader)
                                               -> diff, verify, lineage.find_document   (`python -m manifests`)

Every byte goes through storage.py, so a root is a local folder or s3://bucket/prefix. yaml_config.py and config_help.py
serve the commands of the packages above: one YAML file and --set -> frozen dataclasses. Imports none of our packages.
"""

from typing import TYPE_CHECKING, Any

from manifests.canonical import CanonicalError, canonical_json, derived_seed, fingerprint
from manifests.errors import UserError
from manifests.manifest import (
    Dataset,
    FunnelRow,
    InputsEntry,
    Manifest,
    ManifestError,
    Parent,
    ShardEntry,
    SourceEntry,
    Split,
    TokenizerEntry,
    load,
    manifest_url,
    save,
)
from manifests.shard import TOKENS_OFFSET, ExampleFormat, ShardDigest, ShardError, view_examples, write_shard

if TYPE_CHECKING:
    from manifests.inputs import INPUTS_SCHEMA, inputs_digest, read_inputs, write_inputs
    from manifests.lineage import LINEAGE_SCHEMA, Placement, find_document, lineage_path, read_lineage, write_lineage

__all__ = [
    "INPUTS_SCHEMA",
    "LINEAGE_SCHEMA",
    "TOKENS_OFFSET",
    "CanonicalError",
    "Dataset",
    "ExampleFormat",
    "FunnelRow",
    "InputsEntry",
    "Manifest",
    "ManifestError",
    "Parent",
    "Placement",
    "ShardDigest",
    "ShardEntry",
    "ShardError",
    "SourceEntry",
    "Split",
    "TokenizerEntry",
    "UserError",
    "canonical_json",
    "derived_seed",
    "find_document",
    "fingerprint",
    "inputs_digest",
    "lineage_path",
    "load",
    "manifest_url",
    "read_inputs",
    "read_lineage",
    "save",
    "view_examples",
    "write_inputs",
    "write_lineage",
    "write_shard",
]

_TABLES = {
    "inputs": ("INPUTS_SCHEMA", "inputs_digest", "read_inputs", "write_inputs"),
    "lineage": ("LINEAGE_SCHEMA", "Placement", "find_document", "lineage_path", "read_lineage", "write_lineage"),
}


def __getattr__(name: str) -> Any:
    # Looked up when asked for: they are Parquet, and pyarrow takes a quarter of a second and 30 MB that a loader of
    # shards has no use for.
    import importlib

    for module, names in _TABLES.items():
        if name in names:
            return getattr(importlib.import_module(f"manifests.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
