"""Data -> text for a person: show, diff, where. Pure; 100 columns, no colour."""

from collections.abc import Iterable, Sequence
from typing import Any

from manifests.diff import Change, Difference, SetChange
from manifests.lineage import Placement, copies
from manifests.manifest import Dataset, Manifest

# Names listed of one group before "and N more": a screen stays a screen, --json has them all.
_MAX_NAMES = 8
# Characters of a value: two of them and a field's name still fit on a line.
_MAX_VALUE = 30


def show(dataset: Dataset) -> str:
    """One screen: what this version is, its splits, sources, funnel."""
    manifest = dataset.manifest
    return "\n".join(
        [
            f"{manifest.name} {manifest.version}",
            *_facts(dataset),
            "",
            *_table(("splits", "shards", "examples", "tokens", "documents", "bytes", "padding"), _split_rows(manifest)),
            "",
            *_table(("sources", "weight", "read", "kept", "kept %", "tokens", "tokens %"), _source_rows(manifest)),
            "",
            *_table(("funnel", "documents", "share", "text"), _funnel_rows(manifest)),
            "",
        ]
    )


def _facts(dataset: Dataset) -> list[str]:
    manifest, example, tokenizer = dataset.manifest, dataset.manifest.example, dataset.manifest.tokenizer
    parent, bos = manifest.parent, tokenizer.bos_id
    encoded = sum(source.tokens for source in manifest.sources.values())
    dropped = manifest.num_dropped_tokens
    facts = {
        "manifest": dataset.url,
        "digest": manifest.digest,
        "parent": "none" if parent is None else f"{parent.version}  {parent.digest}",
        "example": f"{example.seq_len:,} tokens of {example.dtype}, packed by {example.packing}, "
        f"one every {example.stride:,} bytes",
        "tokenizer": f"{tokenizer.vocab_size:,} ids, EOS {tokenizer.eos_id}, BOS {'none' if bos is None else bos}, "
        f"sha256 {tokenizer.sha256[:12]}",
        "inputs": f"{manifest.inputs.num_files:,} files, {human_bytes(manifest.inputs.num_bytes)}",
        "dropped": f"{dropped:,} of {encoded:,} tokens, in the unfilled last row of each split",
        "built": _built(manifest),
    }
    return [f"  {name:<10} {value}" for name, value in facts.items()]


def _built(manifest: Manifest) -> str:
    """What `built` and `code` say, whatever a builder chose to record there."""
    told = {**manifest.built, **manifest.code}
    return (
        ", ".join(f"{key} {value}" for key, value in told.items() if isinstance(value, str | int | float)) or "not told"
    )


def _split_rows(manifest: Manifest) -> list[list[str]]:
    rows = []
    for name, split in manifest.splits.items():
        counts = (split.num_shards, split.num_examples, split.num_tokens, split.num_documents)
        padding = share(split.num_padding_tokens, split.num_tokens + split.num_padding_tokens)
        rows.append([name, *(f"{count:,}" for count in counts), human_bytes(split.num_bytes), padding])
    return rows


def _source_rows(manifest: Manifest) -> list[list[str]]:
    encoded = sum(source.tokens for source in manifest.sources.values())
    return [
        [
            name,
            f"{source.weight:g}",
            f"{source.documents_read:,}",
            f"{source.documents_kept:,}",
            share(source.documents_kept, source.documents_read),
            f"{source.tokens:,}",
            share(source.tokens, encoded),
        ]
        for name, source in manifest.sources.items()
    ]


def _funnel_rows(manifest: Manifest) -> list[list[str]]:
    read = sum(row.num_documents for row in manifest.funnel if row.stage == "read")
    signs = {"read": "  ", "kept": "= "}
    return [
        [
            signs.get(row.stage, "- ") + (row.stage if row.reason is None else f"{row.stage}: {row.reason}"),
            f"{row.num_documents:,}",
            share(row.num_documents, read),
            human_bytes(row.num_bytes),
        ]
        for row in manifest.funnel
    ]


