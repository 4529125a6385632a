"""Train on a manifest: the command, and the loop on one screen.

    torchrun --nproc-per-node 8 trainer/train.py --manifest v3.json [--config train.yaml] [--set key=value]...

Exit codes: 0 done; 1 failed; 2 the request is wrong; 3 trained and saved, but the final model could not be written; 75
stopped by a signal with a checkpoint saved: run it again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

# Run as a script, Python puts this folder first, where `config` or `model` would be found as top-level modules.
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from manifests.command_line import OneLineParser, leave
from manifests.config_help import describe, help_width
from manifests.errors import UserError
from manifests.manifest import Dataset, load
from trainer.checkpoint import OutOfReachError
from trainer.config import TrainConfig, load_config
from trainer.export import export
from trainer.facts import StepFacts
from trainer.hardware import memory_peak_bytes, utilisation
from trainer.parallel import RankError, process_group
from trainer.run import LONGEST_WRITE_MINUTES, Run, prepare
from trainer.signals import StopSignal, die_with_launcher
from trainer.step import train_step
from trainer.watchdog import Watchdog

# How long a rank other than the first keeps its line, for the launcher to end it after rank 0 has spoken.
_SILENT_S = 10.0
EXIT_NOT_EXPORTED = 3

_EXAMPLES = """\
examples:
  python trainer/train.py --manifest data/manifests/v1.json
  python trainer/train.py --manifest data/manifests/v1.json --config train.yaml --set steps=100 --set lr=1e-4
  torchrun --nproc-per-node 8 trainer/train.py --manifest data/manifests/v1.json --config train.yaml
