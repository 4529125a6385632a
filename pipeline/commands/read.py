"""Show what reading, cleaning and redacting make of a config's inputs, without building.

With --json one line a document, {"id", "source", "file", "text"}, and one a quarantined record, {"quarantine":
{"source", "file", "place", "reason", "detail", "num_records", "first_bytes"}}; a document that a build drops for having
no text also has "dropped": "empty.null" or "empty.blank". Without it, an excerpt of each and a table of totals.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from manifests.errors import UserError
from pipeline.budget import Losses, over_budget
from pipeline.config import BuildConfig, SourceConfig, load_config

EXCERPT_CHARS = 100
DEFAULT_LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("config", metavar="CONFIG.yaml", help="the config of the build; see examples/")
    parser.add_argument("--source", metavar="S", help="only this source")
    parser.add_argument(
        "--limit", type=_count, metavar="N", help=f"documents a source (default {DEFAULT_LIMIT}; with --json all)"
    )
    parser.add_argument("--json", action="store_true", help="JSON lines for programs")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. clean.mojibake=repair"
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of documents: give 0 or more")
    return int(text)


@dataclass
class Totals:
    """What became of one source's records, as far as they were read."""

    num_files: int = 0
    num_documents: int = 0
    num_chars: int = 0
    num_bytes: int = 0
    """Of all files, read or not."""
    num_lost_files: int = 0
    lost_bytes: int = 0
    num_skipped: int = 0
    num_changed: int = 0
    num_undated: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    stopped: bool = False


def run(options: argparse.Namespace) -> int:
    """Do it."""
    config = load_config(options.config, options.set)
    known = [source.name for source in config.sources]
    if options.source is not None and options.source not in known:
        raise UserError(f"--source: there is no source {options.source}, known: {', '.join(known)}")
    limit = options.limit if options.limit is not None or options.json else DEFAULT_LIMIT
    for source in config.sources:
        if options.source in (None, source.name):
            totals = Totals()
            for row in rows(config, source, totals, limit):
                sys.stdout.write((json.dumps(row, ensure_ascii=False) if options.json else _shown(row)) + "\n")
            sys.stdout.flush()
            out = sys.stderr if options.json else sys.stdout
            out.write(_in_words(source, totals, config.bad_records.budget_fraction))
    return 0


def rows(config: BuildConfig, source: SourceConfig, totals: Totals, limit: int | None) -> Iterator[dict[str, Any]]:
    """A source's documents and quarantined records, in the build's order; `totals` grows on the way."""
    # Here, not above: --help needs no numba.
    from pipeline import texts
    from pipeline.inputs import find_inputs
    from pipeline.kernels.text import analyse
    from pipeline.readers import dates, read_file

    fields = texts.fields_of(config, source)
    found = find_inputs(source)
    totals.num_skipped = len(found.skipped)
    totals.num_bytes = sum(file.num_bytes for file in found.files)
    for file in found.files:
        totals.num_files += 1
        reading = read_file(
            file.url, format=source.format, fields=fields, encoding=source.encoding, markup=source.markup
        )
        for records in reading:
            totals.num_skipped += len(records.skipped)
            for bad in records.bad:
                totals.quarantined[bad.reason] += bad.num_records
                shown = {
                    "source": source.name,
                    "file": texts.file_of(file.name, bad.member),
                    "place": bad.place,
                    "reason": bad.reason,
                    "detail": bad.detail,
                    "num_records": bad.num_records,
                    "first_bytes": bad.first_bytes.decode("utf-8", "backslashreplace"),
                }
                yield {"quarantine": shown}
            # Only what is shown is cleaned, so that the totals count these documents and no others.
            left = len(records.text) if limit is None else min(len(records.text), limit - totals.num_documents)
            totals.stopped = left < len(records.text)
            text = records.text.slice(0, left)
            prepared = texts.prepared(text, source.clean or config.clean, config.redact)
            totals.num_changed += int(prepared.changed.sum())
            totals.redacted += prepared.redacted
            is_blank = analyse(prepared.text.fill_null(""))[0].num_words == 0 if len(text) else []
            ids = texts.identities(records, file.name).slice(0, left)
            name = texts.file_of(file.name, records.member)
            when = records.documents["date"].slice(0, left)
            columns = (ids.to_pylist(), prepared.text.to_pylist(), is_blank, when.to_pylist())
            for identity, after, blank, date in zip(*columns, strict=True):
                totals.num_documents += 1
                totals.num_chars += len(after or "")
                row = {"id": identity, "source": source.name, "file": name, "text": after or ""}
                if fields.dated:
                    row["date"] = None if date is None else dates.spelled(date)
                    totals.num_undated += date is None
                if blank:
                    row["dropped"] = "empty.null" if after is None else "empty.blank"
                    totals.dropped[row["dropped"]] += 1
                yield row
            if totals.stopped:
                return
        if reading.summary.num_bad_records and not reading.summary.num_documents:
            totals.num_lost_files += 1
            totals.lost_bytes += file.num_bytes


def _shown(row: dict[str, Any]) -> str:
    if "quarantine" in row:
        bad = row["quarantine"]
        return f"  ! {bad['file']}, {bad['place']}: {bad['reason']} ({bad['detail']})"
    text = " ".join(row["text"][: 2 * EXCERPT_CHARS].split())
    excerpt = text[:EXCERPT_CHARS] + ("…" if len(text) > EXCERPT_CHARS else "")
    date = f"  {row['date'] or 'no date'}" if "date" in row else ""
    return f"  {row['id']}{date}  {len(row['text']):,} chars  {row.get('dropped') or excerpt}"


def _in_words(source: SourceConfig, totals: Totals, budget_fraction: float) -> str:
    num_bad = totals.quarantined.total()
    num_records = totals.num_documents + num_bad
    lines = [
        f"{source.name}: {totals.num_files:,} files, {num_records:,} records = {totals.num_documents:,} documents"
        f" ({totals.num_chars:,} characters) + {num_bad:,} quarantined"
        + (", stopped at the limit" if totals.stopped else "")
    ]
    for title, counts in (
        ("quarantined", totals.quarantined),
        ("without text", totals.dropped),
        ("redacted", totals.redacted),
    ):
        if counts:
            lines.append(f"  {title}: " + ", ".join(f"{name} {n:,}" for name, n in counts.most_common()))
    if totals.num_undated:
        lines.append(f"  without a date that can be read: {totals.num_undated:,}")
    lines.append(f"  cleaning changed {totals.num_changed:,} texts")
    if totals.num_skipped:
        lines.append(f"  skipped {totals.num_skipped:,} files that are no data by their names")
    losses = Losses(
        num_records=num_records,
        reasons=totals.quarantined,
        num_bytes=totals.num_bytes,
        num_lost_files=totals.num_lost_files,
        lost_bytes=totals.lost_bytes,
    )
    if over := over_budget(losses, budget_fraction):
        lines.append(f"  a build would stop here (bad_records.budget_fraction): the source {over}")
    return "\n".join(lines) + "\n"
