"""python -m manifests: show, diff, verify, where.

Exit codes: 0 done; 1 the thing asked about does not hold; 2 the request is wrong.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from manifests import render
from manifests.command_line import OneLineParser, end_process, run_command
from manifests.diff import compare
from manifests.inputs import read_inputs
from manifests.lineage import find_document
from manifests.manifest import Dataset, ManifestError, load, to_bytes
from manifests.verify import Finding, verify_records, verify_shards

_EXAMPLES = """\
A manifest is <root>/manifests/<version>.json, on disk or on S3 (s3://bucket/prefix/manifests/v3.json). For example:

  python -m manifests show data/manifests/v3.json
  python -m manifests diff data/manifests/v2.json data/manifests/v3.json
  python -m manifests verify data/manifests/v3.json
  python -m manifests where data/manifests/v3.json guide/install.md
"""


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m manifests",
        description="Looks at the versions of a data set.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    show = commands.add_parser("show", help="one screen: totals, sources, funnel, sizes")
    show.add_argument("manifest", metavar="MANIFEST")
    show.add_argument("--json", action="store_true", help="print the manifest itself")
    show.set_defaults(run=_show)

    diff = commands.add_parser("diff", help="what changed between two versions")
    diff.add_argument("old", metavar="OLD")
    diff.add_argument("new", metavar="NEW")
    diff.add_argument("--json", action="store_true", help="print the difference as one JSON object")
    diff.add_argument("--exit-code", action="store_true", help="exit with 1 where the data differ, like git diff")
    diff.set_defaults(run=_diff)

    verify = commands.add_parser("verify", help="re-read every shard and check what the manifest claims of it")
    verify.add_argument("manifest", metavar="MANIFEST")
    verify.add_argument("--verbose", action="store_true", help="one line a shard")
    verify.set_defaults(run=_verify)

    where = commands.add_parser("where", help="which shards and examples hold a document")
    where.add_argument("manifest", metavar="MANIFEST")
    where.add_argument("document_id", metavar="DOC_ID")
    where.add_argument("--json", action="store_true", help="print the places as a JSON list")
    where.set_defaults(run=_where)
    return parser


def _show(options: argparse.Namespace) -> int:
    dataset = load(options.manifest)
    _write(to_bytes(dataset.manifest).decode() if options.json else render.show(dataset))
    return 0


def _diff(options: argparse.Namespace) -> int:
    old, new = load(options.old), load(options.new)
    difference = compare(old.manifest, new.manifest, _inputs_of(old), _inputs_of(new))
    _write(_json(difference.to_json()) if options.json else render.diff(difference))
    return 1 if options.exit_code and not difference.is_empty else 0


def _inputs_of(dataset: Dataset) -> pa.Table | None:
    try:
        return read_inputs(dataset.resolve(dataset.manifest.inputs.path))
    except FileNotFoundError:
        return None


def _verify(options: argparse.Namespace) -> int:
    try:
        dataset = load(options.manifest)
    except ManifestError as error:  # it is there, and what it says of itself does not hold
        _write(f"{error}\n")
        return 1
    num_findings = _report(verify_records(dataset))
    num_shards = num_bytes = 0
    for result in verify_shards(dataset):
        num_shards += 1
        num_bytes += result.shard.num_bytes
        num_findings += _report(result.findings)
        if options.verbose and not result.findings:
            _write(f"ok  {result.shard.path}  {result.shard.num_examples:,} examples  {result.shard.sha256[:12]}\n")
    manifest = dataset.manifest
    verdict = f"{num_findings:,} finding{'s' * (num_findings > 1)}" if num_findings else "everything holds"
    _write(
        f"{manifest.name} {manifest.version}: read {num_shards:,} shards, {render.human_bytes(num_bytes)}: {verdict}\n"
    )
    return 1 if num_findings else 0


def _report(findings: list[Finding] | tuple[Finding, ...]) -> int:
    for finding in findings:
        _write(f"{finding}\n")
    return len(findings)


def _where(options: argparse.Namespace) -> int:
    dataset = load(options.manifest)
    placements = find_document(dataset, options.document_id)
    if options.json:
        _write(_json([dataclasses.asdict(placement) for placement in placements]))
    elif placements:
        _write(render.where(options.document_id, placements))
    else:
        _write(f"{dataset.manifest.version} holds no document {options.document_id!r}\n")
    return 0 if placements else 1


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _write(text: str) -> None:
    sys.stdout.write(text)


if __name__ == "__main__":
    end_process(main)
