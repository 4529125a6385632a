"""A checkpoint goes on only in the run it belongs to; what changed is said with both values."""

from typing import Any

import pytest

from manifests.yaml_config import ConfigError
from trainer.compatibility import check


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "model": {"hidden_size": 32},
        "manifest": {"name": "tiny", "version": "v1", "digest": "sha256:aa"},
        "world_size": 2,
        "config": {"lr": 0.1, "output": "a", "optimizer": {"name": "adamw"}, "checkpoint": {"keep": 3}},
    } | changes


def test_an_unchanged_run_has_nothing_to_note() -> None:
    assert check(facts(), facts()) == []


def test_changed_settings_are_noted_and_places_are_not() -> None:
    config = {"lr": 0.2, "output": "b", "optimizer": {"name": "adamw"}, "checkpoint": {"keep": 1}}
    manifest = {"name": "tiny", "version": "v2", "digest": "sha256:bb"}
    assert check(facts(), facts(config=config, manifest=manifest, world_size=3)) == [
        "note: manifest was v1 (sha256:aa), is v2 (sha256:bb)",
        "note: number of ranks was 2, is 3",
        "note: lr was 0.1, is 0.2",
    ]


def test_another_architecture_is_refused_by_the_name_of_what_differs() -> None:
    with pytest.raises(ConfigError, match="model: hidden_size is 32 in the checkpoint and 64 here; give the old model"):
        check(facts(), facts(model={"hidden_size": 64, "new_key": 1}))


def test_moments_of_another_optimizer_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.name: the checkpoint holds moments of adamw .* asks for lion"):
        check(facts(), facts(config={"optimizer": {"name": "lion"}}))
