"""Twenty SIGKILLs at random moments of one run, which must end as if none had happened.

    python -m tests.end_to_end.soak_kills [--torchrun] [--kills 20] [--steps 400] [--ranks 2] [--seed 0] [--save]

Not a test of the suite: it takes minutes. Each kill hits a random rank at a random step, a random moment later; saves
are in flight most of the time. This script is the supervisor that starts the command again. Ranks are forked
(forked_ranks.py), which costs a second a start; with --torchrun they are torchrun's, which restarts killed ranks in
place, and is killed itself as often as one of them: ten times as slow. Prints each kill and where the run went on, then
compares every metric and the exported weights, bit for bit, with an unbroken run of as many ranks. --save keeps what
was said in benchmarks/results/. Exit code: 0 equal, 1 not.
"""

import argparse
import hashlib
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import save, this_machine, today
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import TrainingProcess, figures, train_arguments
from trainer import checkpoint_files as files

_LONGEST_DELAY_S = 0.3
# No kill after the last step: that would be another test.
_SPARED = 40
# What --save keeps.
_SAID: list[str] = []


def main() -> int:
    options = _options()
    chance = random.Random(options.seed)
    steps = sorted(chance.sample(range(2, options.steps - _SPARED), options.kills))
    settings: tuple[str, ...] = (
        "global_batch=8",
        "micro_batch=4",
        f"steps={options.steps}",
        "lr=1e-3",
        "checkpoint.steps=3",
        "validation.every_steps=50",
        "model.config.attention_dropout=0.2",
    )
    with tempfile.TemporaryDirectory(prefix="shardmill-soak-") as folder:
        root = Path(folder)
        manifest, forked = write_dataset(root / "data"), ForkedRanks()
        _say(f"unbroken: {options.steps} steps on {options.ranks} ranks")
        arguments = train_arguments(manifest, root / "unbroken", *settings)
        codes, lines = forked.run(arguments, root / "log", ranks=options.ranks)
        assert not any(codes), lines
        settings = (*settings, f"checkpoint.remote={root / 'remote'}")
        if options.torchrun:
            _kill_under_torchrun(manifest, root / "broken", settings, steps, chance, options)
        else:
            _kill_forked(forked, manifest, root, settings, steps, chance, options)
        forked.close()
        return _verdict(root / "unbroken", root / "broken", options)


def _kill_forked(
    forked: ForkedRanks,
    manifest: str,
    root: Path,
    settings: tuple[str, ...],
    steps: list[int],
    chance: random.Random,
    options: argparse.Namespace,
) -> None:
    output, log = root / "broken", root / "log"
    arguments = train_arguments(manifest, output, *settings)
    for number, step in enumerate(steps, start=1):
        rank, delay_s = chance.randrange(options.ranks), chance.uniform(0, _LONGEST_DELAY_S)
        kill = {"point": "step", "nth": max(1, step - _newest(output)), "rank": rank, "delay_s": delay_s}
        codes, lines = forked.run(arguments, log, ranks=options.ranks, kill=kill)
        assert codes[rank] == -signal.SIGKILL, lines
        assert 0 not in codes, lines
        last = max((_number(line) for line in lines if line.startswith("step ")), default=0)
        _tell(number, f"rank {rank}", delay_s, last, _newest(output))
    codes, lines = forked.run(arguments, log, ranks=options.ranks)
    assert not any(codes), lines


def _newest(output: Path) -> int:
    root = output / "checkpoints"
    whole = (step for step in files.steps_in(root) if files.fault(files.folder_of(root, step), thorough=True) is None)
    return max(whole, default=0)


def _kill_under_torchrun(
    manifest: str,
    output: Path,
    settings: tuple[str, ...],
    steps: list[int],
    chance: random.Random,
    options: argparse.Namespace,
) -> None:
    # --max-restarts: more than there are kills.
    launch = ["--standalone", "--nproc-per-node", str(options.ranks), "--max-restarts", str(2 * options.kills)]
    process = TrainingProcess(manifest, output, *settings, torchrun=launch)
    for number, step in enumerate(steps, start=1):
        while (last := _number(process.wait_for("step "))) < step:
            pass
        delay_s = chance.uniform(0, _LONGEST_DELAY_S)
        time.sleep(delay_s)
        victim = chance.choice(["torchrun", *range(options.ranks)])
        if victim == "torchrun":
            process.send(signal.SIGKILL)
            process = TrainingProcess(manifest, output, *settings, torchrun=launch)
        else:
            os.kill(process.ranks()[victim], signal.SIGKILL)
        went_on = _number(process.wait_for("resumed from", "starting from"))
        _tell(number, victim if victim == "torchrun" else f"rank {victim}", delay_s, last, went_on)
    assert process.finish() == 0, process.lines[-40:]


def _tell(number: int, victim: str, delay_s: float, last: int, went_on: int) -> None:
    _say(f"kill {number:2}: {victim:8} {delay_s:.2f} s into a step; last line of step {last:3}; on from step {went_on}")


def _number(line: str) -> int:
    """The step a line tells."""
    found = re.search(r"step (\d+)", line)
    assert found is not None, line
    return int(found[1])


def _say(line: str) -> None:
    _SAID.append(line)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


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
    if options.save:
        name = "kills-torchrun" if options.torchrun else "kills"
        machine, command = this_machine(), f"python -m tests.end_to_end.soak_kills {shlex.join(sys.argv[1:])}"
        text = "\n".join(
            [f"# {command}", "", f"{machine.in_words()}, {today()}", "", *(f"    {line}" for line in _SAID)]
        )
        data = {"kills": options.kills, "steps": options.steps, "ranks": options.ranks, "seed": options.seed}
        save(name, machine, text + "\n", {**data, "torchrun": options.torchrun, "bit_equal": equal})
    return 0 if equal else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchrun", action="store_true", help="torchrun's ranks and restarts; torchrun is killed too")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    parser.add_argument("--save", action="store_true", help="keep the verdict in benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
