"""Filters: speed beside datatrove's and fastText's, parity of verdicts on the whole corpus, what each preset drops.

    .venv/bin/python benchmarks/filters.py --peer-python PEER/bin/python [--save]

MB is 10^6 bytes of UTF-8 text; a core-second is user and system time of the process, which is pinned to one core. The
peer's environment is described in benchmarks/README.md; without it only our side is measured.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import zstandard

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import machine
from benchmarks.filters_parity import compare
from benchmarks.measure import cpu_seconds, held_bytes, reset_peak
from benchmarks.texts import KINDS, find_corpus
from pipeline.filters import judge_all
from pipeline.filters.presets import resolve
from pipeline.kernels.language import detect
from pipeline.kernels.language_model import model_path
from pipeline.kernels.text import analyse
from pipeline.kernels.warm import warm_up

PRESET_OF_KIND = {"docs": "documentation", "tickets": "tickets", "mails": "correspondence"}
PUBLISHED = ("gopher_repetition", "gopher_quality", "c4", "fineweb")
PEER = Path(__file__).parent / "peers" / "datatrove_filters.py"
BATCH_BYTES = 16e6
"""As the readers hand texts on (pipeline/readers/records.py)."""
REPEATS = 5


class _Record(msgspec.Struct):
    text: str
    lang: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of the corpus."""

    kind: str
    path: Path
    text: pa.LargeStringArray
    languages: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.path.name.removesuffix('.jsonl.zst')}"


def read_corpus(corpus: Path) -> list[Source]:
    """Every source, in the order of kinds and names."""
    paths = [path for kind in KINDS for path in sorted((corpus / "clean" / kind).glob("*.jsonl.zst"))]
    return [read_source(path) for path in paths]


def read_source(path: Path) -> Source:
    """One source; its folder is its kind."""
    decoder = msgspec.json.Decoder(_Record)
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        records = _records(decoder, stream.read())
    text = pa.array([record.text for record in records], pa.large_string())
    return Source(kind=path.parent.name, path=path, text=text, languages=tuple(record.lang for record in records))


def _records(decoder: msgspec.json.Decoder[_Record], data: bytes) -> list[_Record]:
    return [decoder.decode(line) for line in data.split(b"\n") if line]


def num_bytes(text: pa.LargeStringArray) -> int:
    offsets = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, 8 * text.offset)
    return int(offsets[-1] - offsets[0])


def batches(text: pa.LargeStringArray) -> list[pa.LargeStringArray]:
    """`text` in batches of about BATCH_BYTES."""
    offsets = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, 8 * text.offset)
    starts = [0]
    while starts[-1] < len(text):
        end = int(np.searchsorted(offsets, offsets[starts[-1]] + BATCH_BYTES))
        starts.append(min(max(end, starts[-1] + 1), len(text)))
    return [text.slice(a, b - a) for a, b in itertools.pairwise(starts)]


def rate(work: Callable[[], Any], megabytes: float) -> float:
    """MB per core-second, the median of REPEATS runs."""
    seconds = []
    for _ in range(REPEATS):
        start = cpu_seconds()
        work()
        seconds.append(cpu_seconds() - start)
    return megabytes / statistics.median(seconds)


def mixed(sources: Sequence[Source], size: float) -> pa.LargeStringArray:
    """Of every source its first documents, in proportion to its size."""
    total = sum(num_bytes(source.text) for source in sources)
    parts = []
    for source in sources:
        offsets = np.frombuffer(source.text.buffers()[1], np.int64, len(source.text) + 1)
        parts.append(source.text.slice(0, int(np.searchsorted(offsets, offsets[-1] * min(size / total, 1)))))
    return pa.concat_arrays(parts)


