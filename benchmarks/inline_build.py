"""One whole build of ours in this process, without Ray: CPU seconds by stage, written as JSON to --result.

    small build (pays start-up) -> small build again (what any build costs) -> the build that is measured -> verify

The stages run as on Ray: `execute` makes every unit durable, and results that lie on storage are looked for first. Only
the processes are left out, so that time belongs to a stage. benchmarks/build.py starts this, pinned to one core.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not benchmarks/, where build.py would shadow a module

from benchmarks.measure import Stopwatch, cpu_seconds, peak_bytes
from manifests.command_line import leave
from manifests.manifest import Dataset
from manifests.verify import verify_shards
from pipeline.build import Host, build
from pipeline.config import parse
from pipeline.runtime import Summary, Unit, execute, find_results, result_url


@dataclass(frozen=True, kw_only=True)
class InlineRuntime:
    """pipeline.runtime.Runtime in the calling process, timed by stage."""

    build_url: str
    watch: Stopwatch

    def run(
        self,
        stage: str,
        function: Callable[[Any], Summary],
        units: Sequence[Unit],
        check: Callable[[Unit, Summary], None] | None = None,
    ) -> list[Summary]:
        """See pipeline.runtime.Runtime."""
        with self.watch.stage(stage):
            done = find_results(self.build_url, stage, units)
            for unit in units:
                if unit.key not in done:
                    done[unit.key] = execute(function, unit, result_url(self.build_url, stage, unit.key))
                if check is not None:
                    check(unit, done[unit.key])
        return [done[unit.key] for unit in units]


def timed_build(values: dict[str, Any], paths: Sequence[str], version: str) -> tuple[Dataset, dict[str, float]]:
    """Build `version` from nothing; CPU seconds by stage, what is no stage's as "driver"."""
    root = Path(values["output"])
    shutil.rmtree(root / ".build", ignore_errors=True)
    by_name = {Path(path).name.partition(".")[0]: path for path in paths}
    sources = [{**source, "paths": [by_name[source["name"]]]} for source in values["sources"]]
    config = parse({**values, "sources": sources, "version": version})
    watch = Stopwatch()
    start = cpu_seconds()
    dataset = build(config, InlineRuntime(build_url=f"{root}/.build", watch=watch), Host(workers=1, ray="none"), _hush)
    total = cpu_seconds() - start
    return dataset, {**watch.seconds, "driver": total - sum(watch.seconds.values())}


def _hush(_line: str) -> None:
    """What a build says to the person who waits, of whom there is none."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config", required=True, help="JSON of a build's configuration; a source's name is its file's"
    )
    parser.add_argument("--small", nargs="+", required=True, help="a few documents of each source")
    parser.add_argument("--texts", nargs="+", required=True, help="what is measured")
    parser.add_argument("--result", type=Path, required=True)
    arguments = parser.parse_args()
    values = json.loads(arguments.config)
    shutil.rmtree(values["output"], ignore_errors=True)

    # The tokenizer stays loaded in the process, as in a worker: all three builds have one output, so one url of it.
    timed_build(values, arguments.small, "first")
    started = cpu_seconds()
    _, fixed = timed_build(values, arguments.small, "second")
    dataset, stages = timed_build(values, arguments.texts, "measured")
    peak = peak_bytes()
    watch = Stopwatch()
    with watch.stage("verify"):
        findings = [finding for result in verify_shards(dataset) for finding in result.findings]
    assert not findings, f"what was measured is no valid data set: {findings[0]}"

    manifest = dataset.manifest
    result = {
        "startup": started - sum(fixed.values()),
        "fixed": fixed,
        "stages": stages,
        "verify": watch.seconds["verify"],
        "peak_bytes": peak,
        "num_documents": sum(source.documents_read for source in manifest.sources.values()),
        "num_kept": sum(source.documents_kept for source in manifest.sources.values()),
        "num_tokens": sum(source.tokens for source in manifest.sources.values()),
        "shard_bytes": sum(split.num_bytes for split in manifest.splits.values()),
        "digest": manifest.digest,
        "engine": manifest.built["engine"],
        "filters": {source["name"]: source["filters"] for source in manifest.config["sources"]},
    }
    arguments.result.write_text(json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    leave(main())  # a run that has been measured must not be lost at the interpreter's end
