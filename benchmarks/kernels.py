"""How fast the text path's kernels are, beside plain Python, pyarrow and datasketch, on one core and the same text.

    python benchmarks/kernels.py [--megabytes 40] [--save]

Text: the corpus at SHARDMILL_CORPUS, else ../shared/corpus: equal parts of documentation, tickets and mail, Russian and
English. Rates are MB of UTF-8 text (10**6 bytes) per core-second (user + system time), the median of several runs; slow
peers get a part of the text. --save writes benchmarks/results/<date>-kernels.json.
"""

import argparse
import datetime
import hashlib
import io
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import datasketch
import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from pipeline.dedup.bands import DEFAULT_BANDS, DEFAULT_ROWS, band_hashes, probability
from pipeline.dedup.exact import content_hashes
from pipeline.dedup.minhash import DEFAULT_NGRAM, DEFAULT_NUM_PERMUTATIONS, shingle_sets, signatures
from pipeline.filters import judge_all
from pipeline.filters.presets import PRESETS, resolve
from pipeline.kernels.text import Words, analyse
from pipeline.kernels.warm import warm_up

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = (
    *("docs/manpages", "docs/debian_advisories", "docs/debian_web", "docs/python311", "docs/gimp_help"),
    *("tickets/it_service_tickets", "tickets/citizen_requests_ru", "tickets/ietf_trackers"),
    *("mails/r_lists", "mails/usrp_users"),
)
NUM_RUNS = 5
PEER_MEGABYTES = 2.0  # what a peer of a few MB/s gets, so that the whole script takes a minute
NUM_PAIRS = 20_000  # a share of them near 0.92 has a standard error of 0.002
NUM_PEER_PAIRS = 2_000  # for datasketch: 0.006


def load(corpus: Path, megabytes: float) -> list[str]:
    """The first documents of each source, an equal number of bytes each, `megabytes` in all."""
    texts = []
    for source in SOURCES:
        left = megabytes * 1e6 / len(SOURCES)
        with (corpus / "clean" / f"{source}.jsonl.zst").open("rb") as file:
            stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8", newline="\n")
            for line in stream:
                text = json.loads(line)["text"]
                texts.append(text)
                left -= len(text.encode())
                if left <= 0:
                    break
    return texts


def rate(action: Callable[[], Any], num_bytes: int, num_runs: int = NUM_RUNS) -> float:
    """MB per core-second: the median of `num_runs`."""
    seconds = []
    for _ in range(num_runs):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return num_bytes / 1e6 / statistics.median(seconds)


def python_statistics(texts: list[str]) -> list[tuple[int, ...]]:
    """The main counts of the text pass, each as fast as plain Python does it."""
    return [
        (
            len(text),
            len(words := text.split()),
            sum(map(len, words)),
            text.count("#"),
            text.count("..."),
            len(lines := text.split("\n")),
            len(set(lines)),
            len(re.findall(r"\w+", text.lower())),
        )
        for text in texts
    ]


def arrow_statistics(text: pa.LargeStringArray) -> list[Any]:
    """Some of the counts with pyarrow's own kernels: one pass over the text each."""
    return [
        pc.utf8_length(text),
        pc.list_value_length(pc.utf8_split_whitespace(text)),
        pc.count_substring(text, "#"),
        pc.count_substring(text, "..."),
        pc.count_substring(text, "\n"),
    ]


def datasketch_signatures(texts: list[str]) -> Any:
    """Signatures of word 5-grams, as datasketch's documentation makes them in bulk (SHA-1)."""
    sets = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        last = max(len(words) - DEFAULT_NGRAM + 1, 0)
        sets.append([" ".join(words[start : start + DEFAULT_NGRAM]).encode() for start in range(last)])
    return datasketch.MinHash.bulk(sets, num_perm=DEFAULT_NUM_PERMUTATIONS)


@numba.njit
def one_permutation(shingles: Any, offsets: Any, num_bins: Any) -> Any:
    """One-permutation hashing with optimal densification (Shrivastava 2017): what minhash.py decided against."""
    empty = np.uint32(0xFFFFFFFF)
    result = np.full((len(offsets) - 1, num_bins), empty, dtype=np.uint32)
    for document in range(len(offsets) - 1):
        row = result[document]
        for index in range(offsets[document], offsets[document + 1]):
            place = ((shingles[index] >> np.uint64(32)) * np.uint64(num_bins)) >> np.uint64(32)
            row[place] = min(row[place], np.uint32(shingles[index]))
        filled = row != empty
        for place in range(num_bins if offsets[document + 1] > offsets[document] else 0):
            donor, attempt = np.intp(place), np.uint64(1)
            while not filled[donor]:
                value = (np.uint64(place + 1) * np.uint64(0x9E3779B97F4A7C15)) ^ (
                    attempt * np.uint64(0xC4CEB9FE1A85EC53)
                )
                value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
                donor = np.intp((value >> np.uint64(33)) % np.uint64(num_bins))
                attempt += np.uint64(1)
            row[place] = row[donor]
    return result


