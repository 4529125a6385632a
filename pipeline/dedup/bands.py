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


def default_bands(threshold: float, num_permutations: int) -> tuple[int, int]:
    """(bands, rows) for a wanted similarity `threshold`: datasketch's choice, bands * rows <= num_permutations.

    The one with the least sum of both wrong areas under the probability curve: what is proposed below the threshold,
    and what is not proposed above it. Of equals, the fewest bands, then the fewest rows.

    Raises ValueError unless 0 <= threshold <= 1 and num_permutations >= 1.
    """
    if not 0 <= threshold <= 1 or num_permutations < 1:
        raise ValueError(f"a threshold is within 0..1 and permutations at least 1; got {threshold}, {num_permutations}")
    # The curve is a polynomial of degree bands * rows, which this many Gauss-Legendre nodes integrate exactly.
    nodes, weights = np.polynomial.legendre.leggauss(num_permutations // 2 + 1)
    below, above = (nodes + 1) / 2 * threshold, threshold + (nodes + 1) / 2 * (1 - threshold)
    best, least = (1, 1), np.inf
    for bands in range(1, num_permutations + 1):
        for rows in range(1, num_permutations // bands + 1):
            proposed = threshold / 2 * weights @ probability(below, bands=bands, rows=rows)
            missed = (1 - threshold) / 2 * weights @ (1 - probability(above, bands=bands, rows=rows))
            if proposed + missed < least:
                best, least = (bands, rows), proposed + missed
    return best


@kernel
def _band_hashes(signatures: Any, rows: Any, result: Any) -> None:
    for document in range(len(result)):
        for band in range(result.shape[1]):
            value = absorb(START, np.uint64(band))
            for row in range(band * rows, (band + 1) * rows):
                value = absorb(value, np.uint64(signatures[document, row]))
            result[document, band] = mix64(value)