def diff(difference: Difference) -> str:
    """What changed, grouped as the manifest is."""
    relation = {
        "same data": "the same data",
        "new from old": f"{difference.new} was built from {difference.old}",
        "old from new": f"{difference.old} was built from {difference.new}",
        "unrelated": "neither was built from the other",
    }[difference.relation]
    lines = [f"{difference.old} -> {difference.new}: {relation}"]
    lines += [f"  - {difference.old_digest}", f"  + {difference.new_digest}"]
    groups: dict[str, list[Change]] = {}
    for change in difference.changes:
        group, _, _ = change.field.partition(".")
        groups.setdefault(group, []).append(change)
    for group, changes in groups.items():
        lines += ["", group, *_table((), [_change_row(change, group) for change in changes])]
    lines += _file_groups("shards", difference.shards)
    if difference.inputs is None:
        lines += ["", "input files: not compared, a table of inputs is missing"]
    else:
        lines += _file_groups("input files", difference.inputs)
    return "\n".join([*lines, ""])


def _change_row(change: Change, group: str) -> list[str]:
    field = change.field.removeprefix(f"{group}.")
    if change.kind == "added":
        return [f"+ {field}", "", "", _value(change.new), ""]
    if change.kind == "removed":
        return [f"- {field}", _value(change.old), "", "", ""]
    delta = ""
    if type(change.old) is int and type(change.new) is int:
        delta = f"{change.new - change.old:+,}"
        delta += f" ({100 * (change.new - change.old) / change.old:+.1f} %)" if change.old else ""
    return [f"  {field}", _value(change.old), "->", _value(change.new), delta]


def _file_groups(title: str, groups: dict[str, SetChange]) -> list[str]:
    lines = []
    for name, group in groups.items():
        listed = (("+", group.added), ("-", group.removed), ("~", group.changed))
        if not any(names for _, names in listed):
            continue
        counts = f"{len(group.added):,} added, {len(group.removed):,} removed"
        counts += f", {len(group.changed):,} changed" if group.changed else ""
        lines += ["", f"{title} of {name}: {group.num_kept:,} kept, {counts}"]
        for sign, names in listed:
            lines += [f"  {sign} {file}" for file in names[:_MAX_NAMES]]
            if len(names) > _MAX_NAMES:
                lines.append(f"  {sign} and {len(names) - _MAX_NAMES:,} more (--json lists all)")
    return lines


def where(document_id: str, placements: Sequence[Placement]) -> str:
    """Every copy of every document with this id, run by run."""
    lines: list[str] = []
    for runs in copies(placements):
        first, last = runs[0], runs[-1]
        copy = f", copy {first.repeat + 1}" if first.repeat else ""
        start = f", its first {first.document_offset:,} lie in no shard" if first.document_offset else ""
        end = "" if last.ends else ", its end lies in no shard"
        lines.append(f"{first.source}: {document_id}{copy}: {sum(run.num_tokens for run in runs):,} tokens{start}{end}")
        lines += (f"  {line}" for line in _table((), [_run_row(run) for run in runs]))
    return "\n".join([*lines, ""])


def _run_row(run: Placement) -> list[str]:
    examples = f"example {run.first_example}"
    if run.last_example != run.first_example:
        examples = f"examples {run.first_example}-{run.last_example}"
    last = run.document_offset + run.num_tokens - 1
    return [run.shard, examples, f"from token {run.first_token}", f"document tokens {run.document_offset}-{last}"]


def human_bytes(num_bytes: float) -> str:
    """
    >>> human_bytes(999), human_bytes(214_900_000)
    ('999 B', '214.9 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            break
        num_bytes /= 1000
    return f"{num_bytes:,.0f} {unit}" if unit == "B" else f"{num_bytes:,.1f} {unit}"


def share(part: int, whole: int) -> str:
    """
    >>> share(1, 8), share(0, 0)
    ('12.5 %', '-')
    """
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _value(value: Any) -> str:
    if type(value) is int:
        return f"{value:,}"
    text = "null" if value is None else str(value)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell: the first to the left; with a header, the others to the right."""
    cells = [list(header)] * bool(header) + [[f"  {row[0]}", *row[1:]] if header else list(row) for row in rows]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    align = str.rjust if header else str.ljust
    lines = []
    for first, *others in cells:
        columns = [
            first.ljust(widths[0]),
            *(align(cell, width) for cell, width in zip(others, widths[1:], strict=True)),
        ]
        lines.append("  ".join(columns).rstrip())
    return lines
