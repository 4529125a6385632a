"""A version that continues another: its manifest lists the old shards and the new, and counts both.

    base: v2.json  ->  the old version's shards stay where they are, new documents are compared with its signatures, and
                       what is left of them is added

Everything that tokens mean must be as in the base: the tokenizer (a base's is used where the config would train one),
the length of an example, the packing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from manifests import storage
from manifests.errors import UserError
from manifests.manifest import Dataset, FunnelRow, Parent, SourceEntry, Split, TokenizerEntry, load, manifest_url
from manifests.shard import ExampleFormat
from pipeline.config import BuildConfig, TokenizerConfig
from pipeline.ledger import STAGES


def open_base(config: BuildConfig) -> Dataset | None:
    """The version that `base` names: a path, a URL, or the file's name alone where it lies in this data set.

    Raises UserError where it is not there, is of another data set, or differs in what cannot change between versions.
    """
    if config.base is None:
        return None
    root = storage.absolute(config.output)
    url = storage.absolute(config.base)
    if "/" not in config.base and not storage.exists(url):
        url = manifest_url(root, config.base.removesuffix(".json"))
    try:
        base = load(url)
    except FileNotFoundError:
        raise UserError(f"base: there is no manifest at {url}: correct the path, or leave base out") from None
    if base.root != root:
        raise UserError(
            f"base: {url} belongs to the data set {base.root}, and output is {root}: a version continues one of its own"
            " data set; set output to the same, or leave base out"
        )
    if base.manifest.version == config.version:
        raise UserError(f"base: {url} is version {config.version} itself: give this build another version")
    for field in ("seq_len", "packing"):
        old, new = getattr(base.manifest.example, field), getattr(config.example, field)
        if old != new:
            raise UserError(f"example.{field} is {new}, but {old} in {url}, which base continues: set it as there")
    return base


def tokenizer_config(config: TokenizerConfig, base: Dataset | None) -> TokenizerConfig:
    """The base's own tokenizer in place of one to train."""
    if base is None or config.train is None:
        return config
    return replace(config, path=base.resolve(base.manifest.tokenizer.path), train=None)


def check_tokenizer(entry: TokenizerEntry, example: ExampleFormat, base: Dataset | None) -> None:
    """UserError where the build's tokenizer is not the base's."""
    if base is None:
        return
    old = base.manifest.tokenizer
    if (entry.sha256, entry.eos_id, entry.bos_id) != (old.sha256, old.eos_id, old.bos_id):
        raise UserError(
            f"tokenizer: sha256 {entry.sha256[:12]}, EOS {entry.eos_id}, BOS {entry.bos_id}, but"
            f" {base.manifest.version}, which base continues, has {old.sha256[:12]}, EOS {old.eos_id}, BOS {old.bos_id}"
            f": use {base.resolve(old.path)}, or leave base out"
        )
    assert example.dtype == base.manifest.example.dtype, "one tokenizer has one dtype"


def parent(base: Dataset | None) -> Parent | None:
    """The manifest's `parent`."""
    return None if base is None else Parent(version=base.manifest.version, digest=base.manifest.digest)


def join_splits(splits: Mapping[str, Split], base: Dataset | None, seq_len: int) -> dict[str, Split]:
    """The base's shards, then the new ones."""
    if base is None:
        return dict(splits)
    old = base.manifest.splits
    names = [*splits, *(name for name in sorted(old) if name not in splits)]
    shards = {
        name: [*(old[name].shards if name in old else ()), *(splits[name].shards if name in splits else ())]
        for name in names
    }
    return {name: Split.of(entries, seq_len=seq_len) for name, entries in shards.items()}


def join_sources(sources: Mapping[str, SourceEntry], base: Dataset | None) -> dict[str, SourceEntry]:
    """Counts of both; the weight is this build's where it has the source."""
    joined = dict(sources)
    for name, old in base.manifest.sources.items() if base is not None else ():
        new = joined.get(name)
        joined[name] = (
            old
            if new is None
            else replace(
                new,
                documents_read=old.documents_read + new.documents_read,
                documents_kept=old.documents_kept + new.documents_kept,
                tokens=old.tokens + new.tokens,
            )
        )
    return joined


def join_funnels(funnel: Sequence[FunnelRow], base: Dataset | None) -> tuple[FunnelRow, ...]:
    """Counts of both, by stage and reason."""
    if base is None:
        return tuple(funnel)
    documents: Counter[tuple[str, str | None]] = Counter()
    sizes: Counter[tuple[str, str | None]] = Counter()
    for row in (*base.manifest.funnel, *funnel):
        documents[row.stage, row.reason] += row.num_documents
        sizes[row.stage, row.reason] += row.num_bytes
    order = ("read", *STAGES)
    rows = sorted(documents, key=lambda key: (order.index(key[0]), key[1] or ""))
    return tuple(
        FunnelRow(stage=stage, reason=reason, num_documents=documents[stage, reason], num_bytes=sizes[stage, reason])
        for stage, reason in rows
    )
