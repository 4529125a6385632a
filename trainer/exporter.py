"""A run's figures for Prometheus: an endpoint on the first rank of each node, or a file for node_exporter.

The dashboard and the alert rules under k8s/ name these series; a test holds them together.
"""

from __future__ import annotations

import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server, write_to_textfile

from manifests.yaml_config import ConfigError
from trainer.config import PrometheusConfig
from trainer.facts import StepFacts
from trainer.metrics import METRICS

# Steps take from tens of milliseconds (a trial) to a minute (a large batch).
_STEP_BUCKETS = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)


class Exporter:
    """The series of one process, on a registry of its own."""

    def __init__(self, *, rank: int) -> None:
        self.registry = CollectorRegistry()
        self._rank = str(rank)
        names = ("step", "steps", "loss", "learning_rate", "gradient_norm", "examples_consumed", "skipped_steps")
        self._gauges = {name: self._gauge(name) for name in (*names, *METRICS, "goodput")}  # shown once they are set
        self._step_seconds = Histogram(
            "shardmill_step_seconds",
            "Seconds of a step, data wait included",
            ["rank"],
            registry=self.registry,
            buckets=_STEP_BUCKETS,
        ).labels(self._rank)
        self._seconds = Counter(
            "shardmill_seconds",
            "Seconds of this attempt by what they were spent on",
            ["rank", "kind"],
            registry=self.registry,
        )
        self._tokens = Counter(
            "shardmill_tokens", "Tokens of the steps of this attempt, over all ranks", ["rank"], registry=self.registry
        ).labels(self._rank)

    def _gauge(self, name: str) -> Gauge:
        words = f"{name.replace('_', ' ')} of the newest step"
        return Gauge(f"shardmill_{name}", words, ["rank"], registry=self.registry)

    def _set(self, name: str, value: float | None) -> None:
        if value is not None:
            self._gauges[name].labels(self._rank).set(value)

    def step(self, facts: StepFacts, *, num_steps: int) -> None:
        values = {
            "step": facts.step,
            "steps": num_steps,
            "loss": facts.loss,
            "learning_rate": facts.lr,
            "gradient_norm": facts.grad_norm,
            "examples_consumed": facts.examples_consumed,
            "skipped_steps": facts.num_skipped,
            **{name: measure(facts) for name, measure in METRICS.items()},
        }
        for name, value in values.items():
            self._set(name, value)
        self._step_seconds.observe(facts.seconds)
        self._tokens.inc(facts.tokens_in_batch)
        self.spent("data_wait", facts.data_wait_s)
        self.spent("step", facts.seconds - facts.data_wait_s)

    def validation(self, facts: StepFacts) -> None:
        """The figures that only a step with a validation has."""
        for name in ("validation_loss", "validation_perplexity"):
            self._set(name, METRICS[name](facts))

    def spent(self, kind: str, seconds: float) -> None:
        self._seconds.labels(self._rank, kind).inc(max(0.0, seconds))

    def goodput(self, fraction: float) -> None:
        self._set("goodput", fraction)


class Publisher:
    """An exporter and where it is read from: a port, a file, or both."""

    def __init__(self, config: PrometheusConfig, *, rank: int) -> None:
        """Raises ConfigError where the port cannot be had or the file has no folder."""
        self.exporter = Exporter(rank=rank)
        self._rank = rank
        self._file = None if config.textfile is None else Path(config.textfile)
        self._num_unwritten = 0
        if self._file is not None and not self._file.parent.is_dir():
            raise ConfigError("prometheus.textfile", f"{self._file.parent} is no folder; make it, or give another file")
        self._server = None
        if config.port is not None:
            try:
                self._server, self._thread = start_http_server(
                    config.port, addr=config.host, registry=self.exporter.registry
                )
            except OSError as error:
                raise ConfigError(
                    "prometheus.port", f"cannot listen on {config.host}:{config.port}: {error.strerror}; give another"
                ) from error

    @property
    def port(self) -> int | None:
        return None if self._server is None else int(self._server.server_port)

    def publish(self) -> None:
        """Rewrite the file, if one was asked for; written whole or not at all.

        A disk without room costs the figures, never the run: said once, and how often when there is room again.
        """
        if self._file is None:
            return
        try:
            write_to_textfile(str(self._file), self.exporter.registry)
        except OSError as error:
            if not self._num_unwritten:
                self._say(f"warning: {self._file} cannot be written: {error}; the run goes on without it")
            self._num_unwritten += 1
            return
        if self._num_unwritten:
            self._say(f"{self._file} is written again; it was left as it was {self._num_unwritten} times")
            self._num_unwritten = 0

    def _say(self, line: str) -> None:
        """On standard error: what rank 0 prints is not heard from other nodes."""
        sys.stderr.write(f"rank {self._rank}: {line}\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def make_publisher(config: PrometheusConfig, *, rank: int, local_rank: int) -> Publisher | None:
    """One a node, and none where neither a port nor a file is configured."""
    if local_rank != 0 or (config.port is None and config.textfile is None):
        return None
    return Publisher(config, rank=rank)
