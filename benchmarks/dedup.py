"""Deduplication: speed and error of signatures, the LSH curve, decisions against brute force and labels, hard cases.

    python benchmarks/dedup.py [--only PART...] [--peer NAME=PYTHON...] [--documents 20000000] [--save]

Parts: signatures, curve, brute, labels, templates, cases, records. Corpus: SHARDMILL_CORPUS, or ../shared/corpus. Peers
run in a Python of their own, given as datasketch=PATH, rensa=PATH, datatrove=PATH; without one they are left out. Rates
are MB of UTF-8 text (10**6 bytes) per core-second (user + system time), the median of three runs, on one core. --save
writes benchmarks/results/<date>-dedup.md.
"""

import argparse
import datetime
import gzip
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dedup_cases  # type: ignore[import-not-found]  # beside this script, which Python searches first
import dedup_records  # type: ignore[import-not-found]
import dedup_templates  # type: ignore[import-not-found]
import numpy as np
import pyarrow as pa
import zstandard

from pipeline.dedup.bands import band_hashes, probability
from pipeline.dedup.minhash import shingle_sets, signatures
from pipeline.dedup.verify import estimated_pairs, jaccard_pairs
from pipeline.kernels.text import Words, analyse
from pipeline.kernels.warm import warm_up
from pipeline.kernels.words import words_of

REPOSITORY = Path(__file__).resolve().parents[1]
Document = tuple[str, str, str]
"""(source, id, text)"""

PARTS = ("signatures", "curve", "brute", "labels", "templates", "cases", "records")
PEERS = ("datasketch", "rensa", "datatrove")
SOURCES = (
    *("docs/manpages", "docs/debian_advisories", "docs/debian_web", "docs/python311", "docs/gimp_help"),
    *("tickets/it_service_tickets", "tickets/citizen_requests_ru", "tickets/ietf_trackers"),
    *("mails/r_lists", "mails/usrp_users"),
)
THRESHOLD = 0.8
NUM_CURVE_PAIRS, NUM_CURVE_DRAWS = 100_000, 5
MAX_LABELLED = 500
NUM_BRUTE = 5_000
"""Documents of a source that are compared with all others."""
PEER_BYTES = 1_000_000
"""Text that peers of a few MB a second sign."""


def dropped_of(folder: Path, corpus_documents: list[Document], **dedup: Any) -> Any:
    """What the real stages drop of these documents, run in this process."""
    sys.path.insert(0, str(REPOSITORY))  # the tests' helper is no part of the installed packages
    from tests.pipeline import dedup_corpus

    return dedup_corpus.dropped_of(folder, corpus_documents, **dedup)


def documents(corpus: Path, source: str) -> Iterator[tuple[str, str]]:
    """(id, text) of one source of the corpus."""
    with (corpus / "clean" / f"{source}.jsonl.zst").open("rb") as file:
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8", newline="\n")
        for line in stream:
            record = json.loads(line)
            yield record["id"], record["text"]


def mixed(corpus: Path, num_bytes: float) -> list[str]:
    """The first documents of each source, an equal number of bytes each."""
    texts = []
    for source in SOURCES:
        left = num_bytes / len(SOURCES)
        for _, text in documents(corpus, source):
            texts.append(text)
            left -= len(text.encode())
            if left <= 0:
                break
    return texts