def speeds(sources: Sequence[Source], size: float) -> dict[str, float]:
    """MB per core-second of each step on a mix of the whole corpus."""
    text = mixed(sources, size)
    parts, megabytes = batches(text), num_bytes(text) / 1e6
    every = resolve([*PUBLISHED, "length", "language"])
    analysed = [analyse(part)[0] for part in parts]
    for one in analysed:
        _ = one.languages

    def all_on() -> None:
        for part in parts:
            judge_all(every, analyse(part)[0])

    rates = {
        "statistics, n-grams and word hashes": rate(lambda: [analyse(part) for part in parts], megabytes),
        "language": rate(lambda: [detect(part) for part in parts], megabytes),
        "verdicts of all six filters": rate(lambda: [judge_all(every, one) for one in analysed], megabytes),
        "all six filters from text, language included": rate(all_on, megabytes),
    }
    for preset in PRESET_OF_KIND.values():
        filters = resolve(preset)
        rates[f"preset {preset} from text"] = rate(
            lambda filters=filters: [judge_all(filters, analyse(part)[0]) for part in parts],  # type: ignore[misc]  # bound now
            megabytes,
        )
    return rates


def by_size(sources: Sequence[Source]) -> dict[str, float]:
    """MB per core-second of all six filters, by the length of the documents."""
    every = resolve([*PUBLISHED, "length", "language"])
    text = pa.concat_arrays([source.text for source in sources])
    sizes: np.ndarray = np.diff(np.frombuffer(text.buffers()[1], np.int64, len(text) + 1))
    manuals = [page for source in sources if source.name == "docs/debian_manuals" for page in source.text.to_pylist()]
    joined = "\n\n".join(manuals).encode()
    long = [joined[start : start + 1_000_000].decode(errors="ignore") for start in range(0, len(joined), 1_000_000)]
    groups = {
        "documents of 400 to 600 bytes": text.take(pa.array(np.flatnonzero((sizes >= 400) & (sizes <= 600))[:16_000])),
        "documents of 2 to 8 kB": text.take(pa.array(np.flatnonzero((sizes >= 2_000) & (sizes <= 8_000))[:4_000])),
        "documents of 1 MB": pa.array(long, pa.large_string()),
    }
    return {
        name: rate(lambda group=group: judge_all(every, analyse(group)[0]), num_bytes(group) / 1e6)  # type: ignore[misc]  # bound now
        for name, group in groups.items()
    }


def memory(corpus: Path, num_batches: int) -> int:
    """Peak bytes of a process of its own that judges so many batches of 15 MB, over what it held before."""
    code = "import sys; from benchmarks.filters import print_memory; print_memory(sys.argv[1], int(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(corpus), str(num_batches)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, cwd=machine.REPOSITORY).stdout)


def print_memory(corpus: str, num_batches: int) -> None:
    """What `memory` asks of its process. The text is held before; what reading it took for a while does not count."""
    one = read_source(Path(corpus) / "clean/mails/apache_lists.jsonl.zst").text
    text = pa.concat_arrays([one] * 6)
    every = resolve([*PUBLISHED, "length", "language"])
    warm_up()
    reset_peak()
    before = held_bytes("VmRSS")
    for _ in range(num_batches):
        judge_all(every, analyse(text)[0])
    sys.stdout.write(f"{held_bytes('VmHWM') - before}\n")


def language_table(sources: Sequence[Source]) -> tuple[list[str], dict[str, int]]:
    """Labels of every document, whole texts, beside fastText's own."""
    lines = ["| documents of | number | labels that differ | of these, two labels within 0.0001 |", "|---|---|---|---|"]
    total = {"documents": 0, "differing": 0, "ties": 0}
    import fasttext  # type: ignore[import-untyped]  # no types; here, not above: only the peer needs it

    model = fasttext.load_model(str(model_path()))
    for source in sources:
        ours = detect(source.text)
        differing = ties = 0
        for number, one in enumerate(source.text.to_pylist()):
            labels, scores = model.predict(one.replace("\n", " "), k=2)
            if labels[0].removeprefix("__label__") != ours.code(number):
                differing += 1
                ties += len(scores) > 1 and bool(scores[0] - scores[1] < 1e-4)
        lines.append(f"| {source.name} | {len(source.text):,} | {differing} | {ties} |")
        counted = (len(source.text), differing, ties)
        total = {name: value + more for (name, value), more in zip(total.items(), counted, strict=True)}
    lines.append(f"| all | {total['documents']:,} | {total['differing']} | {total['ties']} |")
    return lines, total


