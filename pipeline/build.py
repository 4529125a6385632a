"""The command: raw text -> shards and a manifest.

    python pipeline/build.py corpus.yaml [--set key=value]... [--dry-run]
    python pipeline/build.py --input PATH... --output ROOT [--tokenizer tokenizer.json]

    read -> clean -> filter -> exact and near duplicates -> tokenize -> plan from exact counts -> shards -> manifest,
    last

`build` below is the whole pipeline on one screen. Every stage leaves its results on storage, so the same command after
a kill goes on where the old one died, and ends with the same bytes.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a script, Python searches pipeline/ first, where config.py or plan.py would shadow other modules; search
    # the project instead.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from manifests import storage
from manifests.code_version import code_version
from manifests.command_line import OneLineParser, end_process
from manifests.config_help import help_width
from manifests.errors import UserError
from manifests.inputs import inputs_digest, write_inputs
from manifests.manifest import (
    Dataset,
    InputsEntry,
    Manifest,
    SourceEntry,
    Split,
    TokenizerEntry,
    load,
    save,
)
from manifests.shard import ExampleFormat
from pipeline import base as continued
from pipeline import quarantine, report, runtime
from pipeline.balance import check_documents, check_tokens, settle_ledger
from pipeline.budget import nothing_kept
from pipeline.checks import check_dates, check_places, check_version, existing_version
from pipeline.config import BuildConfig, describe_config, determining, from_arguments, load_config
from pipeline.inputs import SPLIT_FILE_BYTES, Inputs
from pipeline.ledger import Ledger, LedgerError
from pipeline.plan import num_buckets_for
from pipeline.runs import RunLayout
from pipeline.runtime import BuildError, Runtime
from pipeline.stages.deduplicate import deduplicate, what_is_missed
from pipeline.stages.encode import MAX_UNITS, SPLITS, Encoded, EncodeRules, encode
from pipeline.stages.engine import TokenizerInUse, prove_engine
from pipeline.stages.pack import plan_shards
from pipeline.stages.read import Read, check_budget, find_all_inputs, read, read_units, undated_in_words
from pipeline.stages.tokenizer import TrainingTexts, given_tokenizer, trained_tokenizer
from pipeline.stages.tokenizer import in_words as tokenizer_in_words
from pipeline.stages.write import MAX_SHARDS, Target, write
from pipeline.tokenization import Tokenizer

Say = Callable[[str], None]
INTERRUPTED = 130
"""The exit code shells give a command that Ctrl-C ended."""

EXAMPLES = """\
examples:
  python pipeline/build.py examples/demo.yaml
  python pipeline/build.py corpus.yaml --dry-run
  python pipeline/build.py corpus.yaml --set example.seq_len=2048 --set sources.0.weight=2
  python pipeline/build.py --input notes/ mail.jsonl.zst --output data/first
"""


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where a build runs: facts for the manifest's record, outside its digest."""

    workers: int
    ray: str


