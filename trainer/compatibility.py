"""May this run go on from that checkpoint? What would make it another run is refused; what changes it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manifests.yaml_config import ConfigError, flatten

# Keys that say where and how a run is kept or computed, and leave its data, schedule and update rule alone.
_SILENT = (
    *("output", "hang_minutes", "start_minutes", "checkpoint.", "validation."),
    *("loader.num_workers", "loader.cache_", "prometheus."),
)


def check(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Notes about changed settings, one line each, with both values.

    `saved` and `now` have the keys model (its config), world_size, manifest {version, digest} and config. Raises
    ConfigError where continuing makes no sense. Seed, position, batch and lanes are the loader's to judge.
    """
    for name in sorted(saved["model"].keys() & now["model"].keys()):
        if saved["model"][name] != now["model"][name]:
            raise ConfigError(
                "model",
                f"{name} is {saved['model'][name]} in the checkpoint and {now['model'][name]} here;"
                " give the old model, or another output for a new run",
            )
    old_rule, new_rule = (facts["config"]["optimizer"]["name"] for facts in (saved, now))
    if old_rule != new_rule:
        raise ConfigError(
            "optimizer.name",
            f"the checkpoint holds moments of {old_rule} and this run asks for {new_rule};"
            " give the old name, or another output for a new run",
        )
    notes = [
        f"note: {what} was {before}, is {after}"
        for what, before, after in (
            ("manifest", _version(saved), _version(now)),
            ("number of ranks", saved["world_size"], now["world_size"]),
        )
        if before != after
    ]
    before, after = dict(flatten(saved["config"])), dict(flatten(now["config"]))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name) and not name.startswith(_SILENT):
            notes.append(f"note: {name} was {before.get(name)}, is {after.get(name)}")
    return notes


def _version(state: Mapping[str, Any]) -> str:
    return f"{state['manifest']['version']} ({state['manifest']['digest']})"
