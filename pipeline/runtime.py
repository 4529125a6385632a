"""Runs the units of a stage as Ray tasks, each durable when done. The only file that knows Ray.

    units -> skip those whose result is on storage -> at most `workers` tasks in flight -> each writes its files, then
    its result -> results

A result is one small JSON object, `<output>/.build/<stage>/<key>.json`, written last, that lists the files the unit
wrote with their identities on storage. The key is a fingerprint of everything the unit's output depends on, so changed
input or configuration has another key and is never mixed in; a file that was replaced, cut or deleted since has another
identity, and the unit runs again. That is all a restart needs: a new driver lists the folder and goes on.

The summaries return through Ray, never data: the object store stays small (OBJECT_STORE_BYTES).
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from tqdm import tqdm

from manifests import storage
from manifests.canonical import canonical_json
from manifests.errors import UserError

OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Holds unit descriptions and summaries only; Ray's default would take 30 % of the memory."""

TASK_MEMORY_BYTES = 1_500_000_000
"""What a unit may take, declared to Ray so that a node is never given more units than it has memory for."""

CONNECT_SECONDS = 10
"""How long a cluster's address may take to answer."""

LISTING_THREADS = 16
"""Results read at once when a build goes on: on S3 each waits for the network, not for a core."""

WORKER_ENVIRONMENT = {
    # Batches of 16 MB come and go: given back to the kernel and faulted in again each time, they cost a tenth to a
    # fifth of the whole build (benchmarks/inline_build.py in two alternating pairs on 100 MB of mixed text, 2026-11-29:
    # 21.3 and 22.6 MB per core-second without, 26.4 and 25.0 with these, at equal peak memory).
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
}

MAX_RETRIES = 3
"""Times that Ray runs a unit again after its worker died or storage failed; then the unit is reported by name."""

Summary = dict[str, Any]
"""What a unit says of its work: JSON, small. The key "files" holds the urls it wrote."""


class BuildError(RuntimeError):
    """A unit of work failed for good: which one, why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One piece of a stage's work: seconds, not milliseconds."""

    key: str
    """Fingerprint of everything its output depends on; names its result."""
    label: str
    """What a person calls it, in progress and errors."""
    task: Any
    """The argument of the stage's function."""
    num_bytes: int = 0
    """Size of its input, for progress in MB/s."""