def build(config: BuildConfig, runtime: Runtime, host: Host, say: Say) -> Dataset:
    """Run the pipeline; return the finished data set.

    Raises:
        UserError: the request is wrong, or a source lost more records than its budget.
        BuildError: a unit of work failed for good.
        LedgerError: a record or token is unaccounted for, which is a defect of ours.
    """
    started = datetime.now(UTC)
    clock = time.monotonic()
    root = storage.absolute(config.output)
    build_url = storage.join(root, ".build")
    base = continued.open_base(config)

    existing = existing_version(config)
    tokenizer_config = continued.tokenizer_config(config.tokenizer, base)
    given = given_tokenizer(tokenizer_config)
    check_version(existing, config, tokenizer=given.sha256 if given else None)
    found = find_all_inputs(config)
    num_input_bytes = sum(file.num_bytes for file in found.files)
    say(f"found {len(found.files):,} files, {num_input_bytes / 1e6:,.1f} MB, in {len(config.sources)} sources")
    if missed := what_is_missed(config.dedup.near):
        say(missed)
    tokenizer = given
    if tokenizer is not None:
        in_use = prepared_tokenizer(runtime, root, tokenizer, config.tokenizer.engine, say)
    documents = read(runtime, config, found)
    check_version(existing, config, inputs=inputs_digest(documents.inputs))
    quarantined = quarantine.publish(root, config.version, documents.quarantine_urls, num_first=report.MAX_LISTED)
    check_budget(documents, config.bad_records.budget_fraction, quarantined.folder)
    undrawn = sum(documents.ledger.documents(source.name, "weight") for source in config.sources)
    say(
        f"read {documents.num_read:,} documents, kept {documents.num_kept:,} after cleaning and filters"
        + (f", {undrawn:,} left out by weights below 1" if undrawn else "")
    )
    if num_skipped := len(found.skipped) + documents.num_skipped:
        say(f"skipped {num_skipped:,} files that are no data by their names: the report lists the first")
    if documents.num_attachments:
        say(f"left {documents.num_attachments:,} attachments of mails out: of a mail, its own text is read")
    if undated := undated_in_words(config, documents):
        say(undated)

    dropped = deduplicate(runtime, root, config.version, documents.files, documents.lines, config.dedup, base)
    ledger = settle_ledger(documents.ledger, dropped.counts)
    kept_bytes = sum(row.num_bytes for row in ledger.funnel() if row.stage == "kept")
    say(dropped.in_words())
    for line in nothing_kept(ledger):
        say(line)
    for line in dropped.warnings({name: documents.ledger.documents(name, "kept") for name in ledger.read_documents}):
        say(line)

    if tokenizer is None:
        texts = TrainingTexts(files=documents.files, dropped=dropped, num_bytes=kept_bytes, seed=config.seed)
        tokenizer = trained_tokenizer(runtime, root, texts, tokenizer_config)
        in_use = prepared_tokenizer(runtime, root, tokenizer, config.tokenizer.engine, say)
    tokenizer_entry = TokenizerEntry(
        path=f"tokenizers/{tokenizer.sha256}.json",
        sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        eos_id=tokenizer.special_ids.eos,
        bos_id=tokenizer.special_ids.bos,
    )
    check_version(existing, config, tokenizer=tokenizer.sha256)
    example = ExampleFormat(
        seq_len=config.example.seq_len,
        dtype=ExampleFormat.dtype_for(tokenizer.vocab_size),
        packing=config.example.packing,
    )
    continued.check_tokenizer(tokenizer_entry, example, base)
    rules = EncodeRules(
        tokenizer=in_use,
        seed=config.seed,
        validation_fraction=config.validation.fraction,
        layout=RunLayout(
            dtype=example.dtype, num_buckets=num_buckets_for(kept_bytes), special_ids=tokenizer.special_ids
        ),
    )
    weights = {source.name: source.weight for source in config.sources}
    encoded = encode(runtime, build_url, documents.files, dropped, weights, rules)
    check_documents(encoded, ledger)
    say(encoded.in_words(tokenizer.vocab_size))

    plans = plan_shards(runtime, encoded, example, config.shards.max_bytes)
    target = Target(root=root, version=config.version, example=example, existing=existing)
    shards = {split: write(runtime, target, split, plans[split], encoded) for split in SPLITS}
    splits = {split: Split.of(shards[split], seq_len=example.seq_len) for split in SPLITS}
    check_tokens(encoded, plans, splits)

    manifest = make_manifest(
        config=config,
        base=base,
        documents=documents,
        ledger=ledger,
        tokenizer=tokenizer_entry,
        example=example,
        splits=splits,
        encoded=encoded,
        built={
            "started_at": started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - clock, 1),
            "host_cpus": os.cpu_count(),
            "machine": platform.machine(),
            "output": root,
            "paths": {source.name: list(source.paths) for source in config.sources},
            "workers": host.workers,
            "ray": host.ray,
            "python": platform.python_version(),
            "engine": encoded.engine,
            "copies_by_weight": encoded.num_copies,
        },
    )
    if existing is None:
        remove_orphans(manifest, root)
        write_inputs(storage.join(root, manifest.inputs.path), documents.inputs)
        facts = report.Facts(
            ledger=ledger,
            plans=plans,
            quarantined=quarantined.first,
            num_quarantined=quarantined.num_records,
            empty_files=[
                f"{row['source']}: {row['name']}" for row in documents.inputs.to_pylist() if not row["num_records"]
            ],
            skipped_files=[
                *(f"{storage.basename(file.url)} ({file.reason})" for file in found.skipped),
                *(f"{name} ({reason})" for name, reason in documents.skipped),
            ],
            num_skipped=len(found.skipped) + documents.num_skipped,
            num_attachments=documents.num_attachments,
            num_pairs=dropped.num_pairs,
            cleaned_documents=documents.num_changed,
            clusters=dropped.clusters,
            templates=dropped.templates,
            redacted=documents.redacted,
            undated=undated,
        )
        storage.write_bytes(storage.join(root, f"reports/{config.version}.html"), report.render(manifest, facts))
    return load(save(manifest, root))