def rate(action: Callable[[], Any], num_bytes: int) -> float:
    """MB per core-second."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return num_bytes / 1e6 / statistics.median(seconds)


def labelled_pairs(corpus: Path) -> dict[str, list[tuple[str, str, bool]]]:
    """(text, text, whether people or versions say they are one) by set."""
    texts: dict[str, str] = {}
    for source in ("docs/debian_manuals", "docs/manpages", "mails/apache_lists"):
        texts |= dict(documents(corpus, source))
    folder = corpus / "neardup"
    pairs: dict[str, list[tuple[str, str, bool]]] = {}
    rows = [json.loads(line) for line in (folder / "doc_revisions.jsonl").read_text().splitlines()]
    pairs["doc_revisions"] = [
        (texts[row["id_a"]], texts[row["id_b"]], row["jaccard_w5"] >= THRESHOLD)
        for row in rows
        if row["id_a"] in texts and row["id_b"] in texts
    ]
    with (folder / "web_revisions_ru.jsonl.zst").open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8", newline="\n")
        web = [json.loads(line) for line in lines]
    pairs["web_revisions_ru"] = [(row["text_old"], row["text_new"], True) for row in web]
    groups = [json.loads(line)["ids"] for line in (folder / "mail_same_message.jsonl").read_text().splitlines()]
    known = [[texts[id_] for id_ in ids if id_ in texts] for ids in groups]
    pairs["mail_same_message"] = [(group[0], other, True) for group in known for other in group[1:]]
    with gzip.open(folder / "openoffice_bug_pairs.tsv.gz", "rt", encoding="utf-8") as table:
        bugs = [line.rstrip("\n").split("\t") for line in table][1:]
    pairs["openoffice_bug_pairs"] = [(f"{row[2]}\n{row[3]}", f"{row[4]}\n{row[5]}", True) for row in bugs]
    return pairs


def exact_jaccard(pairs: list[tuple[str, str, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(similarity, estimate, whether they meet in a band) of each pair, by ours."""
    flat = [text for left, right, _ in pairs for text in (left, right)]
    words = words_of(pa.array(flat, pa.large_string()))
    rows = np.arange(len(flat)).reshape(-1, 2)
    similarity = jaccard_pairs(*shingle_sets(words), rows)
    values, signed = signatures(words)
    both = signed[rows].all(1)
    hashes = band_hashes(values)
    met = np.any(hashes[rows[:, 0]] == hashes[rows[:, 1]], axis=1) & both
    return similarity, np.where(both, estimated_pairs(values[rows[:, 0]], values[rows[:, 1]]), 0.0), met


