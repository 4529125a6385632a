"""How alike must cores be? The factor on the threshold, chosen on one half of the pages and judged on the other.

All pairs of a source with Jaccard similarity of 0.80 or above where one holds a template line. Two versions of one page
(told by the name in the id) ought to go, two different pages that share a form ought to stay. Pages fall into halves by
a hash of their names; sources that had no part in the choice are told apart.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.config import TemplatesConfig
from pipeline.dedup.minhash import shingle_sets
from pipeline.dedup.templates import core_words, line_hashes
from pipeline.dedup.verify import jaccard_pairs
from pipeline.kernels.words import words_of

CHOSEN_ON = ("docs/manpages", "docs/debian_advisories")
NEVER_SEEN = ("docs/debian_manuals", "docs/python311", "docs/gimp_help", "docs/debian_web", "mails/usrp_users")
FACTORS = (0.5, 0.625, 0.75, 0.875, 0.9375, 1.0)


@dataclass(frozen=True)
class Judged:
    """Pairs at the threshold or above, one row each."""

    core: np.ndarray
    """Similarity of the cores."""
    is_one_page: np.ndarray
    half: np.ndarray


def page_of(identity: str) -> str:
    """The page without the version of its package: `manpages-5.10-1:man2/accept.2` is `manpages:man2/accept.2`."""
    package, _, page = identity.partition(":")
    return f"{package.rstrip('0123456789.+-debu')}:{page}"


def judged(
    documents: list[tuple[str, str]], threshold: float, all_pairs: Callable[..., tuple[np.ndarray, np.ndarray]]
) -> Judged:
    """`documents` are the (id, text) of one source."""
    text = pa.array([text for _, text in documents], pa.large_string())
    limits = TemplatesConfig()
    hashes, counts = np.unique(line_hashes(text)[0], return_counts=True)
    lines = hashes[counts >= max(limits.min_documents, -int(-limits.fraction * len(documents) // 1))]
    shingles, offsets = shingle_sets(words_of(text))
    words, has_core = core_words(text, lines)
    cores, core_offsets = shingle_sets(words)
    pairs, similarity = all_pairs(shingles, offsets)
    pairs = pairs[(similarity >= threshold) & has_core[pairs].any(axis=1)]
    both = np.concatenate([offsets, core_offsets[1:] + len(shingles)])
    core = jaccard_pairs(np.concatenate([shingles, cores]), both, np.where(has_core, len(documents), 0)[pairs] + pairs)
    pages = [page_of(identity) for identity, _ in documents]
    names = [(pages[left], pages[right]) for left, right in pairs.tolist()]
    return Judged(
        core=core,
        is_one_page=np.array([left == right for left, right in names], np.bool_),
        half=np.array([zlib.crc32(min(pair).encode()) & 1 for pair in names], np.int64),
    )


def in_words(
    documents_of: Callable[[str], list[tuple[str, str]]],
    threshold: float,
    all_pairs: Callable[..., tuple[np.ndarray, np.ndarray]],
) -> Iterator[str]:
    """A table."""
    rows: list[tuple[str, np.ndarray, np.ndarray]] = []
    for source in CHOSEN_ON:
        found = judged(documents_of(source), threshold, all_pairs)
        for half, name in ((0, "chosen on"), (1, "held out")):
            rows.append((f"{source}, {name}", found.core[found.half == half], found.is_one_page[found.half == half]))
    for source in NEVER_SEEN:
        found = judged(documents_of(source), threshold, all_pairs)
        rows.append((f"{source}, never seen", found.core, found.is_one_page))
    yield "Share of pairs at 0.80 and over that still count as alike, by the factor on the threshold for their cores."
    yield f"\n| pairs | | {' | '.join(str(factor) for factor in FACTORS)} |\n|---|---|{'---|' * len(FACTORS)}"
    for name, core, is_one_page in rows:
        for what, chosen in (("one page, two versions", is_one_page), ("different pages", ~is_one_page)):
            if chosen.any():
                shares = [f"{(core[chosen] >= factor * threshold).mean():.3f}" for factor in FACTORS]
                yield f"| {name}: {what} | {int(chosen.sum()):,} | {' | '.join(shares)} |"
