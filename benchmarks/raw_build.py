"""The raw corpus in every format it comes in, through the real build on Ray, and its account read back.

    python benchmarks/raw_build.py [--corpus ../shared/corpus] [--workers 2] [--save]

A row a source: files, records read, quarantined by reason, kept, tokens. The ledger is added up again from what lies on
storage, and `python -m manifests verify` reads every shard. Exit 1 where a command fails or a record is missing.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not benchmarks/, where build.py would shadow a module

import pyarrow.parquet as pq

from benchmarks.machine import REPOSITORY, RESULTS, this_machine

SOURCES: tuple[dict[str, Any], ...] = (
    {"name": "markdown", "paths": ["docs/bsl-ls-docs-md.tar.gz"]},
    {"name": "html", "paths": ["docs/debian-manuals-ru-html.tar.gz"]},
    {"name": "text", "paths": ["docs/manpages-ru-txt.tar"]},
    {"name": "rst", "paths": ["docs/python311-rst.tar.zst"]},
    {"name": "wml", "paths": ["docs/debian-web-wml.tar.xz"]},
    {"name": "rst-po", "paths": ["docs/tarantool-rst-po.tar.gz"]},
    {"name": "text-8bit", "paths": ["docs/spf-forth-8bit.tar.gz"], "encoding": "guess"},
    {"name": "json-nested", "paths": ["tickets/ietf_trackers.jsonl.zst"], "text": "body", "id": "url"},
    {"name": "json-bugzilla", "paths": ["tickets/mozilla_bugzilla.jsonl.gz"], "text": "summary"},
    {"name": "json-github", "paths": ["tickets/webcompat_issues.jsonl.gz"], "text": "body", "id": "number"},
    {"name": "json-arrays", "paths": ["tickets/gdc_bitbucket_db-1.0.json"], "text": "content"},
    {"name": "csv-gzip", "paths": ["tickets/it_service_tickets.csv.gz"], "text": "Document", "id": None},
    {"name": "csv-html", "paths": ["tickets/citizen_requests_ru.csv"], "text": "Текст Сообщения", "markup": "html"},
    {"name": "xml", "paths": ["tickets/stackexchange_Posts.xml.gz"]},
    {"name": "mbox", "paths": ["mails/*.mbox"]},
    {"name": "parquet", "paths": ["mails/r-*.parquet"], "text": "body", "id": "message_id"},
    {"name": "json-labels", "paths": ["mails/segment_annotated_mails.jsonl.gz"]},
    {"name": "eml", "paths": ["mails/python_test_email_eml.tar"]},
)


def build_config(raw: Path, output: Path, workers: int) -> dict[str, Any]:
    """JSON is YAML: what the build is told. Two sources cannot be read at all, so no budget stops it."""
    return {
        "name": "raw",
        "output": str(output),
        "sources": [{**source, "paths": [str(raw / path) for path in source["paths"]]} for source in SOURCES],
        "tokenizer": {"train": {"vocab_size": 8000}},
        "bad_records": {"budget_fraction": 1},
        "validation": {"fraction": 0.01},
        "workers": workers,
        "ray": {"num_cpus": workers},
    }


def account(root: Path) -> tuple[str, bool]:
    """The table of a finished build, and whether every record that was read ended somewhere."""
    manifest = json.loads((root / "manifests/v1.json").read_text())
    files: Counter[str] = Counter()
    records: Counter[str] = Counter()
    for row in pq.read_table(root / manifest["inputs"]["path"]).to_pylist():
        files[row["source"]] += 1
        records[row["source"]] += row["num_records"]
    bad: dict[str, Counter[str]] = {name: Counter() for name in manifest["sources"]}
    for path in sorted((root / "quarantine/v1").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            bad[row["source"]][row["reason"]] += row["num_records"]
    text = "| source | files | records read | quarantined | kept | tokens |\n|---|---|---|---|---|---|\n"
    balanced = True
    for name, source in manifest["sources"].items():
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in bad[name].most_common())
        counts = (files[name], source["documents_read"], reasons or "0", source["documents_kept"], source["tokens"])
        text += f"| {name} | " + " | ".join(n if isinstance(n, str) else f"{n:,}" for n in counts) + " |\n"
        balanced = balanced and records[name] == source["documents_read"]
    funnel = {(row["stage"], row["reason"]): row["num_documents"] for row in manifest["funnel"]}
    num_read = funnel.pop(("read", None))
    quarantined = sum(n for (stage, _), n in funnel.items() if stage == "quarantine")
    balanced = balanced and num_read == sum(funnel.values()) == sum(records.values())
    balanced = balanced and quarantined == sum(counts.total() for counts in bad.values())
    ended = " + ".join(f"{n:,} {stage}{f' ({reason})' if reason else ''}" for (stage, reason), n in funnel.items())
    text += f"\n{num_read:,} records read = {ended}: {'balanced' if balanced else 'NOT BALANCED'}\n"
    return text, balanced


def main() -> int:
    """Build, add up, verify, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("SHARDMILL_CORPUS", default)))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-raw-build.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardmill-raw-") as folder:
        root, config = Path(folder) / "out", Path(folder) / "raw.yaml"
        config.write_text(json.dumps(build_config(options.corpus.resolve() / "raw", root, options.workers)))
        started = time.monotonic()
        if subprocess.run([sys.executable, "pipeline/build.py", str(config)], cwd=REPOSITORY, check=False).returncode:
            return 1
        seconds = time.monotonic() - started
        text, balanced = account(root)
        command = [sys.executable, "-m", "manifests", "verify", str(root / "manifests/v1.json")]
        verified = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        text += f"\n`manifests verify`: exit {verified.returncode}: {(verified.stdout + verified.stderr).strip()}\n"
        machine = this_machine().in_words()
        text += f"\n{seconds:.0f} s on the clock with {options.workers} workers, Ray's start in it; {machine}.\n"
    sys.stdout.write(text)
    if options.save:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        target = RESULTS / f"{today}-raw-build.md"
        target.write_text(f"# The raw corpus, built\n\n`python benchmarks/raw_build.py`\n\n{text}")
    return int(not balanced or verified.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