def ask_peers(peers: dict[str, str], texts: list[str], pairs: list[tuple[str, str, bool]]) -> dict[str, dict[str, Any]]:
    """What each peer says; peers without a Python are left out."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts.json").write_text(json.dumps(texts))
        (folder / "pairs.json").write_text(json.dumps([pair[:2] for pair in pairs]))
        shingles, offsets = shingle_sets(words_of(pa.array(texts, pa.large_string())))
        np.save(folder / "shingles.npy", shingles)
        np.save(folder / "offsets.npy", offsets)
        for peer, python in peers.items():
            command = [python, str(REPOSITORY / "benchmarks" / "peers" / "minhash.py"), peer, name]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                sys.stderr.write(f"{peer} was not measured: {result.stderr.strip().splitlines()[-1]}\n")
                continue
            found[peer] = json.loads(result.stdout.splitlines()[-1])
    return found


def signatures_part(corpus: Path, peers: dict[str, str]) -> Iterator[str]:
    """Speed, and mean absolute error of the Jaccard estimate on real revisions."""
    texts = mixed(corpus, 40e6)
    array = pa.array(texts, pa.large_string())
    num_bytes = sum(len(text.encode()) for text in texts)
    words = words_of(array)
    rows = {
        "ours, from UTF-8 bytes": rate(lambda: signatures(words_of(array)), num_bytes),
        "ours, from UTF-8 bytes, all statistics for filters included": rate(
            lambda: signatures(analyse(array)[1]), num_bytes
        ),
        "ours, what the build adds to its text pass": rate(lambda: signatures(words), num_bytes),
    }
    pairs = labelled_pairs(corpus)["doc_revisions"]
    pairs = pairs[:: -(-len(pairs) // MAX_LABELLED)]
    similarity, estimate, _ = exact_jaccard(pairs)
    step = max(1, round(num_bytes / PEER_BYTES))
    answers = ask_peers(peers, texts[::step], pairs)
    for answer in answers.values():
        rows |= answer["rates"]
    yield "| signatures of 112 permutations, word 5-grams | MB per core-second |\n|---|---|"
    yield from (f"| {name} | {value:,.1f} |" for name, value in rows.items())
    # Those peers get words cut as we cut them; datatrove cleans texts by rules of its own, so its error is not one.
    yield f"\n| mean absolute error of the estimate, {len(pairs):,} pairs of page revisions | |\n|---|---|"
    yield f"| ours | {np.abs(estimate - similarity).mean():.4f} |"
    for peer in ("datasketch", "rensa"):
        if peer in answers:
            yield f"| {peer} | {np.abs(np.array(answers[peer]['estimates']) - similarity).mean():.4f} |"


def curve_part() -> Iterator[str]:
    """Constructed pairs that meet in a band, beside 1 - (1 - s**8)**14."""
    some, every = NUM_CURVE_PAIRS, NUM_CURVE_PAIRS * NUM_CURVE_DRAWS
    yield "A share has standard error sqrt(p (1 - p) / pairs); by chance a third of all points lie outside of one."
    yield f"\n| similarity | curve | of {some:,} met | difference, standard errors | of {every:,} met | difference |"
    yield "|---|---|---|---|---|---|"
    generator = np.random.default_rng(0)
    for wanted in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9):
        drawn = [_share_that_met(wanted, NUM_CURVE_PAIRS, generator) for _ in range(NUM_CURVE_DRAWS)]
        expected = float(probability(wanted))
        columns = []
        for num_pairs, met in ((some, drawn[0]), (every, statistics.mean(drawn))):
            error = (expected * (1 - expected) / num_pairs) ** 0.5
            columns.append(f"{met:.5f} | {(met - expected) / error:+.2f}")
        yield f"| {wanted:.2f} | {expected:.5f} | {' | '.join(columns)} |"


def _share_that_met(similarity: float, num_pairs: int, generator: np.random.Generator) -> float:
    """Of pairs of random sets, 200 words together, the share that agrees in a band."""
    common, union = round(similarity * 200), 200
    only = (union - common) // 2
    assert common / (common + 2 * only) == similarity
    every = generator.integers(0, 2**64, (num_pairs, union), dtype=np.uint64)
    sides = np.stack([every[:, : common + only], np.delete(every, np.s_[common : common + only], axis=1)], axis=1)
    offsets = np.arange(2 * num_pairs + 1, dtype=np.int64) * (common + only)
    values, _ = signatures(Words(hashes=sides.reshape(-1), offsets=offsets), ngram=1)
    hashes = band_hashes(values)
    return float(np.any(hashes[0::2] == hashes[1::2], axis=1).mean())


def brute_part(corpus: Path) -> Iterator[str]:
    """Every pair of real documents compared exactly, beside what the stages dropped."""
    corpus_documents: list[Document] = []
    for source in ("docs/manpages", "docs/debian_advisories"):
        name = source.partition("/")[2]
        corpus_documents += [(name, id_, text) for id_, text in documents(corpus, source)][:NUM_BRUTE]
    yield f"{len(corpus_documents):,} documents: the first of manpages and of debian_advisories\n"
    yield "| template lines | near dropped | least J | pairs at 0.80 and over | both kept | by the curve |"
    yield "|---|---|---|---|---|---|"
    keys = [document[:2] for document in corpus_documents]
    words = words_of(pa.array([text for _, _, text in corpus_documents], pa.large_string()))
    shingles, offsets = shingle_sets(words)
    pairs, similarity = all_pairs(shingles, offsets)
    for enabled in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            decisions = dropped_of(Path(folder), corpus_documents, near={"templates": {"enabled": enabled}}).decisions
        place = {key: row for row, key in enumerate(keys)}
        near = np.array([(place[key], place[told[:2]]) for key, told in decisions.items() if told[2] == "near"])
        least = jaccard_pairs(shingles, offsets, near).min()
        is_dropped = np.array([key in decisions for key in keys])
        missed = int((~is_dropped[pairs].any(1)).sum())
        expected = float((1 - probability(similarity)).sum())
        assert least >= THRESHOLD, "precision is 1 by construction"
        name = "on" if enabled else "off"
        yield f"| {name} | {len(near):,} | {least:.4f} | {len(pairs):,} | {missed} | {expected:.1f} |"


def all_pairs(shingles: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64 (k, 2), float64 (k,)): all pairs at THRESHOLD and over. Sets of too different sizes cannot reach it."""
    size = np.diff(offsets)
    order = np.argsort(size, kind="stable")
    ends = np.searchsorted(size[order], size[order] / THRESHOLD + 1e-9, "right")
    pairs, found = [], []
    for row in np.flatnonzero(size[order]).tolist():
        others = order[row + 1 : ends[row]]
        candidates = np.stack([np.full(len(others), order[row]), others], axis=1)
        similarity = jaccard_pairs(shingles, offsets, candidates)
        pairs.append(candidates[similarity >= THRESHOLD])
        found.append(similarity[similarity >= THRESHOLD])
    return np.concatenate(pairs), np.concatenate(found)


