"""One peer's signatures and verdicts, in a Python of its own: standard library, numpy and the peer only.

    PYTHON minhash.py datasketch|rensa|datatrove FOLDER

FOLDER holds texts.json (to sign, timed), pairs.json ([left, right] texts to judge) and, for rensa, shingles.npy and
offsets.npy: shingle hashes made by us. Prints one JSON object: {"rates": {row: MB per core-second}, "met": [bool a
pair], "estimates": [Jaccard estimate a pair]}.
"""

import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NUM_PERMUTATIONS, BANDS, ROWS, NGRAM = 112, 14, 8, 5
NUM_RUNS = 3


def shingles(text: str) -> list[str]:
    """Word 5-grams as the peers' own documentation makes them."""
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)]


def rate(action: Callable[[], Any], num_bytes: int) -> float:
    """MB per core-second, the median of NUM_RUNS."""
    seconds = []
    for _ in range(NUM_RUNS):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return num_bytes / 1e6 / statistics.median(seconds)


def datasketch(texts: list[str], num_bytes: int, _: Path) -> tuple[dict[str, float], Callable[[str], Any]]:
    from datasketch import MinHash

    def bulk() -> Any:
        return MinHash.bulk([[one.encode() for one in shingles(text)] for text in texts], num_perm=NUM_PERMUTATIONS)

    def sign(text: str) -> Any:
        return MinHash.bulk([[one.encode() for one in shingles(text)]], num_perm=NUM_PERMUTATIONS)[0].hashvalues

    return {"datasketch bulk, SHA-1": rate(bulk, num_bytes)}, sign


def rensa(texts: list[str], num_bytes: int, folder: Path) -> tuple[dict[str, float], Callable[[str], Any]]:
    from rensa import RMinHash  # type: ignore[import-not-found]  # in the peer's Python

    hashes, offsets = np.load(folder / "shingles.npy"), np.load(folder / "offsets.npy")

    def sign(text: str) -> Any:
        one = RMinHash(NUM_PERMUTATIONS, 42)
        one.update(shingles(text))
        return np.array(one.digest())

    def from_strings() -> Any:
        return RMinHash.digest_matrix_from_token_sets([shingles(text) for text in texts], NUM_PERMUTATIONS, 42)

    def from_bytes() -> Any:
        sets = [[one.encode() for one in shingles(text)] for text in texts]
        return RMinHash.digest_matrix_from_token_byte_sets(sets, NUM_PERMUTATIONS, 42)

    def from_hashes() -> Any:
        return RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets, NUM_PERMUTATIONS, 42)

    rates = {
        "rensa R-MinHash, strings": rate(from_strings, num_bytes),
        "rensa R-MinHash, bytes": rate(from_bytes, num_bytes),
        "rensa R-MinHash, our shingle hashes (hashing not counted)": rate(from_hashes, num_bytes),
    }
    return rates, sign


def datatrove(texts: list[str], num_bytes: int, folder: Path) -> tuple[dict[str, float], Callable[[str], Any]]:
    import datatrove.pipeline.dedup.minhash as theirs  # type: ignore[import-not-found]  # in the peer's Python

    step = theirs.MinhashDedupSignature(output_folder=str(folder), config=theirs.MinhashConfig())

    def sign(text: str) -> Any:
        found = step.get_shingles(text)
        return np.concatenate(step.get_signature(found)) if len(found) else np.empty(0)

    return {"datatrove MinhashDedupSignature": rate(lambda: [sign(text) for text in texts], num_bytes)}, sign


PEERS = {"datasketch": datasketch, "rensa": rensa, "datatrove": datatrove}


def main(name: str, folder: Path) -> None:
    texts = json.loads((folder / "texts.json").read_text())
    rates, sign = PEERS[name](texts, sum(len(text.encode()) for text in texts), folder)
    signatures: dict[str, Any] = {}
    met, estimates = [], []
    for pair in json.loads((folder / "pairs.json").read_text()):
        left, right = (
            signatures.setdefault(text, sign(text)) if text not in signatures else signatures[text] for text in pair
        )
        if len(left) != NUM_PERMUTATIONS or len(right) != NUM_PERMUTATIONS:
            met.append(False)
            estimates.append(0.0)
            continue
        equal = np.asarray(left) == np.asarray(right)
        met.append(bool(equal.reshape(BANDS, ROWS).all(1).any()))
        estimates.append(float(equal.mean()))
    sys.stdout.write(json.dumps({"rates": rates, "met": met, "estimates": estimates}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
