"""The dashboard and the alerts name series that the trainer serves, and nothing else."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.trainer.test_trainer_journal import facts
from trainer.config import load_config
from trainer.exporter import Exporter
from trainer.facts import ValidationResult

MONITORING = Path(__file__).resolve().parents[2] / "k8s" / "monitoring"
NAME = re.compile(r"\bshardmill_\w+")


@pytest.fixture(scope="module")
def served() -> set[str]:
    exporter = Exporter(rank=0)
    every = {
        "peak_flops": 1e12,
        "model_flops": 1e11,
        "memory_peak_bytes": 1,
        "fetched_bytes": 1,
        "gpu_utilisation": 0.5,
    }
    step = facts(1, validation=ValidationResult(loss=2.0, perplexity=7.4, num_tokens=9), **every)
    exporter.step(step, num_steps=2)
    exporter.validation(step)
    exporter.spent("save", 1.0)
    exporter.goodput(0.5)
    return {sample.name for family in exporter.registry.collect() for sample in family.samples}


def test_every_series_of_the_dashboard_is_served_and_panels_do_not_overlap(served: set[str]) -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = set(NAME.findall(" ".join(expressions)))
    assert names <= served
    assert {"shardmill_loss", "shardmill_mfu", "shardmill_goodput", "shardmill_step_seconds_bucket"} <= names
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_every_alert_names_served_series_and_says_what_to_do(served: set[str]) -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(NAME.findall(rule["expr"])) <= served, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in {"page", "ticket"}
    kinds = {kind for rule in group["rules"] for kind in re.findall(r'kind=~?"([^"]+)"', rule["expr"])}
    assert kinds == {"data_wait", "data_wait|step"}


@pytest.mark.parametrize("folder", ["base/trainer", "overlays/trainer-8x8"])
def test_pods_serve_on_the_port_that_their_job_declares(folder: str) -> None:
    k8s = MONITORING.parent
    config = load_config(k8s / folder / "train.yaml", [])
    (replicated,) = yaml.safe_load((k8s / "base/trainer/jobset.yaml").read_text())["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]
    (port,) = [port for port in pod["spec"]["containers"][0]["ports"] if port["name"] == "metrics"]
    assert config.prometheus.port == port["containerPort"]
    assert config.prometheus.host == "0.0.0.0"
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
