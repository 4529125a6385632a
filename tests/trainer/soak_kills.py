"""Twenty SIGKILLs at random moments of one run, which must end as if none had happened.

    python -m tests.trainer.soak_kills [--kills 20] [--steps 400] [--ranks 2] [--seed 0]

Not a test of the suite: it takes minutes. Each kill hits a rank (torchrun --max-restarts starts all ranks again) or
torchrun itself (a supervisor, here this script, starts the command again) at a random step, a random moment later.
Prints each kill and where the run went on, then compares every metric and the exported weights, bit for bit, with an
unbroken run of as many ranks. Exit code: 0 equal, 1 not.
"""

import argparse
import hashlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TrainingProcess, figures

# A save is in flight most of the time, and half of the kills come within one.
_LONGEST_DELAY_S = 0.3
# No kill after the last step: that would be another test.
_SPARED = 40


def main() -> int:
    options = _options()
    settings = (
        "global_batch=8",
        "micro_batch=2",
        f"steps={options.steps}",
        "lr=1e-3",
        "checkpoint.steps=3",
        "validation.every_steps=50",
        "model.config.attention_dropout=0.2",
    )
    with tempfile.TemporaryDirectory(prefix="shardmill-soak-") as folder:
        root = Path(folder)
        manifest = write_dataset(root / "data")
        _say(f"unbroken: {options.steps} steps on {options.ranks} ranks")
        unbroken = TrainingProcess(manifest, root / "unbroken", *settings, torchrun=_launch(options))
        assert unbroken.finish() == 0, unbroken.lines
        _broken_run(manifest, root, settings, options)
        return _verdict(root / "unbroken", root / "broken", options)


def _broken_run(manifest: str, root: Path, settings: tuple[str, ...], options: argparse.Namespace) -> None:
    chance = random.Random(options.seed)
    steps = sorted(chance.sample(range(2, options.steps - _SPARED), options.kills))
    arguments = (manifest, root / "broken", *settings, f"checkpoint.remote={root / 'remote'}")
    process = TrainingProcess(*arguments, torchrun=_launch(options))
    for number, step in enumerate(steps, start=1):
        while _number(process.wait_for("step ")) < step:
            pass
        delay_s = chance.uniform(0, _LONGEST_DELAY_S)
        time.sleep(delay_s)
        victim = chance.choice(["torchrun", *range(options.ranks)])
        if victim == "torchrun":
            process.send(signal.SIGKILL)
            process = TrainingProcess(*arguments, torchrun=_launch(options))
        else:
            os.kill(process.ranks()[victim], signal.SIGKILL)
        went_on = process.wait_for("resumed from", "starting from")
        name = victim if victim == "torchrun" else f"rank {victim}"
        _say(f"kill {number:2}: {name:8} {delay_s:.2f} s after step {step:3}; on from step {_number(went_on)}")
    assert process.finish() == 0, process.lines[-40:]


def _number(line: str) -> int:
    """The step a line tells."""
    found = re.search(r"step (\d+)", line)
    assert found is not None, line
    return int(found[1])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _launch(options: argparse.Namespace) -> list[str]:
    """`--max-restarts`: more than there are kills."""
    restarts = ["--max-restarts", str(2 * options.kills), "--shutdown-timeout", "5"]
    return ["--standalone", "--nproc-per-node", str(options.ranks), *restarts]


def _verdict(unbroken: Path, broken: Path, options: argparse.Namespace) -> int:
    expected, found = figures(unbroken), figures(broken)
    differing = [there["step"] for there, here in zip(expected, found, strict=False) if there != here]
    weights = [
        hashlib.sha256((run / "final" / "model.safetensors").read_bytes()).hexdigest() for run in (unbroken, broken)
    ]
    _say(f"rows of metrics: {len(expected)} unbroken, {len(found)} broken, {len(differing)} differ {differing[:5]}")
    _say(f"weights: sha256 {weights[0][:16]} unbroken, {weights[1][:16]} broken")
    equal = len(expected) == len(found) == options.steps and not differing and weights[0] == weights[1]
    _say(
        f"VERDICT: {options.kills} SIGKILLs, {options.steps} steps, {options.ranks} ranks, seed {options.seed}: "
        + ("bit-equal" if equal else "NOT EQUAL")
    )
    return 0 if equal else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
