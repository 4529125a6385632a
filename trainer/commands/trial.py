"""Short runs of the real command in the configuration of another one, in processes of their own, below its folder."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manifests.errors import UserError

TRAIN = Path(__file__).resolve().parents[1] / "train.py"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """folder: where the trials go. manifest, world_size: of the run that is tried."""

    folder: Path
    manifest: str
    world_size: int

    @classmethod
    def of(cls, run: Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Trial:
        """An empty folder RUN/name with RUN's configuration, changed. Raises UserError where RUN is no run."""
        if not (run / "run.json").is_file():
            raise UserError(f"{run}: no run.json in it; give the output folder of a run")
        facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
        folder = run / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.yaml").write_text(json.dumps(change(facts["config"])), encoding="utf-8")  # YAML holds JSON
        return cls(folder=folder, manifest=facts["manifest_url"], world_size=facts["world_size"])

    def command(self, launch: Sequence[str] = (), *, num_ranks: int | None = None) -> list[str]:
        """launch: what stands before `trainer/train.py`; empty: torchrun here, with num_ranks or as many as RUN had."""
        start = list(launch) or _launch(self.world_size if num_ranks is None else num_ranks)
        return [*start, str(TRAIN), "--manifest", self.manifest, "--config", str(self.folder / "config.yaml")]


def _launch(world_size: int) -> list[str]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world_size)]
    return [sys.executable, *(torchrun if world_size > 1 else [])]


def run_to_end(command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """The lines of a run into `output`. Raises UserError where it fails; what it said is kept beside."""
    whole = [*command, "--set", f"output={output}"]
    done = subprocess.run(
        whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        (output.parent / f"{output.name}.log").write_text(done.stdout, encoding="utf-8")
        raise UserError(
            f"{shlex.join(whole)} exited with {done.returncode}; what it said is in {output.parent / output.name}.log"
        )
    return done.stdout.splitlines()
