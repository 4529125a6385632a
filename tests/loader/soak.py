"""A soak, by hand: ranks that are killed at random read through an S3 that fails at random; the sequence must be calm.

    python -m tests.loader.soak --minutes 30 [--ranks 2] [--fault-fraction 0.3] [--seed 0] [--save]

Every rank goes on from its last position each time. Exits 1 where a batch differs from the calm run's or something is
left in the cache; prints how many steps, faults and kills that were.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moto.server import ThreadedMotoServer

from benchmarks.machine import save, this_machine
from loader import Loader
from loader.cache import ShardCache
from manifests import ExampleFormat
from tests.loader.loader_datasets import numbered_rows, write_dataset
from tests.s3_server import UnreliableS3, _proxy, client

GLOBAL_BATCH = 6
# A step of training; without it a rank would be through its epochs before it could be killed.
STEP_S = 0.02
WHAT = (
    "Ranks killed at random read through an S3 that fails at random, in seven ways; each goes on from its last "
    "position. Three runs, one after the other. `wrong_steps` counts batches that differ from a calm run's, or are "
    "missing; `early_rows` rows that came by ranged reads, before their shards. Not covered: a change of the number of "
    "ranks, CUDA."
)
FAULTS = ("503", "break", "cut", "refuse", "stall", "flip", "expired")

RANK = """
import json, sys, time
from loader import Loader
weights, cache, rank, ranks, workers, limit, state = sys.argv[1:8]
weights = json.loads(weights)
loader = Loader(weights if len(weights) > 1 else next(iter(weights)), global_batch=6, columns=("input_ids",),
                cache_dir=cache, rank=int(rank), world_size=int(ranks), num_workers=int(workers),
                cache_bytes=int(limit))
if json.loads(state):
    loader.load_state_dict(json.loads(state))
while True:
    for batch in loader:
        at = loader.state_dict()
        loader.advance()
        line = [at["epoch"], at["examples_consumed"], batch["input_ids"][:, 0].tolist(), loader.state_dict(),
                loader.counters.early_rows]
        sys.stdout.write(json.dumps(line) + "\\n")
        sys.stdout.flush()
        time.sleep(float(sys.argv[8]))
"""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set of numbered rows. first_shard: where its numbers begin, so that no two sets hold the same row."""

    name: str
    sizes: tuple[int, ...]
    seq_len: int
    first_shard: int = 0
    weight: float = 1.0

    def write(self, root: str) -> str:
        """Writes it below a folder or bucket; its manifest's URL."""
        rows = [numbered_rows(self.first_shard + number, size, self.seq_len) for number, size in enumerate(self.sizes)]
        example = ExampleFormat(seq_len=self.seq_len, dtype="uint32", packing="concat")
        return write_dataset(f"{root}/{self.name}", rows, example=example)


SMALL_SHARDS = Source(name="small", sizes=tuple(3 + 7 * number % 11 for number in range(40)), seq_len=8)
# 4.4 to 7 MB each: from 4 MB on a start does not wait for whole shards.
LARGE_SHARDS = Source(name="large", sizes=tuple(500 + 37 * number % 300 for number in range(12)), seq_len=2048)
OTHERS = Source(
    name="others",
    sizes=tuple(20 + 7 * number % 30 for number in range(16)),
    seq_len=2048,
    first_shard=100,
    weight=0.5,
)
# What is read, and by whom in turn.
RUNS = {"small shards": (SMALL_SHARDS,), "large shards": (LARGE_SHARDS,), "a mixture": (LARGE_SHARDS, OTHERS)}


class RandomFaults(UnreliableS3):
    """Any request for a shard may fail, in any way."""

    fraction = 0.0
    chance = random.Random(0)

    def fault_for(self, method: str, path: str) -> str | None:
        self.num_requests[method, path] += 1
        if method != "GET" or ".tar" not in path or self.chance.random() >= self.fraction:
            return None
        self.num_faults += 1
        return self.chance.choice(FAULTS)


