"""What Prometheus reads: by port or by file, and the series that the dashboard and the alerts name."""

import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from manifests.yaml_config import ConfigError
from tests.trainer.test_trainer_journal import facts
from tests.trainer.trainer_processes import files_of_at_most
from trainer.config import PrometheusConfig
from trainer.exporter import Publisher, make_publisher
from trainer.facts import ValidationResult
from trainer.observer import quantile


def series(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items()) if name != "rank"): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_step_can_be_read_from_the_port_and_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    publisher = Publisher(PrometheusConfig(port=0, textfile=str(file)), rank=8)
    publisher.exporter.step(facts(3, peak_flops=1e12, model_flops=1e11), num_steps=10)
    publisher.exporter.spent("save", 1.5)
    publisher.exporter.goodput(0.9)
    publisher.publish()
    with urllib.request.urlopen(f"http://127.0.0.1:{publisher.port}/metrics") as answer:
        served = answer.read().decode()
    publisher.close()
    assert 'shardmill_step{rank="8"} 3.0' in served
    values = series(file.read_text())
    assert values == series(served)
    assert values["shardmill_steps"] == 10
    assert values["shardmill_mfu"] == 0.2
    assert values["shardmill_goodput"] == 0.9
    assert values["shardmill_seconds_total kind=save"] == 1.5
    assert values["shardmill_seconds_total kind=data_wait"] == 0.125
    assert values["shardmill_step_seconds_bucket le=0.5"] == 1
    assert values["shardmill_step_seconds_bucket le=0.3"] == 0


def test_a_figure_that_is_not_known_is_not_served_as_zero() -> None:
    publisher = Publisher(PrometheusConfig(textfile="unused.prom"), rank=0)
    publisher.exporter.step(facts(1), num_steps=2)
    names = {sample.name for family in publisher.exporter.registry.collect() for sample in family.samples}
    assert "shardmill_loss" in names
    assert not names & {"shardmill_mfu", "shardmill_goodput", "shardmill_validation_loss"}
    publisher.exporter.validation(facts(1, validation=ValidationResult(loss=2.0, perplexity=7.389, num_tokens=9)))
    assert publisher.exporter.registry.get_sample_value("shardmill_validation_perplexity", {"rank": "0"}) == 7.389


def test_a_port_that_is_taken_is_refused_with_its_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"prometheus\.port: cannot listen on 127\.0\.0\.1:{port}: .*; give ano"):
            Publisher(PrometheusConfig(port=port), rank=0)


def test_a_file_that_finds_no_room_is_said_once_counted_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "folder" / "run.prom"
    file.parent.mkdir()
    publisher = Publisher(PrometheusConfig(textfile=str(file)), rank=8)
    publisher.publish()
    with files_of_at_most(10):
        for _ in range(3):
            publisher.publish()
    assert [path.name for path in file.parent.iterdir()] == ["run.prom"]
    publisher.exporter.goodput(0.5)
    publisher.publish()
    assert series(file.read_text())["shardmill_goodput"] == 0.5
    assert capsys.readouterr().err.splitlines() == [
        f"rank 8: warning: {file} cannot be written: [Errno 27] File too large; the run goes on without it",
        f"rank 8: {file} is written again; it was left as it was 3 times",
    ]


def test_a_file_without_a_folder_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prometheus\.textfile: .*/none is no folder; make it, or give another file"):
        Publisher(PrometheusConfig(textfile=str(tmp_path / "none" / "run.prom")), rank=0)


def test_only_the_first_rank_of_a_node_serves_and_only_where_asked() -> None:
    asked = PrometheusConfig(textfile="unused.prom")
    assert make_publisher(asked, rank=9, local_rank=1) is None
    assert make_publisher(PrometheusConfig(), rank=0, local_rank=0) is None
    assert make_publisher(asked, rank=8, local_rank=0) is not None


def test_a_quantile_is_a_value_that_occurred() -> None:
    times = [0.1 * number for number in range(1, 21)]
    assert quantile(times, 0.5) == pytest.approx(1.0)
    assert quantile(times, 0.95) == pytest.approx(1.9)
    assert quantile([3.0], 0.95) == 3.0
