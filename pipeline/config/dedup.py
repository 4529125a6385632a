"""Which duplicates are removed, and how near ones are found."""

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation

import dataclasses
from typing import Literal

from manifests.yaml_config import setting
from pipeline.config.fields import check


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemplatesConfig:
    """Lines that many documents of a source share: they do not count as similarity."""

    enabled: bool = setting("whether such lines are left out when documents are compared", True)
    fraction: float = setting("share of a source's documents from which a line counts as template", 0.02)
    min_documents: int = setting("and documents it has to stand in at least", 100)

    def __post_init__(self) -> None:
        check(0 < self.fraction <= 1, "fraction", self.fraction, "above 0, up to 1")
        check(self.min_documents >= 2, "min_documents", self.min_documents, "2 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NearConfig:
    """Near duplicates: MinHash candidates, each verified by exact Jaccard similarity."""

    enabled: bool = setting("whether near duplicates are removed", True)
    ngram: int = setting("words a shingle; shorter documents are compared exactly only", 5)
    bands: int = setting("bands of the signature; bands x rows = its length", 14)
    rows: int = setting("rows a band", 8)
    threshold: float = setting("Jaccard similarity from which a document counts as a near duplicate", 0.8)
    templates: TemplatesConfig = setting("template lines", TemplatesConfig)

    def __post_init__(self) -> None:
        for name in ("ngram", "bands", "rows"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        check(0 < self.threshold <= 1, "threshold", self.threshold, "above 0, up to 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DedupConfig:
    """Which duplicates are removed."""

    exact: bool = setting("whether documents with equal text are removed (white space aside)", True)
    keep: Literal["smallest_id", "longest", "newest"] = setting(
        "of duplicates from sources of equal priority: the longest text first, the newest (sources.N.date), or"
        " smallest_id at once",
        "smallest_id",
    )
    near: NearConfig = setting("near duplicates: MinHash, then exact similarity", NearConfig)
