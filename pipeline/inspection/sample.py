"""Some of a source's texts, cleaned and redacted as a build would do it."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from manifests.errors import UserError
from pipeline import texts
from pipeline.config import BuildConfig, SourceConfig
from pipeline.inputs import find_inputs
from pipeline.readers import Fields, Limits, read_file

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Texts without nulls, and what to call each."""

    text: pa.LargeStringArray
    names: pa.LargeStringArray
    num_files: int
    num_files_read: int
    is_whole: bool
    """Whether it is all of the source."""


def pick_source(config: BuildConfig, name: str | None) -> SourceConfig:
    """The named source, or the only one there is. UserError otherwise."""
    names = [source.name for source in config.sources]
    if name is None and len(names) > 1:
        raise UserError(f"--source: the config has {len(names)} sources: name one of {', '.join(names)}")
    for source in config.sources:
        if name in (None, source.name):
            return source
    raise UserError(f"--source: no source is called {name!r} (there are {', '.join(names)})")


def read_sample(config: BuildConfig, source: SourceConfig, max_bytes: int) -> Sample:
    """About `max_bytes` of text, in equal parts from the heads of all files: the same texts at every call."""
    files = find_inputs(source).files
    if not files:
        raise UserError(f"source {source.name} has no files: nothing to inspect")
    columns, names = [], []
    num_bytes = num_files_read = 0
    is_whole = True
    for number, file in enumerate(files):
        # What earlier files left of their parts goes to the later ones.
        allowed = (max_bytes - num_bytes) / (len(files) - number)
        taken = 0
        limits = Limits(batch_bytes=PIECE_BYTES)
        fields = Fields(text=source.text, id=source.id)
        num_files_read += 1
        for records in read_file(
            file.url, format=source.format, fields=fields, limits=limits, encoding=source.encoding, markup=source.markup
        ):
            if taken and taken >= allowed:
                is_whole = False
                break
            found, _ = texts.found(records, file.name)
            if not found.num_rows:
                continue
            raw = found["text"].combine_chunks()
            text = texts.prepared(raw, source.clean or config.clean, config.redact).text
            columns.append(text)
            names.append(found["id"].combine_chunks())
            taken += int(pc.sum(pc.binary_length(text)).as_py())
        num_bytes += taken
        if num_bytes >= max_bytes:
            is_whole &= num_files_read == len(files)
            break
    empty = pa.array([], pa.large_string())
    return Sample(
        text=pa.concat_arrays(columns) if columns else empty,
        names=pa.concat_arrays(names) if names else empty,
        num_files=len(files),
        num_files_read=num_files_read,
        is_whole=is_whole,
    )
