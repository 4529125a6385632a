"""By hand: spoilt files through the real commands, `read` and a build. 10,000 files take some two minutes of CPU.

    python tests/pipeline/soak_reading.py [--files 10000] [--first-seed 0] [--no-build]

Prints what was read; exit 1 when a command crashes, a file or record is unaccounted for, or a ledger does not balance.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.pipeline.hostile_files import hostile_file, num_lines

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
    options = parser.parse_args()
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
        return _soak(root, expected, build=not options.no_build)


def _soak(root: Path, expected: dict[str, int], *, build: bool) -> int:
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
    sys.stdout.write(
        f"read: exit {done.returncode}, {time.monotonic() - started:.0f} s, {records.total():,} records,"
        f" {len(expected):,} files counted by other means, {len(wrong)} differ {dict(list(wrong.items())[:5])}\n"
        f"  {dict(reasons.most_common())}\n"
    )
    failed = done.returncode != 0 or bool(wrong)
    if failed:
        sys.stdout.write(done.stderr.decode()[-2000:])
    if build:
        command = [sys.executable, "pipeline/build.py", str(root / "c.yaml")]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        failed = failed or built.returncode != 0
        if built.returncode == 0:
            funnel = json.loads((root / "out/manifests/v1.json").read_text())["funnel"]
            [read] = [row["num_documents"] for row in funnel if row["stage"] == "read"]
            ended = sum(row["num_documents"] for row in funnel if row["stage"] != "read")
            failed = failed or read != ended or read != records.total()
            sys.stdout.write(
                f"build: {read:,} records read = {ended:,} ended; the read command saw {records.total():,}\n"
            )
        else:
            sys.stdout.write(f"build: exit {built.returncode}\n{built.stderr[-2000:]}")
    sys.stdout.write("FAILED\n" if failed else "ok\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
