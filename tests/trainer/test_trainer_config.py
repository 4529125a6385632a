"""Config errors name the key, what stands there and the remedy; the command makes them one line and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from manifests.config_help import describe
from manifests.yaml_config import ConfigError, as_plain, build
from tests.trainer.trainer_datasets import write_dataset
from trainer.config import MeshConfig, TrainConfig, load_config
from trainer.parallel import grid


def refused(*settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(None, settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_file_and_no_setting_give_the_defaults() -> None:
    assert load_config(None, []) == TrainConfig()


def test_a_setting_reaches_into_groups_and_the_last_one_wins() -> None:
    config = load_config(None, ["schedule.shape=linear", "lr=1e-3", "lr=2e-3", "model.config.hidden_size=64"])
    assert config.schedule.shape == "linear"
    assert config.lr == 0.002
    assert config.model.config == {"hidden_size": 64}


def test_a_setting_stands_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("seed: 3\noptimizer: {betas: [0.8, 0.9]}\ncheckpoint: {minutes: null}\n")
    config = load_config(file, ["seed=4"])
    assert (config.seed, config.optimizer.betas, config.checkpoint.minutes) == (4, (0.8, 0.9), None)


def test_an_unknown_key_names_the_closest_one() -> None:
    assert refused("schedule.warmup_fractoin=0.1") == (
        'schedule.warmup_fractoin: there is no such key; did you mean "warmup_fraction"? known: decay_fraction, '
        "floor_fraction, reference_batch, scaling, shape, warmup_examples, warmup_fraction"
    )
    assert refused("global_batch_size=8").startswith(
        'global_batch_size: there is no such key; did you mean "global_batch"? known: attention, checkpoint, '
    )


def test_an_unknown_key_like_no_other_lists_the_keys() -> None:
    assert refused("mesh.zzz=1") == "mesh.zzz: there is no such key; known: offload, replicate, shard"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed=1.5", "seed: is the number 1.5, expected a whole number"),
        ("steps=yes", "steps: is the text 'yes', expected a whole number or null"),
        ("precision=fp8", "precision: is the text 'fp8', expected one of fp32, bf16, fp16"),
        ("optimizer.betas=[0.9]", "optimizer.betas: is a list [0.9], expected a list of 2 values or null"),
        (
            "optimizer.betas=[0.9, 1.5]",
            "optimizer.betas: [0.9, 1.5] are no decays; give two numbers from 0 to below 1",
        ),
        ("optimizer.eps=-1", "optimizer.eps: -1.0 is below 0.0; give 0.0 or more"),
        (
            "prometheus.port=70000",
            "prometheus.port: 70000 is no port; give a number from 1 to 65535, or 0 for any free one",
        ),
        (
            "checkpoint.remote=''",
            "checkpoint.remote: is empty; give a folder or s3://bucket/prefix, or null for none",
        ),
        ("model=llama", "model: is the text 'llama', expected keys with values"),
        ("lr=0", "lr: 0.0 cannot train; give a positive number such as 3e-4"),
        ("checkpoint.keep=0", "checkpoint.keep: 0 is below 1; give 1 or more"),
        ("schedule.warmup_fraction=2", "schedule.warmup_fraction: 2.0 is not a fraction; give a number from 0 to 1"),
        (
            "schedule.scaling=linear",
            "schedule.scaling: linear needs reference_batch; give the batch that lr was chosen for",
        ),
        (
            "model.config=5",
            "model.config: is the number 5, expected text (quote it if it looks like a number) or keys with values"
            " or null",
        ),
        ("lr", '--set: "lr" is not of the form key=value: write, for example, seed=7'),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_was_expected(setting: str, message: str) -> None:
    assert refused(setting) == message


def test_path_and_config_exclude_each_other() -> None:
    assert refused("model.path=/a", "model.config=/b") == (
        "model.path: stands beside config; give path to fine-tune or config for random weights"
    )


def test_a_config_survives_being_written_down_and_read_back() -> None:
    config = load_config(None, ["optimizer.betas=[0.8, 0.9]", "mesh.replicate=2", "checkpoint.remote=s3://b/p"])
    assert build(TrainConfig, as_plain(config)) == config


def test_help_lists_every_key_with_its_default() -> None:
    lines = describe(TrainConfig, 120).splitlines()
    for name in ("global_batch = null", "schedule.shape = cosine", "checkpoint.minutes = 25", "mesh.shard = null"):
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1, name
    assert any(line.endswith(" (fp32|bf16|fp16)") for line in lines)


@pytest.mark.parametrize(
    ("replicate", "shard", "world_size", "expected"),
    [
        (1, None, 8, (1, 8)),
        (2, None, 8, (2, 4)),
        (2, 4, 8, (2, 4)),
        (None, None, 8, (1, 8)),
        (None, 8, 64, (8, 8)),
        (None, 8, 56, (7, 8)),  # a node of eight is lost
        (None, 8, 60, None),
        (None, 8, 4, None),
        (8, 8, 56, None),
    ],
)
def test_the_grid_follows_the_world_where_it_is_left_open(
    replicate: int | None, shard: int | None, world_size: int, expected: tuple[int, int] | None
) -> None:
    config = MeshConfig(replicate=replicate, shard=shard)
    if expected is not None:
        assert grid(config, world_size) == expected
    else:
        with pytest.raises(ConfigError, match=f"torchrun started {world_size}; make the product equal"):
            grid(config, world_size)


def test_the_command_refuses_in_one_line_with_exit_code_2(tmp_path: Path, repository: Path) -> None:
    manifest = write_dataset(tmp_path)
    for options, message in (
        (["--manifest", manifest, "--set", "warmup=3"], "train.py: warmup: there is no such key; known: "),
        (["--manifest", str(tmp_path / "none.json")], "train.py: --manifest: "),
        (
            ["--manifest", manifest, "--set", "mesh.shard=2"],
            "train.py: mesh: replicate 1 x shard 2 is 2 ranks and torchrun started 1; make the product equal",
        ),
    ):
        result = subprocess.run(
            [sys.executable, repository / "trainer" / "train.py", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 2
        assert result.stderr.startswith(message)
        assert result.stderr.count("\n") == 1
