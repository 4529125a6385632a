"""LSH bands: documents that agree in all rows of some band are worth comparing. Proposed here, never judged."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.dedup.records import PAIR
from pipeline.kernels.arrow import readonly
from pipeline.kernels.compiled import kernel
from pipeline.kernels.hashing import START, absorb, mix64

# FineWeb's choice: proposes 56 % of pairs at J = 0.70, 77 % at 0.75, 92 % at 0.80, 98.8 % at 0.85.
DEFAULT_BANDS = 14
DEFAULT_ROWS = 8
SURE_PROBABILITY = 0.9
"""Of pairs at the threshold: where fewer meet, a build says so."""


def band_hashes(signatures: np.ndarray, *, bands: int = DEFAULT_BANDS, rows: int = DEFAULT_ROWS) -> np.ndarray:
    """uint64 (n, bands): a hash of each band's number and its `rows` entries of `signatures`, uint32 (n, permutations).

    The band's number is hashed in, so that one column of hashes can hold the records of all bands. Documents without a
    signature would all be equal here: leave their rows out.

    Raises ValueError if the signatures are shorter than bands * rows.
    """
    if bands < 1 or rows < 1 or bands * rows > signatures.shape[1]:
        raise ValueError(
            f"{bands} bands of {rows} rows need {bands * rows} permutations and at least one row of one band; "
            f"the signatures have {signatures.shape[1]}: ask for fewer bands or rows, or for more permutations"
        )
    result = np.empty((len(signatures), bands), dtype=np.uint64)
    _band_hashes(readonly(signatures, np.uint32), rows, result)
    return result


def star_pairs(records: np.ndarray, bucket: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(PAIR (k,), the last bucket's first record): pairs worth comparing from BAND records sorted by hash, then place.

    A bucket is the records of one hash; its canonical document is the one of lowest rank, and every other member is
    paired with that one alone. So a bucket of a million gives 999,999 pairs, not 500 billion. Records may come in
    pieces, a bucket over many of them: `bucket` BAND (0 or 1,) is what the call before returned.

    What a star leaves out: members that resemble each other but not the canonical document are not paired in this
    bucket. They meet in others; in how many is measured (benchmarks/dedup.py).
    """
    records = np.concatenate([bucket, records])
    if not len(records):
        return np.empty(0, PAIR), bucket
    opens = np.concatenate(([True], records["hash"][1:] != records["hash"][:-1]))
    first = np.flatnonzero(opens)[np.cumsum(opens) - 1]
    rows = np.flatnonzero(records["place"] != records["place"][first])
    pairs = np.empty(len(rows), PAIR)
    pairs["member"], pairs["member_document"] = records["place"][rows], records["document"][rows]
    pairs["other"], pairs["other_document"] = records["place"][first[rows]], records["document"][first[rows]]
    return pairs, records[first[-1:]]


def probability(similarity: npt.ArrayLike, *, bands: int = DEFAULT_BANDS, rows: int = DEFAULT_ROWS) -> np.ndarray:
    """The probability that two documents of Jaccard `similarity` agree in some band: 1 - (1 - s**rows)**bands."""
    return 1.0 - (1.0 - np.asarray(similarity, dtype=np.float64) ** rows) ** bands


def bands_for(threshold: float, num_permutations: int) -> tuple[int, int]:
    """(bands, rows) for a wanted similarity `threshold`: the most rows with which SURE_PROBABILITY of the pairs at the
    threshold meet, in as many bands as `num_permutations` allow. 14 x 8 for 0.8 and 112.

    datasketch's choice weighs both sides of the threshold equally, and so proposes half of the pairs that lie on it (9
    x 12: 47 % at 0.8), which is right where what is proposed is removed. Here it is measured first, so a pair proposed
    in vain costs time, and one that is not proposed is lost.

    Raises ValueError unless 0 < threshold <= 1 and num_permutations >= 1.
    """
    if not 0 < threshold <= 1 or num_permutations < 1:
        raise ValueError(
            f"a threshold is above 0, up to 1, and permutations at least 1; got {threshold}, {num_permutations}"
        )
    rows = num_permutations
    while rows > 1 and probability(threshold, bands=num_permutations // rows, rows=rows) < SURE_PROBABILITY:
        rows -= 1
    return num_permutations // rows, rows


@kernel
def _band_hashes(signatures: Any, rows: Any, result: Any) -> None:
    for document in range(len(result)):
        for band in range(result.shape[1]):
            value = absorb(START, np.uint64(band))
            for row in range(band * rows, (band + 1) * rows):
                value = absorb(value, np.uint64(signatures[document, row]))
            result[document, band] = mix64(value)
