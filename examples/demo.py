"""`make demo`: the whole line on the bundled sample, by the commands a user would type, then what came of it in words.

Every command is printed before it runs, so that it can be repeated by hand. A second run builds and trains afresh.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from manifests.manifest import load  # noqa: E402 - the line above decides where it is found

OUTPUT = ROOT / "demo"
MANIFEST = "demo/data/manifests/v1.json"
METRICS = OUTPUT / "run" / "metrics.jsonl"
NUM_PROCESSES = 2
BIN = Path(sys.executable).parent


def run(title: str, program: str, *arguments: str) -> None:
    """Print a command as a user would type it, run it, and stop the demo with its exit code if it fails."""
    sys.stdout.write(f"\n== {title}\n   $ {program} {' '.join(arguments)}\n\n")
    sys.stdout.flush()
    result = subprocess.run([str(BIN / program), *arguments], cwd=ROOT, check=False)
    if result.returncode:
        sys.exit(f"demo: this command failed with exit code {result.returncode}")


def main() -> None:
    """Build, show, verify, train, tell."""
    started = time.monotonic()
    if OUTPUT.exists():
        shutil.rmtree(OUTPUT)
    run("raw text to shards", "python", "pipeline/build.py", "examples/demo.yaml")
    run("what the data set holds", "python", "-m", "manifests", "show", MANIFEST)
    run("is it what it claims to be", "python", "-m", "manifests", "verify", MANIFEST)
    run(
        "train a tiny model on it",
        *("torchrun", "--nproc-per-node", str(NUM_PROCESSES), "trainer/train.py"),
        *("--manifest", MANIFEST, "--config", "examples/demo_train.yaml"),
    )
    sys.stdout.write(in_words(time.monotonic() - started))


def in_words(seconds: float) -> str:
    """What the demo did."""
    manifest = load(str(ROOT / MANIFEST)).manifest
    rows = [json.loads(line) for line in METRICS.read_text(encoding="utf-8").splitlines()]
    steps = [row for row in rows if "loss" in row]
    perplexities = [row["validation_perplexity"] for row in rows if "validation_perplexity" in row]
    train, validation = manifest.splits["train"], manifest.splits["validation"]
    kept = sum(source.documents_kept for source in manifest.sources.values())
    read = sum(source.documents_read for source in manifest.sources.values())
    return (
        f"\n== done in {seconds:.0f} s\n"
        f"   documents   {read:,} read, {kept:,} kept; where each other one went: manifests show, or the report\n"
        f"   tokens      {train.num_tokens:,} to train on, {validation.num_tokens:,} held back\n"
        f"   shards      {train.num_shards} + {validation.num_shards}, examples of {manifest.example.seq_len} tokens\n"
        f"   loss        {steps[0]['loss']:.3f} at step 1, {steps[-1]['loss']:.3f} at step {len(steps)}\n"
        f"   perplexity  {perplexities[0]:,.0f} on held-back text at first, {perplexities[-1]:,.0f} at the end\n"
        f"   report      demo/data/reports/v1.html\n"
        f"   metrics     demo/run/metrics.jsonl\n"
    )


if __name__ == "__main__":
    main()
