"""Config errors name the key, what stands there and the remedy; the command makes them one line and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.trainer_datasets import write_dataset
from trainer.config import TrainConfig, load_config
from trainer.strict import ConfigError, as_plain, build, describe_keys


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
        "schedule.warmup_fractoin: unknown key; did you mean schedule.warmup_fraction?"
    )
    assert refused("global_batch_size=8") == "global_batch_size: unknown key; did you mean global_batch?"


def test_an_unknown_key_like_no_other_lists_the_keys() -> None:
    assert refused("mesh.zzz=1") == "mesh.zzz: unknown key; the keys here are replicate, shard"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed=1.5", "seed: expected a whole number, found 1.5"),
        ("steps=yes", "steps: expected a whole number or null, found True"),
        ("precision=fp8", "precision: expected one of fp32, bf16, found 'fp8'"),
        ("optimizer.betas=[0.9]", "optimizer.betas: expected a list of 2 values, found [0.9]"),
        ("model=llama", "model: expected keys and values, found 'llama'"),
        ("lr=0", "lr: 0.0 cannot train; give a positive number such as 3e-4"),
        ("checkpoint.keep=0", "checkpoint.keep: 0 is below 1; give 1 or more"),
        ("schedule.warmup_fraction=2", "schedule.warmup_fraction: 2.0 is not a fraction; give a number from 0 to 1"),
        (
            "schedule.scaling=linear",
            "schedule.scaling: linear needs reference_batch; give the batch that lr was chosen for",
        ),
        ("lr", "--set lr: expected key=value, as in --set schedule.shape=linear"),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_was_expected(setting: str, message: str) -> None:
    assert refused(setting) == message


def test_a_key_given_twice_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("seed: 3\nlr: 1e-3\nseed: 4\n")
    with pytest.raises(ConfigError, match=r"line 3: key 'seed' is given twice; keep one of them"):
        load_config(file, [])


def test_path_and_config_exclude_each_other() -> None:
    assert refused("model.path=/a", "model.config=/b") == (
        "model.path: stands beside config; give path to fine-tune or config for random weights"
    )


def test_a_config_survives_being_written_down_and_read_back() -> None:
    config = load_config(None, ["optimizer.betas=[0.8, 0.9]", "mesh.replicate=2", "checkpoint.remote=s3://b/p"])
    assert build(TrainConfig, as_plain(config)) == config


def test_help_lists_every_key_with_its_default() -> None:
    lines = "\n".join(describe_keys(TrainConfig))
    for name in ("global_batch = null", "schedule.shape = cosine", "checkpoint.minutes = 25.0", "mesh.shard = null"):
        assert name in lines


def test_the_command_refuses_in_one_line_with_exit_code_2(tmp_path: Path, repository: Path) -> None:
    manifest = write_dataset(tmp_path)
    for options, message in (
        (["--manifest", manifest, "--set", "warmup=3"], "train.py: warmup: unknown key;"),
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