class Runtime(Protocol):
    """Runs stages."""

    def run(
        self,
        stage: str,
        function: Callable[[Any], Summary],
        units: Sequence[Unit],
        check: Callable[[Unit, Summary], None] | None = None,
    ) -> list[Summary]:
        """Results of `function` over the units, in their order, whatever order they finished in.

        `check` sees each result when it is there, in any order; what it raises ends the stage.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class RayRuntime:
    """Ray, here or on a cluster, for one build. Use `start_ray` for one."""

    build_url: str
    """`<output>/.build`."""
    workers: int
    """Units in flight at once."""
    memory_bytes: int
    """Declared a unit."""
    progress: TextIO

    def run(
        self,
        stage: str,
        function: Callable[[Any], Summary],
        units: Sequence[Unit],
        check: Callable[[Unit, Summary], None] | None = None,
    ) -> list[Summary]:
        """See Runtime. Raises BuildError when a unit fails for good; what others finished stays."""
        import ray

        done = find_results(self.build_url, stage, units)
        waiting = [unit for unit in units if unit.key not in done]
        for unit in units:
            if check is not None and unit.key in done:
                check(unit, done[unit.key])
        options = {
            "num_cpus": 1,
            "memory": self.memory_bytes,
            "max_retries": MAX_RETRIES,
            "retry_exceptions": [OSError],
            "runtime_env": {"env_vars": WORKER_ENVIRONMENT},
        }
        remote = ray.remote(**options)(execute)  # type: ignore[call-overload]  # ray's stub lacks lists of exceptions
        in_flight: dict[Any, Unit] = {}
        with _bar(stage, units, waiting, self.progress) as bar:
            try:
                while waiting or in_flight:
                    while waiting and len(in_flight) < self.workers:
                        unit = waiting.pop(0)
                        in_flight[remote.remote(function, unit, result_url(self.build_url, stage, unit.key))] = unit
                    ready, _ = ray.wait(list(in_flight), num_returns=1)
                    unit = in_flight.pop(ready[0])
                    try:
                        done[unit.key] = ray.get(ready[0])
                    except ray.exceptions.RayTaskError as error:
                        raise _explained(stage, unit, error.cause) from error.cause
                    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                        raise BuildError(
                            f"stage {stage}, {unit.label}: its worker died {MAX_RETRIES + 1} times"
                            f" ({_first_line(error)}); most often memory, else a full disk at TMPDIR, where Ray logs:"
                            " use fewer workers or free some, then run the same command again to go on from here"
                        ) from error
                    except ray.exceptions.RayError as error:
                        raise BuildError(
                            f"stage {stage}, {unit.label}: Ray could not run it ({_first_line(error)}): see its logs,"
                            " then run the same command again to go on from here"
                        ) from error
                    bar.update(unit.num_bytes)
                    if check is not None:
                        check(unit, done[unit.key])
            finally:
                for reference in in_flight:
                    ray.cancel(reference, force=True)
        return [done[unit.key] for unit in units]


def _explained(stage: str, unit: Unit, cause: BaseException) -> BaseException:
    """A unit's exception as the driver raises it: the user's own mistakes as they are, the rest by the unit's name."""
    if isinstance(cause, UserError):
        return cause
    return BuildError(
        f"stage {stage}, {unit.label}: {type(cause).__name__}: {_first_line(cause)}; the same command, run again, goes"
        " on from here; if it fails at the same place with storage in order, it is a defect: please report it"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


def execute(function: Callable[[Any], Summary], unit: Unit, url: str) -> Summary:
    """Run one unit in this process and make its result durable.

    The identity of every file it wrote is read back and kept in the result: a later run trusts a file only while it is
    that very one.
    """
    summary = function(unit.task)
    files = {file: storage.stat(file).identity for file in summary.get("files", ())}
    summary = {**summary, "files": files}
    storage.write_bytes(url, canonical_json(summary))
    return summary


def result_url(build_url: str, stage: str, key: str) -> str:
    """Where the result of the unit `key` of `stage` lies."""
    return storage.join(build_url, stage, f"{short(key)}.json")


def short(key: str) -> str:
    """A fingerprint as a file name: its first 32 hex digits, 128 bits."""
    return key.removeprefix("sha256:")[:32]


def find_results(build_url: str, stage: str, units: Sequence[Unit]) -> dict[str, Summary]:
    """Results of units that are done, by key: those whose result and every file of it are still what they were.

    One listing of the stage's folder, and one of each other folder that results point into.
    """
    listed: dict[str, Mapping[str, str]] = {}

    def identity(url: str) -> str | None:
        folder = url.rsplit("/", 1)[0]
        if folder not in listed:
            listed[folder] = _identities(folder)
        return listed[folder].get(url)

    there = [unit for unit in units if identity(result_url(build_url, stage, unit.key)) is not None]
    with ThreadPoolExecutor(LISTING_THREADS) as threads:
        found = threads.map(lambda unit: storage.read_bytes(result_url(build_url, stage, unit.key)), there)
        summaries = [json.loads(data) for data in found]
    return {
        unit.key: summary
        for unit, summary in zip(there, summaries, strict=True)
        if all(identity(file) == known for file, known in summary["files"].items())
    }


def _identities(folder: str) -> Mapping[str, str]:
    try:
        return {info.url: info.identity for info in storage.list_objects(folder)}
    except FileNotFoundError:
        return {}


def _bar(stage: str, units: Sequence[Unit], waiting: Sequence[Unit], file: TextIO) -> Any:
    total = sum(unit.num_bytes for unit in units)
    left = sum(unit.num_bytes for unit in waiting)
    return tqdm(
        total=total,
        initial=total - left,
        unit="B",
        unit_scale=True,
        desc=f"{stage:<9}",
        file=file,
        disable=total == 0 or not file.isatty(),
        bar_format="{desc} {bar:24} {percentage:3.0f}%  {n_fmt}B of {total_fmt}B  {rate_fmt}  {remaining} left",
    )


def start_ray(
    *, build_url: str, address: str | None, num_cpus: int | None, workers: int | None, progress: TextIO
) -> RayRuntime:
    """Connect to the cluster at `address` (or RAY_ADDRESS, which `ray job submit` sets), else start Ray here.

    Args:
        build_url: where results go.
        address: `ray.address` of the config.
        num_cpus: cores of a Ray started here; None takes all.
        workers: units in flight; None takes the cluster's cores.
        progress: where the bar is drawn.

    Raises:
        UserError: no Ray answers at the address.
    """
    # A build sends nothing anywhere, and Ray's own notices would drown what it says.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray would start a task that outgrows the memory again for ever.
    os.environ.setdefault("RAY_task_oom_retries", str(MAX_RETRIES))
    import ray

    address = address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if address is not None:
        quiet.pop("include_dashboard")
        _check_answers(address)
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(
                f"ray.address: no Ray answers at {address} ({_first_line(error)}): start one, correct the address, set"
                " RAY_AUTH_MODE=token where it asks for a token, or leave it out to run here"
            ) from error
    else:
        # Workers import our packages from where this driver found them, installed or not.
        root = str(Path(__file__).resolve().parents[1])
        paths = os.pathsep.join(path for path in (root, os.environ.get("PYTHONPATH")) if path)
        # "local": without it, Ray would join whatever cluster somebody else started on this machine.
        _start_local(
            num_cpus=num_cpus,
            object_store_memory=OBJECT_STORE_BYTES,
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
            **quiet,
        )
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # ray has no type here
    num_cores = max(1, int(resources.get("CPU", 1)))
    # Never more than a core's share: a unit that asks for more than any node has would wait for ever.
    memory_bytes = min(TASK_MEMORY_BYTES, int(resources.get("memory", 0)) // num_cores)
    return RayRuntime(build_url=build_url, workers=workers or num_cores, memory_bytes=memory_bytes, progress=progress)


def _check_answers(address: str) -> None:
    """UserError unless something listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto" and the like name no place
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UserError(f"ray.address: no Ray answers at {address} ({error}): start one, or correct it") from error


def _start_local(**options: Any) -> None:
    """Start Ray here. Ray gives its own processes 30 s; on a machine that is busy it deserves a second try."""
    import ray

    try:
        ray.init(address="local", **options)
    except Exception as error:  # what Ray raises for this is a bare Exception
        if "timed out during startup" not in str(error):
            raise
        ray.shutdown()
        ray.init(address="local", **options)


def stop_ray() -> None:
    """Disconnect; a Ray that `start_ray` started here ends with it."""
    if "ray" in sys.modules:
        import ray

        ray.shutdown()


def ray_version() -> str:
    """The version of Ray, for the manifest's record of how a data set was built."""
    import ray

    return str(ray.__version__)