def fasttext_rate(text: pa.LargeStringArray, size: float) -> tuple[float, int, int]:
    """(MB per core-second of fastText's binding, labels that differ from ours, documents) on `size` bytes of `text`."""
    import fasttext

    model = fasttext.load_model(str(model_path()))
    ours = detect(text)
    texts = [one.replace("\n", " ") for one in text.to_pylist()]
    seconds, done, differing, number = 0.0, 0, 0, 0
    for number, one in enumerate(texts):
        start = time.process_time()
        labels, _ = model.predict(one, k=1)
        seconds += time.process_time() - start
        done += len(one.encode())
        differing += labels[0].removeprefix("__label__") != ours.code(number)
        if done >= size:
            break
    return done / 1e6 / seconds, differing, number + 1


def run_peer(python: str, files: Sequence[Path], *options: str) -> dict[str, Any]:
    """What peers/datatrove_filters.py prints."""
    command = [python, str(PEER), *map(str, files), *options]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def preset_table(sources: Sequence[Source]) -> list[str]:
    """What each source's preset drops, by reason and language."""
    lines = ["| source | documents | dropped | by reason and the source's own language |", "|---|---|---|---|"]
    for source in sources:
        verdict, reasons = judge_all(resolve(PRESET_OF_KIND[source.kind]), analyse(source.text)[0])
        dropped = Counter(
            (reasons[number - 1], source.languages[place]) for place, number in enumerate(verdict.tolist()) if number
        )
        listed = ", ".join(f"{reason} {language} {count}" for (reason, language), count in dropped.most_common(5))
        share = np.count_nonzero(verdict) / len(verdict)
        lines.append(
            f"| {source.name} | {len(verdict):,} | {np.count_nonzero(verdict):,} ({100 * share:.2f} %) | {listed} |"
        )
    return lines


def published_table(sources: Sequence[Source]) -> list[str]:
    """What the published defaults keep of each source."""
    names = ("gopher", "c4", "fineweb")
    lines = [
        f"| source | {' | '.join(f'{name} keeps' for name in names)} | its preset keeps |",
        "|---|---|---|---|---|",
    ]
    for source in sources:
        statistics_, _ = analyse(source.text)
        kept = [
            float(np.mean(judge_all(resolve(name), statistics_)[0] == 0))
            for name in (*names, PRESET_OF_KIND[source.kind])
        ]
        lines.append(f"| {source.name} | {' | '.join(f'{100 * share:.1f} %' for share in kept)} |")
    return lines