"""


class NotFiniteError(RuntimeError):
    """Loss or gradient norm was not finite for too many steps in a row."""


def train(run: Run, stop: StopSignal) -> int:
    """Step until the end or a signal; returns the exit code. Every rank runs this in lockstep."""
    config, ranks = run.config, run.ranks
    if run.unvalidated is not None and not run.conclude(run.unvalidated, stop):
        return run.stopped(stop)
    while run.progress.step < run.num_steps:
        run.watchdog.beat()
        started = time.perf_counter()
        data = run.stream.next()
        # One small exchange a step: the tokens the loss is divided by, who was asked to stop, rank 0's clock, and how
        # many microseconds each waited for data.
        save_is_due_here = ranks.is_first and run.checkpoints.is_due_by_time
        told = ranks.each([data.num_labels, stop.asked, save_is_due_here, round(1e6 * data.wait_s)])
        num_tokens, num_stops, save_is_due, _ = map(sum, zip(*told, strict=True))
        if num_stops or save_is_due:
            run.save(must=bool(num_stops))
        if num_stops:
            return run.stopped(stop)

        rate = run.schedule.rate(run.progress.examples_consumed + run.global_batch)
        result = train_step(
            run.model,
            run.optimizer,
            data.micro_batches,
            num_tokens=num_tokens,
            rate=rate,
            clip_norm=config.optimizer.clip_norm,
            device=ranks.device,
            loss_scale=run.progress.loss_scale.factor if run.progress.loss_scale is not None else 1.0,
        )
        run.loader.advance()
        run.progress = run.progress.after(num_examples=run.global_batch, applied=result.applied)
        facts = StepFacts(
            step=run.progress.step,
            loss=result.loss,
            lr=rate,
            grad_norm=result.grad_norm,
            num_tokens=num_tokens,
            tokens_in_batch=run.tokens_in_batch,
            examples_consumed=run.progress.examples_consumed,
            batch_digest=run.digest(data.examples),
            seconds=time.perf_counter() - started,
            data_wait_s=data.wait_s,
            applied=result.applied,
            num_skipped=run.progress.num_skipped,
            slowest_data_wait_s=max(wait for *_, wait in told) / 1e6,
            forward_s=result.phases.forward,
            backward_s=result.phases.backward,
            update_s=result.phases.update,
            model_flops=run.flops_per_token * run.tokens_in_batch,
            peak_flops=run.peak_flops,
            memory_peak_bytes=memory_peak_bytes(ranks.device),
            fetched_bytes=data.fetched_bytes,
            gpu_utilisation=utilisation(ranks.device),
        )
        run.observer.step(facts)
        if not run.conclude(facts, stop):
            return run.stopped(stop)
        if run.progress.num_skipped_in_a_row >= config.optimizer.max_skipped:
            raise NotFiniteError(_what_was_not_finite(run, data.examples))
        is_last = run.progress.step == run.num_steps
        if is_last or run.checkpoints.is_due_by_steps(run.progress.step):
            run.save(must=is_last)

    is_saved = run.finish_saving()
    run.watchdog.beat(extra_minutes=LONGEST_WRITE_MINUTES)
    try:
        export(run.model, run.plan, run.dataset, run.output / "final", ranks)
    except RankError as error:
        run.observer.ended("not exported")
        run.say(_how_to_export(run, error, is_saved))
        return EXIT_NOT_EXPORTED if is_saved else 1
    run.observer.ended("done")
    run.say(f"done: {run.progress.step} steps; the model is in {run.output / 'final'}")
    if summary := run.observer.summary():  # none where no step was left to make
        run.say(summary)
    return 0 if is_saved else 1


def _how_to_export(run: Run, error: RankError, is_saved: bool) -> str:
    failed = f"train.py: the model was not written to {run.output / 'final'}: {error}"
    if not is_saved:
        return f"{failed}; nor was its last checkpoint; make room and run the same command again, it resumes earlier"
    again = f"python -m trainer export {shlex.quote(str(run.output))}"
    return f"{failed}; checkpoint step-{run.progress.step} holds it: make room, then {again}, or the same command again"


def _what_was_not_finite(run: Run, examples: list[tuple[int, int]]) -> str:
    shards = run.dataset.manifest.splits["train"].shards
    named = ", ".join(f"{shards[shard].path}[{index}]" for shard, index in examples)
    progress = run.progress
    return (
        f"{progress.num_skipped_in_a_row} steps in a row, the last one {progress.step}, had a loss or gradient norm"
        f" that is not finite; examples of the last: {named}"
    )


def main(arguments: list[str] | None = None) -> int:
    """The command. A wrong request is one line on standard error and exit code 2."""
    options = _parser().parse_args(arguments)
    die_with_launcher()
    stop = StopSignal()
    try:
        config = load_config(options.config, options.settings)
        dataset = _load_dataset(options.manifest)
    except UserError as error:
        return _refuse(error, 2, speaks=os.environ.get("RANK", "0") == "0")
    watchdog = Watchdog(config.hang_minutes, start_minutes=config.start_minutes, rank=int(os.environ.get("RANK", "0")))
    watchdog.enter("joining the other ranks")
    with process_group() as ranks:
        try:
            run = prepare(config, dataset, ranks, watchdog)
        except (UserError, OutOfReachError) as error:
            watchdog.rest()
            code = 2 if isinstance(error, UserError) else 1
            return _refuse(error, code, speaks=ranks.is_first)
        stop.install()
        try:
            code = train(run, stop)
            # All leave together: a rank that takes its connections down while another still uses them can abort it.
            ranks.sum([0])
            return code
        except NotFiniteError as error:  # on all ranks
            run.finish_saving()
            run.say(f"train.py: {error}")
            return 1
        finally:
            run.close()


def _refuse(error: Exception, code: int, *, speaks: bool) -> int:
    """Rank 0 speaks for all. The others wait to be ended with it: torchrun ends everyone at the first exit it sees. One
    that is not has met what rank 0 has not (a file that its node lacks), and says so itself.
    """
    if not speaks:
        time.sleep(_SILENT_S)
    rank = "" if speaks else f"rank {os.environ['RANK']}: "
    sys.stderr.write(f"train.py: {rank}{error}\n")
    sys.stderr.flush()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python trainer/train.py",
        description="Train a model on a manifest. With --manifest alone: a small Llama from random weights, one epoch.",
        epilog=f"{_EXAMPLES}\nkeys of CONFIG.yaml and of --set, with defaults:\n{describe(TrainConfig, help_width())}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--manifest", required=True, metavar="MANIFEST", help="<root>/manifests/<version>.json, local or s3://"
    )
    parser.add_argument("--config", type=Path, metavar="CONFIG.yaml", help="how to train; see examples/train.yaml")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. seed=7"
    )
    return parser


def _load_dataset(url: str) -> Dataset:
    try:
        return load(url)
    except FileNotFoundError as error:
        raise UserError(f"--manifest: {url} does not exist; give <root>/manifests/<version>.json") from error


if __name__ == "__main__":
    leave(main())
