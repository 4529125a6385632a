"""Make examples/sample from the development corpus. Run by hand, once; a user never needs it.

    python examples/sample/make_sample.py /path/to/corpus

    corpus/clean/*.jsonl.zst -> rules below (by id, place and size; no randomness) -> docs/, tickets/, mail/

The same corpus and library versions give the same bytes. Only text that its licence allows to pass on is taken; the
sample's README.md says which, from where, and under what terms: change both together.
"""

import argparse
import datetime
import gzip
import html
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

HERE = Path(__file__).resolve().parent
Record = dict[str, str | None]

# From this day on Debian's web site is MIT or GPL-2+; older material is under the Open Publication License.
DEBIAN_MIT_SINCE = "2012-01-25"
# About three pages of print: enough to show a document cut over several examples, small enough to bundle a few hundred.
MAX_PAGE_BYTES = 9_200

TARANTOOL_PAGES = re.compile(r"(en|ru)/(admin|getting_started|platform/replication)(/|$)")
TARANTOOL_RECORDS = re.compile(
    r"(en|ru)/(how-to|release)/|ru/reference/reference_rock/vshard/vshard_(summary|index|summary_index)$"
)
# Advisories that say nearly the same of two packages, or the same twice (dla-196 and dla-287): measured in the corpus.
SIMILAR_ADVISORIES = frozenset(
    [f"dla-{n}" for n in (113, 114, 196, 287)]
    + [f"dsa-{n}" for n in (2607, 2608, 2673, 2692, 2996, 3028, 3044, 3045, 3087, 3088, 3104, 3105)]
)
SIMILAR_TICKETS = frozenset(f"itst:{n}" for n in (1117, 2707, 3348, 3785, 5224, 5225, 5781, 5783))
# One in n of the large files: a sample of about 2 MB of text with no kind above half of it.
ADVISORY_STEP = 20
TICKET_STEP = 32
QUESTION_STEP = 9


def read_records(corpus: Path, name: str) -> Iterator[dict]:
    """Records of corpus/clean/<name>.jsonl.zst, in file order."""
    with (corpus / "clean" / f"{name}.jsonl.zst").open("rb") as compressed:
        stream = zstandard.ZstdDecompressor().stream_reader(compressed)
        # newline="\n": U+2028 and its like are text inside a JSON line, never the end of it.
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
            yield json.loads(line)


def keep_fields(record: dict) -> Record:
    return {field: record[field] for field in ("id", "text", "lang", "created")}


def is_page_sized(record: dict) -> bool:
    return len(record["text"].encode()) <= MAX_PAGE_BYTES


def choose_pages(corpus: Path) -> dict[str, str]:
    """File name below docs/pages -> text. English Tarantool pages are reStructuredText, Russian ones plain text."""
    pages = {}
    for record in read_records(corpus, "docs/tarantool"):
        place = record["id"].removeprefix("tarantool:")
        if TARANTOOL_PAGES.match(place) and "/_" not in place and is_page_sized(record):
            suffix = ".rst" if place.startswith("en/") else ".txt"
            pages[f"tarantool/{place}{suffix}"] = record["text"]
    for record in read_records(corpus, "docs/python311"):
        place = record["id"].partition(":en/")[2].removesuffix(".html")
        if place.startswith("tutorial/") and is_page_sized(record):
            pages[f"python/{place}.txt"] = record["text"]
    return pages


def choose_tarantool(corpus: Path) -> list[Record]:
    """Release notes exist in two languages with most lines equal: natural near duplicates."""
    return [
        keep_fields(record)
        for record in read_records(corpus, "docs/tarantool")
        if TARANTOOL_RECORDS.match(record["id"].removeprefix("tarantool:")) and is_page_sized(record)
    ]


def choose_advisories(corpus: Path) -> list[Record]:
    recent = [r for r in read_records(corpus, "docs/debian_advisories") if (r["created"] or "") >= DEBIAN_MIT_SINCE]
    places = sorted({r["id"].partition("/")[2] for r in recent})
    chosen = set(places[::ADVISORY_STEP]) | {p for p in places if p.rpartition("/")[2] in SIMILAR_ADVISORIES}
    return [keep_fields(r) for r in recent if r["id"].partition("/")[2] in chosen]