def pairs_of_similarity(similarity: float, union: int) -> tuple[Words, float]:
    """NUM_PAIRS pairs of documents of single-word shingles, 2i and 2i + 1, and the similarity they really have."""
    generator = np.random.default_rng(0)
    common = round(similarity * union)
    only = (union - common) // 2
    documents = []
    for _ in range(NUM_PAIRS):
        every = generator.integers(0, 2**64, union, dtype=np.uint64)
        documents += [every[: common + only], np.concatenate((every[:common], every[common + only :]))]
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    return Words(hashes=np.concatenate(documents), offsets=offsets), common / union


def sketch_errors(union: int) -> dict[str, dict[str, float]]:
    """Mean absolute error of the Jaccard estimate at 0.8, and the share of pairs that meet in a band, by scheme."""
    words, similarity = pairs_of_similarity(0.8, union)
    sketches = datasketch.MinHash.bulk(
        [[word.tobytes() for word in document] for document in islice(words, 2 * NUM_PEER_PAIRS)],
        num_perm=DEFAULT_NUM_PERMUTATIONS,
    )
    tables = {
        "ours": signatures(words, ngram=1)[0],
        "datasketch": np.array([sketch.hashvalues for sketch in sketches], dtype=np.uint32),
        "one permutation": one_permutation(*shingle_sets(words, 1), DEFAULT_NUM_PERMUTATIONS),
    }
    result = {"curve": {"mean_error": 0.0, "met_fraction": float(probability(similarity))}}
    for name, table in tables.items():
        equal = table[0::2] == table[1::2]
        met = equal[:, : DEFAULT_BANDS * DEFAULT_ROWS].reshape(-1, DEFAULT_BANDS, DEFAULT_ROWS).all(2).any(1)
        error = float(np.abs(equal.mean(axis=1) - similarity).mean())
        result[name] = {"mean_error": error, "met_fraction": float(met.mean())}
    return result


def rates(texts: list[str]) -> dict[str, float]:
    """MB per core-second by row of the table."""
    text = pa.array(texts, pa.large_string())
    num_bytes = int(pc.sum(pc.binary_length(text)).as_py())
    part, part_bytes = [], 0
    for one in texts[:: max(1, round(num_bytes / 1e6 / PEER_MEGABYTES))]:
        part.append(one)
        part_bytes += len(one.encode())
    columns, words = analyse(text)
    values, has_signature = signatures(words)
    signed = values[has_signature]
    shingles = shingle_sets(words)
    one_permutation(*shingles, DEFAULT_NUM_PERMUTATIONS)
    presets = {name: resolve(name) for name in PRESETS}
    return {
        "statistics and word hashes: analyse": rate(lambda: analyse(text), num_bytes),
        "  some of it, pyarrow kernels": rate(lambda: arrow_statistics(text), num_bytes, 3),
        "  the main counts, plain Python": rate(lambda: python_statistics(part), part_bytes, 3),
        "verdicts, all presets in a row": rate(lambda: [judge_all(f, columns) for f in presets.values()], num_bytes),
        "content hashes": rate(lambda: content_hashes(text), num_bytes),
        "  the same, plain Python": rate(
            lambda: [hashlib.sha256(" ".join(one.split()).encode()).digest() for one in texts], num_bytes, 3
        ),
        "signatures, 112, from word hashes": rate(lambda: signatures(words), num_bytes),
        "signatures, 112, from UTF-8 bytes": rate(lambda: signatures(analyse(text)[1]), num_bytes),
        "  datasketch bulk, SHA-1": rate(lambda: datasketch_signatures(part), part_bytes, 3),
        "  one permutation, from shingle sets": rate(
            lambda: one_permutation(*shingles, DEFAULT_NUM_PERMUTATIONS), num_bytes
        ),
        "band hashes, 14 x 8": rate(lambda: band_hashes(signed), num_bytes),
        "shingle sets": rate(lambda: shingle_sets(words), num_bytes),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=40.0)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    corpus = Path(os.environ.get("SHARDMILL_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
    if not corpus.is_dir():
        sys.stderr.write(f"no corpus at {corpus}: set SHARDMILL_CORPUS to its folder\n")
        return 2
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    texts = load(corpus, arguments.megabytes)
    warm_up()
    num_bytes = sum(len(text.encode()) for text in texts)
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "num_documents": len(texts),
        "num_bytes": num_bytes,
        "mb_per_core_second": rates(texts),
        "errors_at_0.8": {f"{union} shingles": sketch_errors(union) for union in (20, 50, 400)},
    }
    write = sys.stdout.write
    write(f"{report['date']}, {report['machine']}: {len(texts)} documents, {num_bytes / 1e6:.1f} MB\n\n")
    write(f"{'MB per core-second':44}\n")
    for name, value in report["mb_per_core_second"].items():
        write(f"{name:40} {value:10,.1f}\n")
    write("\nJaccard 0.8: mean error of the estimate, share of pairs that meet in 14 bands of 8 rows\n")
    for size, schemes in report["errors_at_0.8"].items():
        for name, values in schemes.items():
            write(f"{size:16} {name:16} {values['mean_error']:8.4f} {values['met_fraction']:8.3f}\n")
    if arguments.save:
        path = REPOSITORY / "benchmarks" / "results" / f"{report['date']}-kernels.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        write(f"\nsaved {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