def prepared_tokenizer(runtime: Runtime, root: str, tokenizer: Tokenizer, setting: str, say: Say) -> TokenizerInUse:
    """The tokenizer copied into the data set, its engine proved and told."""
    in_use = TokenizerInUse.published(tokenizer, root, setting)
    say(tokenizer_in_words(tokenizer, prove_engine(runtime, in_use)))
    return in_use


def make_manifest(
    *,
    config: BuildConfig,
    base: Dataset | None,
    documents: Read,
    ledger: Ledger,
    tokenizer: TokenizerEntry,
    example: ExampleFormat,
    splits: dict[str, Split],
    encoded: Encoded,
    built: dict[str, Any],
) -> Manifest:
    """The version as its manifest tells it, joined to the one it continues where there is one."""
    sources = {
        source.name: SourceEntry(
            weight=source.weight,
            documents_read=ledger.read_documents[source.name],
            documents_kept=ledger.documents(source.name, "kept"),
            tokens=encoded.num_tokens[source.name],
        )
        for source in config.sources
    }
    return Manifest(
        name=config.name,
        version=config.version,
        parent=continued.parent(base),
        tokenizer=tokenizer,
        example=example,
        splits=continued.join_splits(splits, base, example.seq_len),
        sources=continued.join_sources(sources, base),
        funnel=continued.join_funnels(ledger.funnel(), base),
        inputs=InputsEntry(
            num_files=documents.inputs.num_rows,
            num_bytes=sum(documents.inputs["num_bytes"].to_pylist()),
            digest=inputs_digest(documents.inputs),
            path=f"inputs/{config.version}.parquet",
        ),
        config=determining(config),
        code={**code_version(), "image": os.environ.get("SHARDMILL_IMAGE")},
        built=built,
    )


def remove_orphans(manifest: Manifest, root: str) -> None:
    """Delete shards and lineage of this version that its manifest does not list.

    An earlier run of this version that never reached its manifest may have planned more shards. Nothing lists them, so
    nothing can need them.
    """
    listed = {entry.path for split in manifest.splits.values() for entry in split.shards}
    for split in SPLITS:
        for folder, ending in (("shards", ".tar"), ("lineage", ".parquet")):
            for url in quarantine.storage_urls(storage.join(root, folder, split)):
                name = storage.basename(url).removesuffix(ending)
                of_this_version = name.rpartition("-")[0] == manifest.version
                if of_this_version and f"shards/{split}/{name}.tar" not in listed:
                    storage.delete(url)


