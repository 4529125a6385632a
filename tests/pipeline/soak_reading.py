"""By hand: spoilt files through the real commands, `read` and a build. 10,000 files take some two minutes of CPU.

    python tests/pipeline/soak_reading.py [--files 10000] [--first-seed 0] [--no-build] [--save]

Prints what was read, and with --save keeps it as benchmarks/results/<date>-soak-reading.md; exit 1 when a command
crashes, a file or record is unaccounted for, or a ledger does not balance.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.pipeline.hostile_files import hostile_file, num_lines

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
CONFIG = """\
name: soak
output: {root}/out
sources: [{{name: hostile, paths: [{root}/in]}}]
tokenizer: {{train: {{vocab_size: 400}}}}
example: {{seq_len: 64}}
bad_records: {{budget_fraction: 1}}
workers: 1
ray: {{num_cpus: 1}}
"""


def main() -> int:
    """Write the files, run the commands, compare the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--save", action="store_true", help="keep what is printed in benchmarks/results/")
    options = parser.parse_args()
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="shardmill-soak-") as folder:
        root = Path(folder)
        (root / "in").mkdir()
        expected: dict[str, int] = {}
        for seed in range(options.first_seed, options.first_seed + options.files):
            name, content = hostile_file(seed)
            (root / "in" / name).write_bytes(content)
            if name.endswith(".jsonl") and content[:2] not in (b"PA", b"\xff\xfe", b"\xfe\xff"):
                expected[name] = num_lines(content)
        (root / "c.yaml").write_text(CONFIG.format(root=root))
        failed = _soak(root, expected, said, build=not options.no_build)
    if options.save:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        seeds = f"Seeds {options.first_seed:,} to {options.first_seed + options.files - 1:,}."
        (RESULTS / f"{today}-soak-reading.md").write_text(
            f"# Soak of reading\n\n`python tests/pipeline/soak_reading.py --files {options.files}"
            f" --first-seed {options.first_seed} --save`\n\n{seeds}\n\n```\n{''.join(said)}```\n"
        )
    return failed


def _soak(root: Path, expected: dict[str, int], said: list[str], *, build: bool) -> int:
    def say(text: str) -> None:
        said.append(text)
        sys.stdout.write(text)
        sys.stdout.flush()

    started = time.monotonic()
    command = [sys.executable, "-m", "pipeline", "read", str(root / "c.yaml"), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    records: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in rows:
        bad = row.get("quarantine")
        records[(bad or row)["file"]] += bad["num_records"] if bad else 1
        reasons[bad["reason"] if bad else "document"] += bad["num_records"] if bad else 1
    wrong = {name: (records[name], number) for name, number in expected.items() if records[name] != number}
    say(
        f"read: exit {done.returncode}, {time.monotonic() - started:.0f} s, {records.total():,} records,"
        f" {len(expected):,} files counted by other means, {len(wrong)} differ {dict(list(wrong.items())[:5])}\n"
        f"  {dict(reasons.most_common())}\n"
    )
    failed = done.returncode != 0 or bool(wrong)
    if failed:
        say(done.stderr.decode()[-2000:])
    if build:
        command = [sys.executable, "pipeline/build.py", str(root / "c.yaml")]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        failed = failed or built.returncode != 0
        if built.returncode == 0:
            funnel = json.loads((root / "out/manifests/v1.json").read_text())["funnel"]
            [read] = [row["num_documents"] for row in funnel if row["stage"] == "read"]
            ended = sum(row["num_documents"] for row in funnel if row["stage"] != "read")
            failed = failed or read != ended or read != records.total()
            say(f"build: {read:,} records read = {ended:,} ended; the read command saw {records.total():,}\n")
        else:
            say(f"build: exit {built.returncode}\n{built.stderr[-2000:]}")
    say("FAILED\n" if failed else "ok\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