def labels_part(corpus: Path, peers: dict[str, str]) -> Iterator[str]:
    """Each labelled pair judged by each tool: ours proposes and verifies, the others' candidates stand."""
    yield "14 bands of 8 everywhere. Called duplicates: by us, pairs that meet in a band and have J >= 0.80; by the"
    yield "others, pairs that meet in a band, which is what their removal acts on. `doc_revisions` is labelled by exact"
    yield "Jaccard at 0.80; in the other sets people or archives say that both are one, whatever the text."
    yield f"At most {MAX_LABELLED} pairs of a set, evenly spaced.\n"
    yield "| set | pairs | labelled one | J >= 0.80 | tool | called | precision | recall | called below 0.80 |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, every in labelled_pairs(corpus).items():
        pairs = every[:: -(-len(every) // MAX_LABELLED)]
        similarity, _, met = exact_jaccard(pairs)
        label = np.array([same for *_, same in pairs])
        verdicts = {"ours": met & (similarity >= THRESHOLD)}
        for peer, answer in ask_peers(peers, [pairs[0][0]], pairs).items():
            verdicts[peer] = np.array(answer["met"])
        for tool, verdict in verdicts.items():
            right, num_alike = int((verdict & label).sum()), int((similarity >= THRESHOLD).sum())
            num_called, num_below = int(verdict.sum()), int((verdict & (similarity < THRESHOLD)).sum())
            yield (
                f"| {name} | {len(pairs):,} | {int(label.sum()):,} | {num_alike:,} | {tool} | {num_called:,} |"
                f" {right / max(1, num_called):.3f} | {right / int(label.sum()):.3f} | {num_below:,} |"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=f"one of {', '.join(PEERS)}")
    parser.add_argument("--documents", type=int, default=20_000_000, help="of the part records")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    corpus = Path(os.environ.get("SHARDMILL_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
    if not corpus.is_dir():
        sys.stderr.write(f"no corpus at {corpus}: set SHARDMILL_CORPUS to its folder\n")
        return 2
    peers = dict(peer.split("=", 1) for peer in arguments.peer)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warm_up()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        f"# Deduplication, {today}",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, pinned to one;"
        f" load {' / '.join(f'{load:.1f}' for load in os.getloadavg())}",
    ]
    for line in lines:
        sys.stdout.write(line + "\n")
    parts: dict[str, Callable[[], Iterator[str]]] = {
        "signatures": lambda: signatures_part(corpus, peers),
        "curve": curve_part,
        "brute": lambda: brute_part(corpus),
        "labels": lambda: labels_part(corpus, peers),
        "templates": lambda: dedup_templates.in_words(
            lambda source: list(documents(corpus, source)), THRESHOLD, all_pairs
        ),
        "cases": dedup_cases.in_words,
        "records": lambda: records_part(arguments.documents),
    }
    for name in PARTS:
        if name in arguments.only:
            for line in ("", f"## {name}", "", *parts[name]()):
                lines.append(line)
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    if arguments.save:
        path = REPOSITORY / "benchmarks" / "results" / f"{today}-dedup.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        sys.stdout.write(f"\nsaved {path}\n")
    return 0


def records_part(num_documents: int) -> Iterator[str]:
    """See dedup_records."""
    with tempfile.TemporaryDirectory() as folder:
        yield dedup_records.in_words(dedup_records.measure(num_documents, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
