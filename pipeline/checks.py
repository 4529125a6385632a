"""What is wrong with a request, told before anything stands under the data set's names is replaced."""

from collections.abc import Mapping

from manifests import storage
from manifests.errors import UserError
from manifests.manifest import Manifest, load, manifest_url
from pipeline.config import BuildConfig, determining
from pipeline.inputs import Inputs
from pipeline.readers.formats import FIELDED, MAILS, format_of


def check_places(config: BuildConfig, found: Inputs) -> None:
    """Input and output must lie apart: a second build would read what the first one wrote.

    Raises:
        UserError: the output is, or lies in, an input folder; or an input file lies in the output; or the output is a
            file.
    """
    root = storage.absolute(config.output)
    path = storage.local_path(root)
    if path is not None and path.exists() and not path.is_dir():
        raise UserError(f"output: {root} is a file, a data set is a folder: name another place")
    for source in config.sources:
        for given in map(storage.absolute, source.paths):
            if _inside(root, given):
                raise UserError(
                    f"output: {root} lies in {given}, which source {source.name} reads: name a place outside of it"
                )
    for file in found.files:
        if _inside(file.url, root):
            raise UserError(f"output: {root} holds {file.url}, which source {file.source} reads: keep the two apart")


def check_dates(config: BuildConfig, found: Inputs) -> None:
    """The newest duplicate cannot stay where no document says how old it is.

    Raises:
        UserError: no source names a field with dates, and by formats and names none holds mails.
    """
    if config.dedup.keep != "newest" or any(source.date is not None for source in config.sources):
        return
    format_asked = {source.name: source.format for source in config.sources}
    for file in found.files:
        asked = format_asked[file.source]
        # Content is looked at only when it is read. A name like a.txt may prove to be an mbox, a.jsonl will not.
        if asked in MAILS or (asked == "auto" and format_of(file.name, b"-") not in FIELDED):
            return
    raise UserError(NO_DATES)


NO_DATES = (
    "dedup.keep is newest, but no source has dates: name the field that says when a record was written"
    " (sources.0.date=created_at), or keep the longest or the smallest_id"
)


def _inside(url: str, folder: str) -> bool:
    return url == folder or url.startswith(folder.rstrip("/") + "/")


def existing_version(config: BuildConfig) -> Manifest | None:
    """The manifest that already stands under this build's output and version, if any."""
    url = manifest_url(storage.absolute(config.output), config.version)
    return load(url).manifest if storage.exists(url) else None


def check_version(
    existing: Manifest | None, config: BuildConfig, *, inputs: str | None = None, tokenizer: str | None = None
) -> None:
    """A version is immutable: refuse, by name, what would put other content under it.

    Called as soon as each part is known, so that a wrong request does not wait for the whole corpus to be read.

    Args:
        existing: the manifest that stands there already, None where the version is free.
        config: what is to be built.
        inputs: the inputs' digest, None while it is not known.
        tokenizer: the tokenizer's sha256, None while it is not known.

    Raises:
        UserError: naming up to three differences with both values.
    """
    if existing is None:
        return
    known = {"inputs": existing.inputs.digest, "tokenizer": existing.tokenizer.sha256}
    found = {name: digest for name, digest in (("inputs", inputs), ("tokenizer", tokenizer)) if digest is not None}
    changed = changed_keys("digest", {name: known[name] for name in found}, found)
    changed += changed_keys("config", existing.config, determining(config))
    if changed:
        several = f"; {len(changed) - 3} more" if len(changed) > 3 else ""
        differences = "; ".join(f"{name} was {old!r} and is {new!r}" for name, old, new in changed[:3])
        raise UserError(
            f"version: {config.version} exists already with other content ({differences}{several}): give this build"
            " another version, or another output"
        )


def changed_keys(prefix: str, old: object, new: object) -> list[tuple[str, object, object]]:
    """Dotted keys under which two configurations differ, with both values (None where a key is missing)."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [row for key in keys for row in changed_keys(f"{prefix}.{key}", old.get(key), new.get(key))]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [row for i, (one, other) in pairs for row in changed_keys(f"{prefix}.{i}", one, other)]
    return [(prefix, old, new)] if old != new else []
