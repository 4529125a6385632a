"""datatrove's chain on the texts given, in this process: CPU seconds by stage, written as JSON to --result.

    filters -> MinHash in its four steps -> tokens in a .ds file

The filters that made FineWeb, in its order (datatrove's examples/fineweb.py); 14 buckets of 8 hashes over word 5-grams;
everything else at its default. Three things help datatrove here: C4 keeps its rule on line ends, which FineWeb switched
off and which spares the filter after it most documents; what lies between stages is zstd, not gzip; and the process is
warm, run on a few documents first. MinHash reads all texts, not what the filters left: their rules are for English web
pages and leave about one page of documentation in twenty, so the stages after them would have little to do.

Nothing is downloaded: the word tokenizer is spaCy's blank English one, the tokenizer a local file. Runs in a Python
that has datatrove, and imports nothing of ours but the clock.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    os.environ["HF_HUB_OFFLINE"] = "1"

# What follows is installed in the peer's Python only: the type checker of ours does not find it.
from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]  # see above
from datatrove.pipeline import dedup, filters, readers, tokens, writers  # type: ignore[import-not-found]  # see above

from benchmarks.measure import Stopwatch, cpu_seconds, peak_bytes

NUM_BUCKETS = 14


def run_chain(texts: Path, work: Path, tokenizer: Path, eos: str) -> tuple[dict[str, float], dict[str, int]]:
    """Run every stage; CPU seconds by stage, and what came out of which."""
    shutil.rmtree(work, ignore_errors=True)
    counts: dict[str, int] = {}
    watch = Stopwatch()
    config = dedup.MinhashConfig(n_grams=5, num_buckets=NUM_BUCKETS, hashes_per_bucket=8)

    def run(stage: str, steps: list[Any], tasks: int = 1) -> None:
        with watch.stage(stage):
            LocalPipelineExecutor(steps, tasks=tasks, workers=1, logging_dir=str(work / "logs" / stage)).run()

    def read() -> Any:
        return readers.JsonlReader(str(texts))

    run(
        "filters",
        [
            read(),
            _count(counts, "num_documents"),
            filters.GopherRepetitionFilter(),
            filters.GopherQualityFilter(),
            filters.C4QualityFilter(),
            filters.FineWebQualityFilter(),
            _count(counts, "num_past_filters"),
            writers.JsonlWriter(str(work / "filtered"), compression="zstd"),
        ],
    )
    run("minhash signatures", [read(), dedup.MinhashDedupSignature(str(work / "signatures"), config=config)])
    buckets = dedup.MinhashDedupBuckets(str(work / "signatures"), str(work / "buckets"), config=config)
    run("minhash buckets", [buckets], tasks=NUM_BUCKETS)
    run("minhash clusters", [dedup.MinhashDedupCluster(str(work / "buckets"), str(work / "removed"), config=config)])
    run(
        "minhash filter",
        [
            read(),
            dedup.MinhashDedupFilter(str(work / "removed")),
            _count(counts, "num_past_minhash"),
            writers.JsonlWriter(str(work / "kept"), compression="zstd"),
        ],
    )
    run(
        "tokenize",
        [
            readers.JsonlReader(str(work / "kept")),
            tokens.DocumentTokenizer(
                str(work / "tokens"),
                tokenizer_name_or_path=str(tokenizer),
                eos_token=eos,
                save_filename="texts",
                seed=0,
            ),
        ],
    )
    counts["token_file_bytes"] = sum(path.stat().st_size for path in (work / "tokens").glob("*.ds"))
    return watch.seconds, counts


def _count(counts: dict[str, int], name: str) -> Callable[[Any, int, int], Iterator[Any]]:
    """A step that passes documents on and counts them."""

    def step(documents: Any, _rank: int, _world_size: int) -> Iterator[Any]:
        counts[name] = 0
        for document in documents:
            counts[name] += 1
            yield document

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=Path, required=True, help="a folder with a few documents")
    parser.add_argument("--texts", type=Path, required=True, help="the folder that is measured")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--eos", required=True, help="the token that ends a document")
    parser.add_argument("--result", type=Path, required=True)
    arguments = parser.parse_args()

    run_chain(arguments.small, arguments.work, arguments.tokenizer, arguments.eos)
    started = cpu_seconds()
    fixed, _ = run_chain(arguments.small, arguments.work, arguments.tokenizer, arguments.eos)
    stages, counts = run_chain(arguments.texts, arguments.work, arguments.tokenizer, arguments.eos)
    result = {
        "startup": started - sum(fixed.values()),
        "fixed": fixed,
        "stages": stages,
        "peak_bytes": peak_bytes(),
        "versions": {name: version(name) for name in ("datatrove", "spacy", "tokenizers")},
        **counts,
    }
    arguments.result.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
