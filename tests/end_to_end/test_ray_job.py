"""`ray job submit` against a running Ray that asks for a token."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from manifests.manifest import load

RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """The environment of a client of a one-node Ray with token authentication on."""
    # Not pytest's folder: Ray's sockets lie in it, and a socket's path has 107 bytes at most.
    folder = tempfile.mkdtemp(prefix="ray")
    port, dashboard = free_port(), free_port()
    environment = {
        **os.environ,
        # The job's `python` is the one found first here, as in an activated environment or an image.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
    }
    head = subprocess.Popen(
        [
            *RAY,
            *("start", "--head", "--block", "--num-cpus", "2", "--object-store-memory", "100000000"),
            *("--node-ip-address", "127.0.0.1", "--port", str(port), "--dashboard-port", str(dashboard)),
            # The agent takes the jobs; at its usual port that of another Ray on this machine may already listen.
            *("--dashboard-agent-listen-port", str(free_port())),
            *("--temp-dir", folder),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_dashboard(dashboard, head)
        yield environment
    finally:
        kill_session(head.pid)
        head.wait()
        shutil.rmtree(folder)


def kill_session(session: int) -> None:
    """End all of a Ray head, by its session, so that nobody else's Ray is touched."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended by itself meanwhile


def wait_for_dashboard(port: int, head: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 90
    while True:
        assert head.poll() is None, f"ray start ended with {head.returncode}"
        assert time.monotonic() < end, "the dashboard never answered"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=2).close()
        except HTTPError:
            return  # it answers, and asks for the token
        except (URLError, OSError):
            time.sleep(0.2)  # a poll; the deadline above decides
        else:
            return


def submit(environment: dict[str, str], repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """`ray job submit`, again while the dashboard answers that its agent is not up yet."""
    end = time.monotonic() + 90
    while True:
        job = subprocess.run(
            [*RAY, "job", "submit", "--working-dir", ".", "--", *command],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if "No available agent to submit job" not in job.stderr or time.monotonic() > end:
            return job


def test_a_submitted_job_builds_the_same_data_set_as_a_local_run(
    cluster: dict[str, str],
    config_file: Callable[..., Path],
    run_build: Callable[..., subprocess.CompletedProcess[str]],
    repository: Path,
    tmp_path: Path,
) -> None:
    sources = [{"name": "mail", "paths": [str(repository / "examples" / "sample" / "mail")]}]
    job = submit(
        cluster, repository, "python", "pipeline/build.py", str(config_file(tmp_path / "job", sources=sources))
    )
    assert job.returncode == 0, job.stdout + job.stderr
    assert f"{tmp_path}/job/manifests/v1.json\n" in job.stdout
    local = run_build(config_file(tmp_path / "local", sources=sources))
    assert local.returncode == 0, local.stderr
    manifest = load(str(tmp_path / "job" / "manifests" / "v1.json")).manifest
    assert manifest.digest == load(local.stdout.strip()).manifest.digest
