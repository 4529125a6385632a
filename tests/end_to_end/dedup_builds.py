"""By hand: who goes for whom is the same for any workers, task sizes, hash seed and order, and after any kill.

    python tests/end_to_end/dedup_builds.py

Real builds by the real command of 230 hostile documents (tests/pipeline/dedup_corpus.py), most with task sizes that cut
them into hundreds of tasks. Kills are SIGKILLs, at the first result of each stage of deduplication: of the driver,
with its Ray, after which the command is run again; and of a worker, which Ray starts anew. Prints a line a build and a
verdict; exit 1 when one differs. Some 5 minutes.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from manifests.manifest import load
from tests.pipeline.dedup_corpus import SURE, Document, decisions_of, mixed_corpus, rows_of, values_for

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES = (
    *("exact", "rank", "templates", "sign", "pair", "gather"),
    *("verify", "settle", "outcome", "deduplicate", "signatures"),
)
Decisions = dict[tuple[str, str], tuple[str, str, str, float]]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a build left."""

    decisions: Decisions
    digest: str
    num_units: int
    """Results below .build: tasks that ran."""


def write_config(folder: Path, documents: list[Document], workers: int, files: int = 3, **changes: Any) -> Path:
    """A config of the documents; `changes` as values_for takes them."""
    values: dict[str, Any] = {
        **values_for(folder, documents, files, near=SURE, **changes),
        "example": {"seq_len": 64},
        "workers": workers,
        "ray": {"num_cpus": workers},
        "filters": [],
    }
    path = folder / "corpus.yaml"
    path.write_text(json.dumps(values))  # JSON is YAML
    return path


def start(config: Path, *, small: bool, hash_seed: int = 0) -> subprocess.Popen[bytes]:
    """The command, in a process of its own; its messages go to a file beside the config."""
    script = "tests/pipeline/small_parts.py" if small else "pipeline/build.py"
    with config.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(REPOSITORY / script), str(config)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def finish(config: Path, process: subprocess.Popen[bytes]) -> Ended:
    """Wait for its end; what it left."""
    code = process.wait(timeout=600)
    assert code == 0, config.with_suffix(".log").read_text()
    root = config.parent / "out"
    return Ended(
        decisions=decisions_of(rows_of(str(root / "duplicates" / "v1"))),
        digest=load(str(root / "manifests" / "v1.json")).manifest.digest,
        num_units=len(list((root / ".build").rglob("*.json"))),
    )


def wait_for_stage(config: Path, stage: str, process: subprocess.Popen[bytes]) -> None:
    """Return at the stage's first result."""
    end = time.monotonic() + 300
    while not any((config.parent / "out" / ".build" / stage).glob("*.json")):
        assert process.poll() is None, f"the build ended before {stage}: {config.with_suffix('.log').read_text()}"
        assert time.monotonic() < end, f"{stage} never came"
        time.sleep(0.002)


def workers_of(driver: int) -> list[int]:
    """Process ids of the Ray workers below `driver` that run a task."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                names[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile

    def is_below(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == driver:
                return True
        return False

    return [process for process, name in names.items() if name.startswith("ray::execute") and is_below(process)]


def kill_a_worker(driver: subprocess.Popen[bytes]) -> bool:
    """Whether one that ran a task was found, and killed, before the build ended."""
    while driver.poll() is None:
        for process in workers_of(driver.pid)[:1]:
            os.kill(process, signal.SIGKILL)
            return True
    return False


def main() -> int:
    """All builds, one after another."""
    documents = mixed_corpus(0)
    differing = 0
    with tempfile.TemporaryDirectory(prefix="shardmill-dedup-") as name:
        root = Path(name)
        whole = finish(*_started(root / "whole", documents, workers=1, small=False))
        print(f"reference: {len(whole.decisions)} of {len(documents)} documents go, {whole.num_units} units")  # noqa: T201

        def check(what: str, ended: Ended, *, same_input: bool = True) -> None:
            nonlocal differing
            is_same = ended.decisions == whole.decisions and (not same_input or ended.digest == whole.digest)
            differing += not is_same
            print(f"{'same' if is_same else 'DIFFERENT'}: {what}, {ended.num_units} units", flush=True)  # noqa: T201

        for workers in (2, 4):
            check(f"{workers} workers", finish(*_started(root / f"w{workers}", documents, workers, small=False)))
        for workers in (1, 2, 4):
            started = _started(root / f"s{workers}", documents, workers, small=True, hash_seed=workers)
            check(f"{workers} workers, small parts, hash seed {workers}", finish(*started))
        started = _started(root / "reversed", documents[::-1], 4, small=True, hash_seed=9, files=7)
        check("records in reverse order in seven files, 4 workers, small parts", finish(*started), same_input=False)

        config = write_config(root / "killed", documents, 2)
        for stage in STAGES:
            driver = start(config, small=True)
            wait_for_stage(config, stage, driver)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        check(f"driver killed at each of {len(STAGES)} stages", finish(config, start(config, small=True)))
        for stage in STAGES:
            config, driver = _started(root / f"worker-{stage}", documents, 2, small=True)
            wait_for_stage(config, stage, driver)
            was_killed = kill_a_worker(driver)
            check(f"worker killed at {stage}" if was_killed else f"{stage}: NO WORKER KILLED", finish(config, driver))
            differing += not was_killed
    print("verdict: " + ("all the same" if not differing else f"{differing} DIFFER"))  # noqa: T201
    return int(differing > 0)


def _started(
    folder: Path, documents: list[Document], workers: int, *, small: bool, hash_seed: int = 0, files: int = 3
) -> tuple[Path, subprocess.Popen[bytes]]:
    config = write_config(folder, documents, workers, files)
    return config, start(config, small=small, hash_seed=hash_seed)


if __name__ == "__main__":
    sys.exit(main())