def dry_run(config: BuildConfig, found: Inputs) -> str:
    """What a build would do, in words: files, bytes and tasks by source."""
    units = read_units(config, found, {})
    lines = [f"{config.name} {config.version} -> {config.output}", ""]
    lines.append(f"{'source':<24}{'files':>10}{'MB':>14}{'read tasks':>14}")
    for source in config.sources:
        files = [file for file in found.files if file.source == source.name]
        size = sum(file.num_bytes for file in files) / 1e6
        tasks = sum(unit.task.source == source.name for unit in units)
        lines.append(f"{source.name:<24}{len(files):>10,}{size:>14,.1f}{tasks:>14,}")
    total = sum(file.num_bytes for file in found.files) / 1e6
    lines.append(f"{'total':<24}{len(found.files):>10,}{total:>14,.1f}{len(units):>14,}")
    lines += [f"skipped {len(found.skipped):,} files that hold no data"] if found.skipped else []
    if any(file.num_bytes >= SPLIT_FILE_BYTES for file in found.files):
        lines.append(
            f"files of {SPLIT_FILE_BYTES >> 20} MiB and more are read by several tasks where their format allows it"
        )
    lines.append(
        f"then as many encode tasks as read tasks, {MAX_UNITS:,} or so at most, and a write task for every shard, or"
        f" for up to {MAX_SHARDS} of a large corpus. Nothing was read or written."
    )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = OneLineParser(
        prog="python pipeline/build.py",
        description="Turn raw text into training shards and a manifest.",
        epilog=f"{EXAMPLES}\nkeys of CONFIG.yaml and of --set, with defaults (N counts from 0):\n"
        f"{describe_config(help_width())}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("config", nargs="?", metavar="CONFIG.yaml", help="what to build; see examples/local.yaml")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. seed=7")
    made.add_argument("--dry-run", action="store_true", help="print files, bytes and tasks; read and write nothing")
    made.add_argument("--input", nargs="+", metavar="PATH", help="for a first try without a file: what to read")
    made.add_argument("--output", metavar="ROOT", help="with --input: where the data set goes")
    made.add_argument("--tokenizer", metavar="JSON", help="with --input: a tokenizer.json; one is trained without it")
    return made


def configuration(arguments: argparse.Namespace) -> BuildConfig:
    """The config that the options ask for; UserError where they contradict each other."""
    if arguments.config is not None:
        if arguments.input or arguments.output or arguments.tokenizer:
            raise UserError(
                "--input, --output and --tokenizer are for a build without CONFIG.yaml: use --set output=..."
            )
        return load_config(arguments.config, arguments.set)
    if not arguments.input or not arguments.output:
        raise UserError("name a CONFIG.yaml, or both --input and --output")
    return from_arguments(arguments.input, arguments.output, arguments.tokenizer, arguments.set)


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 done, 1 the build failed, 2 the request is wrong, 130 interrupted."""
    if not argv:
        sys.stderr.write(f"{parser().format_usage()}\n{EXAMPLES}\n--help lists every key of CONFIG.yaml.\n")
        return 2

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    try:
        arguments = parser().parse_args(argv)
        config = configuration(arguments)
        # A wrong path or tokenizer is told at once, before Ray takes its seconds to start.
        found = find_all_inputs(config)
        check_places(config, found)
        check_dates(config, found)
        given_tokenizer(config.tokenizer)
        if arguments.dry_run:
            sys.stdout.write(dry_run(config, found) + "\n")
            return 0
        ray_runtime = runtime.start_ray(
            build_url=storage.join(storage.absolute(config.output), ".build"),
            address=config.ray.address,
            num_cpus=config.ray.num_cpus,
            workers=config.workers,
            progress=sys.stderr,
        )
        host = Host(workers=ray_runtime.workers, ray=runtime.ray_version())
        dataset = build(config, ray_runtime, host, say)
    except UserError as error:
        say(f"error: {error}")
        return 2
    except (BuildError, LedgerError) as error:
        say(f"build failed: {error}")
        return 1
    except OSError as error:
        say(f"build failed: {error}: mend it, then run the same command again to go on from here")
        return 1
    except KeyboardInterrupt:
        say("interrupted: what is finished is kept, the same command goes on from there")
        return INTERRUPTED
    finally:
        runtime.stop_ray()
    say(report.in_words(dataset.manifest, dataset.resolve(f"reports/{dataset.manifest.version}.html")))
    sys.stdout.write(dataset.url + "\n")
    return 0


if __name__ == "__main__":
    end_process(main)
