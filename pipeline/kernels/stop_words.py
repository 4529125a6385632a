"""The commonest function words of a language: running text has them; lists, logs and garbage do not.

English is the list of Rae et al. 2021 (Gopher), appendix A.1.1. Russian is ours, by the same idea: twelve words that
are short, frequent and bound to no subject.
"""

import functools
from typing import NamedTuple

import numpy as np

from pipeline.kernels.hashing import word_hash
from pipeline.kernels.prose import HAS_LOREM_IPSUM, HAS_SKIPPED

STOP_WORDS = {
    "en": ("the", "be", "to", "of", "and", "that", "have", "with"),
    "ru": ("и", "в", "не", "на", "что", "с", "по", "для", "это", "как", "от", "из"),
}
LANGUAGES = tuple(STOP_WORDS)
# Not stop words: each phrase that the C4 rules look for holds one of these. A document that has none as a word is not
# searched for the phrase, so what is inside a longer word alone ("myjavascript") is not found.
MARKERS = {
    HAS_LOREM_IPSUM: ("lorem",),
    HAS_SKIPPED: ("javascript", "terms", "privacy", "cookie", "cookies"),
}

# Small enough for the first-level cache (8 KB), large enough that some shift of the few hashes gives each its own slot,
# so that a lookup is one comparison.
NUM_SLOTS = 512


class StopWordTable(NamedTuple):
    """Bit i stands for the i-th word of all languages in order."""

    hashes: np.ndarray  # (NUM_SLOTS,) uint64, 0 in free slots
    bits: np.ndarray  # (NUM_SLOTS,) uint64
    shift: np.uint64  # slot = (hash >> shift) & (NUM_SLOTS - 1)
    language_masks: np.ndarray  # (len(LANGUAGES),) uint64: the bits of each language
    marker_masks: np.ndarray  # (len(MARKERS),) uint64: the bits of each set of markers, in order of their HAS_... bit


@functools.cache
def stop_word_table() -> StopWordTable:
    """The table of all languages: at most 64 words, since a document's set of them is one uint64."""
    groups = [*STOP_WORDS.values(), *MARKERS.values()]
    hashes = [word_hash(word) for words in groups for word in words]
    assert len(set(hashes)) == len(hashes) <= 64, "words must be distinct and at most 64"
    shift = next(s for s in range(56) if len({hash_ >> s & NUM_SLOTS - 1 for hash_ in hashes}) == len(hashes))
    slot_hashes, slot_bits = np.zeros(NUM_SLOTS, np.uint64), np.zeros(NUM_SLOTS, np.uint64)
    for number, hash_ in enumerate(hashes):
        slot = hash_ >> shift & NUM_SLOTS - 1
        slot_hashes[slot], slot_bits[slot] = hash_, 1 << number
    masks, first = [], 0
    for words in groups:
        masks.append(((1 << len(words)) - 1) << first)
        first += len(words)
    return StopWordTable(slot_hashes, slot_bits, np.uint64(shift), *_split(np.array(masks, np.uint64)))


def _split(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return masks[: len(LANGUAGES)], masks[len(LANGUAGES) :]