def speed_report(
    sources: Sequence[Source], corpus: Path, options: argparse.Namespace
) -> tuple[list[str], dict[str, Any]]:
    """Speeds of ours and of the peers, and memory."""
    data: dict[str, Any] = {"speeds": speeds(sources, options.mb * 1e6)}
    text = mixed(sources, options.peer_mb * 1e6)
    data["fasttext"], data["fasttext_differing"], data["fasttext_documents"] = fasttext_rate(
        text, options.peer_mb * 1e6
    )
    lines = [
        f"## Speed, MB per core-second, a mix of the whole corpus ({options.mb:g} MB)",
        "",
        "| step | MB per core-second |",
    ]
    lines += ["|---|---|", *(f"| {name} | {value:.0f} |" for name, value in data["speeds"].items())]
    lines.append(f"| peer: fastText's binding, lid.176.ftz, whole texts | {data['fasttext']:.1f} |")
    if options.peer_python:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mix.jsonl.zst"
            records = b"".join(msgspec.json.encode({"text": one}) + b"\n" for one in text.to_pylist())
            path.write_bytes(zstandard.compress(records))
            peer = run_peer(options.peer_python, [path], "--words", "spacy")
        peer_rate = peer["num_bytes"] / 1e6 / sum(peer["seconds"].values())
        data["peer"] = {name: peer["num_bytes"] / 1e6 / seconds for name, seconds in peer["seconds"].items()}
        lines += [f"| peer: datatrove's {name}, spaCy's words | {value:.2f} |" for name, value in data["peer"].items()]
        lines.append(f"| peer: the four in a row | {peer_rate:.2f} |")
        all_on = data["speeds"]["all six filters from text, language included"]
        lines += ["", f"All six of ours against datatrove's four: {all_on / peer_rate:.0f} times."]
    data["by_size"] = by_size(sources)
    lines += ["", "## All six filters by the length of documents", "", "| | MB per core-second |", "|---|---|"]
    lines += [f"| {name} | {value:.0f} |" for name, value in data["by_size"].items()]
    spread = max(data["by_size"].values()) / min(data["by_size"].values())
    lines += ["", f"Fastest over slowest: {spread:.2f} (target: 2)."]
    data["memory"] = {count: memory(corpus, count) for count in (1, 12, 48)}
    told = ", ".join(f"{count} batches of 15 MB: {size / 1e6:.0f} MB" for count, size in data["memory"].items())
    lines += ["", f"Memory over what the process held before, all six filters: {told}."]
    return lines, data


def verdict_report(sources: Sequence[Source], options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Verdicts and labels beside the peers', and what presets and published defaults drop."""
    lines: list[str] = []
    data: dict[str, Any] = {}
    verdicts = None
    if options.peer_verdicts:
        verdicts = json.loads(options.peer_verdicts.read_text())["verdicts"]
    elif options.peer_python:
        verdicts = run_peer(options.peer_python, [source.path for source in sources], "--words", "spaces")["verdicts"]
    if verdicts:
        every = pa.concat_arrays([source.text for source in sources])
        table, data["parity"] = compare(every, {name: verdicts[name] for name in PUBLISHED})
        lines += [
            "## Parity with datatrove 0.10.1: published thresholds, equal splitting, the whole corpus",
            "",
            *table,
        ]
    if options.peer_python:
        table, data["language_parity"] = language_table(sources)
        lines += ["", "## Labels beside fastText's, whole texts of every document", "", *table]
    lines += ["", "## What each source's preset drops", "", *preset_table(sources)]
    lines += ["", "## What published defaults keep", "", *published_table(sources)]
    return lines, data


def main() -> int:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="else SHARDMILL_CORPUS, else ../shared/corpus beside the checkout")
    parser.add_argument(
        "--peer-python", default=os.environ.get("SHARDMILL_PEER_PYTHON"), help="a Python with datatrove"
    )
    parser.add_argument("--peer-verdicts", type=Path, help="what the peer printed for the whole corpus, if kept before")
    parser.add_argument("--only", choices=["speed", "verdicts"], help="speed and memory, or parity and presets")
    parser.add_argument("--mb", type=float, default=40.0, help="text for the speeds of ours")
    parser.add_argument("--peer-mb", type=float, default=3.0, help="text for the speeds of the peers")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    corpus = find_corpus(options.corpus)
    sources = read_corpus(corpus)
    warm_up()
    lines = [f"{machine.this_machine().in_words()}; load {machine.load_in_words()}"]
    data: dict[str, Any] = {}
    if options.only != "verdicts":
        more, numbers = speed_report(sources, corpus, options)
        lines += ["", *more]
        data |= numbers
    if options.only != "speed":
        more, numbers = verdict_report(sources, options)
        lines += ["", *more]
        data |= numbers
    report = "\n".join(lines) + "\n"
    sys.stdout.write(report)
    if options.save:
        machine.save(f"filters-{options.only}" if options.only else "filters", machine.this_machine(), report, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