def choose_news(corpus: Path) -> list[Record]:
    return [
        keep_fields(r) for r in read_records(corpus, "mails/debian_news") if (r["created"] or "") >= DEBIAN_MIT_SINCE
    ]


def choose_tickets(corpus: Path) -> list[Record]:
    return [
        keep_fields(record)
        for place, record in enumerate(read_records(corpus, "tickets/it_service_tickets"))
        if place % TICKET_STEP == 0 or record["id"] in SIMILAR_TICKETS
    ]


def choose_questions(corpus: Path) -> list[Record]:
    """CC BY-SA asks for the author and the place: every record carries the links to both."""
    authors = {}
    with gzip.open(corpus / "raw" / "tickets" / "stackexchange_Posts.xml.gz", "rt", encoding="utf-8-sig") as posts:
        for row in ElementTree.parse(posts).getroot():
            if user := row.get("OwnerUserId"):
                authors[row.get("Id")] = f"https://matheducators.stackexchange.com/users/{user}"
            elif name := row.get("OwnerDisplayName"):
                authors[row.get("Id")] = html.unescape(name)
    chosen: list[Record] = []
    for record in list(read_records(corpus, "tickets/stackexchange"))[::QUESTION_STEP]:
        post = record["id"].rpartition(":")[2]
        kind = "a" if record["parent"] else "q"
        if post in authors:
            links = {"url": f"https://matheducators.stackexchange.com/{kind}/{post}", "author": authors[post]}
            chosen.append({**keep_fields(record), **links})
    return chosen


def to_lines(records: list[Record]) -> list[bytes]:
    return [json.dumps(record, ensure_ascii=False).encode() for record in records]


def spoil(lines: list[bytes]) -> list[bytes]:
    """What happens to real exports: one record comes twice, and one line is cut by a half-finished write."""
    repeated, broken = 100, 1000
    return [*lines[:broken], lines[broken][: len(lines[broken]) // 2], *lines[broken + 1 :], lines[repeated]]


def compress_gzip(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=9, mtime=0)


def compress_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(data)


def write_lines(name: str, lines: list[bytes], compress: Callable[[bytes], bytes]) -> None:
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress(b"".join(line + b"\n" for line in lines)))


def write_mail(name: str, records: list[Record]) -> None:
    """Several row groups, a date column and dictionary encoding: what a table export looks like."""
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "id": pa.array([r["id"] for r in records], pa.string()),
            "text": pa.array([r["text"] for r in records], pa.string()),
            "lang": pa.array([r["lang"] for r in records], pa.string()),
            "created": pa.array([datetime.date.fromisoformat(str(r["created"])) for r in records], pa.date32()),
        }
    )
    pq.write_table(table, path, compression="zstd", compression_level=19, row_group_size=50)


def write_pages(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        path = HERE / "docs" / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make examples/sample from the development corpus.")
    parser.add_argument("corpus", type=Path, help="the folder that holds clean/ and raw/")
    corpus = parser.parse_args().corpus
    for kind in ("docs", "tickets", "mail"):
        shutil.rmtree(HERE / kind, ignore_errors=True)
    write_pages(choose_pages(corpus))
    write_lines("docs/tarantool.jsonl.zst", to_lines(choose_tarantool(corpus)), compress_zstd)
    write_lines("docs/debian_advisories.jsonl.zst", to_lines(choose_advisories(corpus)), compress_zstd)
    write_lines("tickets/it_service_tickets.jsonl.gz", spoil(to_lines(choose_tickets(corpus))), compress_gzip)
    write_lines("tickets/math_educators.jsonl.gz", to_lines(choose_questions(corpus)), compress_gzip)
    write_mail("mail/debian_news.parquet", choose_news(corpus))


if __name__ == "__main__":
    main()