@dataclass
class Rank:
    """One rank's process, now, and what it has given so far."""

    number: int
    state: object = None
    steps: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    differing: int = 0
    early_rows: int = 0
    kills: int = 0
    crashes: list[str] = field(default_factory=list)

    def live(self, command: list[str], seconds: float) -> None:
        """Starts the process, lets it run for some seconds, kills it, and keeps what it had said by then."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
        timer.start()
        output, errors = process.communicate()
        timer.cancel()
        if process.returncode == -signal.SIGKILL:
            self.kills += 1
        else:
            self.crashes.append(errors[-2000:])
        early_rows = 0
        for line in output.splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # killed in mid-word: that step was not done
            epoch, consumed, tokens, self.state, early_rows = json.loads(line)
            self.differing += self.steps.setdefault((epoch, consumed), tokens) != tokens
        self.early_rows += early_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--fault-fraction", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="+", choices=tuple(RUNS), default=tuple(RUNS), metavar="RUN", help="of: " + ", ".join(RUNS)
    )
    parser.add_argument("--save", action="store_true", help="keep what is printed under benchmarks/results/")
    options = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    unreliable = RandomFaults(endpoint=f"http://{host}:{port}")
    proxy = _proxy(unreliable)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.server_port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "SHARDMILL_S3_READ_TIMEOUT_S": "2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "not-a-real-secret",
    }
    client().create_bucket(Bucket="soak")
    unreliable.chance = random.Random(options.seed)
    found = [_soaked(name, RUNS[name], options, unreliable) for name in options.only]
    printed = json.dumps(
        {
            "minutes": options.minutes,
            "ranks": options.ranks,
            "fault_fraction": options.fault_fraction,
            "seed": options.seed,
            "runs": found,
        },
        indent=1,
    )
    verdict = "As the calm runs." if not any(map(_is_wrong, found)) else "NOT as the calm runs."
    print(f"{printed}\n{verdict}")  # noqa: T201 - a script's output
    if options.save:
        text = f"# A soak of the loader\n\n{WHAT}\n\n{_table(found)}\n\n{options.minutes:g} minutes. {verdict} "
        save("loader-soak", this_machine(), f"{text}{this_machine().in_words()}.\n", json.loads(printed))
    proxy.shutdown()
    server.stop()
    return int(any(map(_is_wrong, found)))


def _soaked(
    name: str, sources: tuple[Source, ...], options: argparse.Namespace, unreliable: RandomFaults
) -> dict[str, Any]:
    """One run's figures."""
    unreliable.fraction = 0.0
    folder_in_bucket = f"s3://soak/{name.replace(' ', '-')}"
    weights = {source.write(folder_in_bucket): source.weight for source in sources}
    with tempfile.TemporaryDirectory() as folder:
        local = {source.write(f"{folder}/data"): source.weight for source in sources}
        cache = Path(folder) / "cache"
        limit = _loader(weights, world_size=options.ranks)._feed.budget.node_needed * 2
        unreliable.fraction, unreliable.num_faults = options.fault_fraction, 0
        unreliable.num_requests.clear()
        ranks = [Rank(number=number) for number in range(options.ranks)]
        most_bytes, stop = [0], threading.Event()
        threading.Thread(target=_watch, args=(cache, most_bytes, stop), daemon=True).start()
        end = time.monotonic() + options.minutes * 60 / len(options.only)
        threads = [
            threading.Thread(
                target=_keep_alive, args=(rank, options.ranks, weights, cache, limit, end, unreliable.chance)
            )
            for rank in ranks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        num_wrong = sum(_num_wrong(rank, options.ranks, local) + rank.differing for rank in ranks)
        ShardCache(cache).sweep(keep=())
        left = [path.name for path in cache.iterdir()]
    return {
        "run": name,
        "steps": [len(rank.steps) for rank in ranks],
        "kills": sum(rank.kills for rank in ranks),
        "faults": unreliable.num_faults,
        "shard_requests": sum(count for (_, path), count in unreliable.num_requests.items() if ".tar" in path),
        "early_rows": sum(rank.early_rows for rank in ranks),
        "most_cache_bytes": most_bytes[0],
        "cache_bytes": limit,
        "wrong_steps": num_wrong,
        "crashes": [crash for rank in ranks for crash in rank.crashes],
        "left_in_cache": left,
    }


def _is_wrong(found: dict[str, Any]) -> bool:
    within = found["most_cache_bytes"] <= found["cache_bytes"]
    return bool(found["wrong_steps"] or found["left_in_cache"] or found["crashes"] or not within)


def _table(found: list[dict[str, Any]]) -> str:
    counts = ("kills", "faults", "shard_requests", "early_rows", "most_cache_bytes", "cache_bytes", "wrong_steps")
    heads = ["run", "steps", *(name.replace("_", " ") for name in counts), "crashes", "left in the cache"]
    rows = [
        [
            run["run"],
            f"{sum(run['steps']):,}",
            *(f"{run[name]:,}" for name in counts),
            f"{len(run['crashes'])}",
            f"{len(run['left_in_cache'])}",
        ]
        for run in found
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def _loader(weights: dict[str, float], **options: Any) -> Loader:
    manifests = weights if len(weights) > 1 else next(iter(weights))
    return Loader(manifests, global_batch=GLOBAL_BATCH, columns=("input_ids",), **options)


def _keep_alive(
    rank: Rank,
    ranks: int,
    weights: dict[str, float],
    cache: Path,
    limit: int,
    end: float,
    chance: random.Random,
) -> None:
    while time.monotonic() < end:
        # A start costs seconds here: torch, then boto3.
        seconds = min(chance.uniform(4, 25), max(1.0, end - time.monotonic()))
        # Half of all lives begin on another machine: with an empty disk, so by ranged reads where shards are large.
        place = chance.choice((cache, cache.parent / f"another-machine-{rank.number}"))
        arguments = [json.dumps(weights), str(place), str(rank.number), str(ranks), str(chance.choice((0, 0, 1)))]
        command = [sys.executable, "-c", RANK, *arguments, str(limit), json.dumps(rank.state), str(STEP_S)]
        rank.live(command, seconds)
        if place != cache:
            shutil.rmtree(place, ignore_errors=True)  # not made where the life was too short for it


def _watch(cache: Path, most: list[int], stop: threading.Event) -> None:
    while not stop.wait(0.05):
        total = 0
        for path in list(cache.glob("*")):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue  # deleted between the listing and the question
        most[0] = max(most[0], total)


def _num_wrong(rank: Rank, ranks: int, local: dict[str, float]) -> int:
    """Steps that differ from the calm run's, or are missing between the first and the last."""
    loader = _loader(local, rank=rank.number, world_size=ranks, num_ahead=0)
    calm: dict[tuple[int, int], list[int]] = {}
    while len(calm) < len(rank.steps):
        for batch in loader:
            calm[loader.epoch, loader.examples_consumed] = batch["input_ids"][:, 0].tolist()
            loader.advance()
            if len(calm) == len(rank.steps):
                break
    return sum(rank.steps.get(at) != tokens for at, tokens in calm.items())


if __name__ == "__main__":
    sys.exit(main())
