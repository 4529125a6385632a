"""Large input files -> the parts that read them side by side (readers/parts.py), one unit a file.

Only files of SPLIT_FILE_BYTES or more are looked at, so a corpus of many small files has no such units.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manifests import storage
from manifests.canonical import fingerprint
from manifests.errors import UserError
from pipeline import inputs
from pipeline.config import BuildConfig
from pipeline.inputs import InputFile, Inputs
from pipeline.readers import Fields
from pipeline.readers.parts import PARTS
from pipeline.readers.survey import Survey, survey
from pipeline.runtime import Runtime, Summary, Unit

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class SurveyTask:
    """Go through one file."""

    file: InputFile
    format: str
    fields: Fields
    encoding: str | None
    part_bytes: int


def survey_file(task: SurveyTask) -> Summary:
    """The file's survey as plain values."""
    check_unchanged(task.file)
    found = survey(
        task.file.url,
        part_bytes=task.part_bytes,
        format=task.format,
        fields=task.fields,
        encoding=task.encoding,
    )
    check_unchanged(task.file)
    return {"sha256": found.sha256, "parts": [dataclasses.asdict(part) for part in found.parts]}


def survey_files(runtime: Runtime, config: BuildConfig, found: Inputs) -> Mapping[InputFile, Survey]:
    """Surveys of the files that are read in parts."""
    files = [file for file in found.files if file.num_bytes >= inputs.SPLIT_FILE_BYTES]
    if not files:
        return {}
    sources = {source.name: source for source in config.sources}
    units = []
    for file in files:
        source = sources[file.source]
        task = SurveyTask(
            file=file,
            format=source.format,
            fields=Fields(text=source.text, id=source.id),
            encoding=source.encoding,
            part_bytes=inputs.TARGET_GROUP_BYTES,
        )
        key = fingerprint(["survey", FORMAT, dataclasses.asdict(task)])
        units.append(Unit(key=key, label=f"{file.source}: {file.name}", task=task, num_bytes=file.num_bytes))
    results = runtime.run("survey", survey_file, units)
    return {
        file: Survey(sha256=result["sha256"], parts=tuple(map(_part, result["parts"])))
        for file, result in zip(files, results, strict=True)
        if result["parts"]
    }


def _part(values: dict[str, Any]) -> Any:
    return PARTS[values["format"]](**values)


def check_unchanged(file: InputFile) -> None:
    """UserError when a file is not the one that was listed: what was read of it may be neither the old nor the new."""
    try:
        identity = storage.stat(file.url).identity
    except FileNotFoundError:
        identity = "gone"
    if identity != file.identity:
        raise UserError(
            f"source {file.source}: {file.url} changed while it was read (was {file.identity}, is {identity}): run the"
            " same command again, and it is read as it is then"
        )
