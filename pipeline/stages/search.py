"""One search for duplicates: what is searched, by which settings, and how its stages are named and run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.config import DedupConfig
from pipeline.runtime import Runtime, Summary, Unit, short
from pipeline.stages.exact import Group

MAX_PARTS = 1 << 14
"""A range of bands or content hashes is told by 16 leading bits or more."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """See above."""

    runtime: Runtime
    build_url: str
    key: str
    """Fingerprint of all that its result depends on."""
    groups: tuple[Group, ...]
    config: DedupConfig

    @property
    def first_documents(self) -> tuple[int, ...]:
        """The number of each group's first document."""
        return tuple(group.first_document for group in self.groups)

    def url(self, stage: str, name: str) -> str:
        """Where a file of a stage lies."""
        return storage.join(self.build_url, stage, f"{short(self.key)}-{name}")

    def stage(self, stage: str, function: Callable[[Any], Summary], tasks: Sequence[tuple[str, Any]]) -> list[Summary]:
        """Run `function` over the tasks, (name, task) each; the summaries in their order."""
        units = [Unit(key=fingerprint([self.key, stage, name]), label=name, task=task) for name, task in tasks]
        return self.runtime.run(stage, function, units)


def num_parts_for(num_records: int, part_records: int) -> int:
    """Into how many ranges so many records are cut."""
    return min(MAX_PARTS, max(1, -(-num_records // part_records)))
