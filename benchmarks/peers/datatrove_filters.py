"""datatrove's own filters over files of JSON lines: a verdict a document and filter, and the CPU time of each filter.

Runs in the peer's Python, started by benchmarks/filters.py. Prints one JSON object: {"seconds": {filter: s},
"num_bytes", "verdicts": {filter: [reason or null, ...]}} with documents in the order of the files.

`--words spaces` gives datatrove our splitting (white space for words, our rule for sentences), so that what differs is
the rules; `--words spacy` is its default, for speed.
"""

import argparse
import io
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

# datatrove is installed in the peer's Python alone, so our type checker does not find it.
from datatrove.data import Document  # type: ignore[import-not-found]  # see above
from datatrove.pipeline.filters import (  # type: ignore[import-not-found]  # see above
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.utils.typeshelper import Languages  # type: ignore[import-not-found]  # see above
from datatrove.utils.word_tokenizers import WordTokenizer  # type: ignore[import-not-found]  # see above

CITATIONS = re.compile(r"(\[[0-9]*\]|\[edit\]|\[citation needed\])+$")
SENTENCE_END = re.compile(r"[.?!…][\"')\]}»”’]*$")


class Spaces(WordTokenizer):  # type: ignore[misc]  # see above
    """Our splitting, in datatrove's interface."""

    def word_tokenize(self, text: str) -> list[str]:
        """Words are what white space separates."""
        return text.split()

    def sent_tokenize(self, text: str) -> list[str]:
        """The texts of the spans."""
        return [text[start:end] for start, end in self.span_tokenize(text)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """A sentence ends with a word that ends in a terminal mark; what is left is one more."""
        spans, start, end = [], None, 0
        for word in re.finditer(r"\S+", text):
            start, end = word.start() if start is None else start, word.end()
            if SENTENCE_END.search(CITATIONS.sub("", word[0])):
                spans.append((start, end))
                start = None
        return spans if start is None else [*spans, (start, end)]


def texts(paths: list[Path], max_bytes: float) -> Iterator[str]:
    """The documents' texts, up to a number of bytes."""
    left = max_bytes
    for path in paths:
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
            for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
                text = json.loads(line)["text"]
                yield text
                left -= len(text.encode())
                if left <= 0:
                    return


def verdict(one: Any, text: str) -> str | None:
    """None where the filter keeps the text, else its reason, or the error it ends in."""
    try:
        kept = one.filter(Document(text=text, id=""))
    except ZeroDivisionError:
        return "ZeroDivisionError"
    if isinstance(kept, tuple):
        return None if kept[0] else str(kept[1])
    return None if kept else "dropped"


def main() -> None:
    """Judge every text by every filter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--words", choices=["spaces", "spacy"], required=True)
    parser.add_argument("--max-mb", type=float, default=float("inf"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # numpy's, for the mean of no words
    language = Spaces() if options.words == "spaces" else Languages.english
    filters = {
        "gopher_repetition": GopherRepetitionFilter(language=language),
        "gopher_quality": GopherQualityFilter(language=language),
        "c4": C4QualityFilter(language=language),
        "fineweb": FineWebQualityFilter(language=language),
    }
    seconds = dict.fromkeys(filters, 0.0)
    verdicts: dict[str, list[str | None]] = {name: [] for name in filters}
    num_bytes = 0
    for text in texts(options.files, options.max_mb * 1e6):
        num_bytes += len(text.encode())
        for name, one in filters.items():
            start = time.process_time()
            verdicts[name].append(verdict(one, text))
            seconds[name] += time.process_time() - start
    json.dump({"seconds": seconds, "num_bytes": num_bytes, "verdicts": verdicts}, sys.stdout)


if __name__ == "__main__":
    main()
