"""Raw archives through reading and cleaning, beside clean copies that others made of the same sources.

    python benchmarks/raw_against_clean.py [--corpus ../shared/corpus] [--save]

A row a source: records, how many have a clean copy, how many of these are equal (white space aside: copies were folded
and trimmed in other ways); of the rest, how many hold every word of their copy, and which share of the copy's words the
others hold. The copies go through our cleaning too, so that a soft hyphen left in one is no difference. Where a copy
joins several fields (title, body, comments), the field that was read has to stand in it: column "inside". Addresses
that the copy's maker invented for people's are no words of it.
"""

import argparse
import datetime
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa
import zstandard

from pipeline import texts
from pipeline.config import CleanConfig
from pipeline.readers import Fields, read_file
from pipeline.transforms import clean

Key = Callable[[str, int, str], list[str]]
"""(id, number of the record, file) -> ids its clean copy may have."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A raw source and its clean copies."""

    name: str
    raw: str
    clean: tuple[str, ...]
    key: Key
    fields: Fields = field(default_factory=Fields)
    markup: str | None = None
    inside: bool = False


def _after(mark: str, ending: str, prefix: str) -> Key:
    return lambda name, _number, _file: [prefix + name.split(mark, 1)[-1].removesuffix(ending + "#1")]


def _wml(name: str, _number: int, _file: str) -> list[str]:
    language, _, path = name.split("webwml/", 1)[1].removesuffix(".wml#1").partition("/")
    return [f"debian-webwml:{({'english': 'en', 'russian': 'ru'})[language]}/{path}"]


def _manual(name: str, _number: int, _file: str) -> list[str]:
    package, _, page = name.split(".tar.gz/", 1)[1].removesuffix("#1").partition("/")
    return [f"{package}-{version}:ru/{page}" for version in MANUAL_VERSIONS]


def _list(name: str, _number: int, file: str) -> list[str]:
    mailing_list = re.sub(r"(-\d{4}-\d{4})?\.parquet", "", file)
    return [f"r:{mailing_list}:{name}"]


def _issue(name: str, _number: int, _file: str) -> list[str]:
    path = name.removeprefix("https://github.com/").replace("ietf-tapswg/api-drafts", "taps-api/drafts")  # moved since
    return ["ietf:" + path.replace("/issues/", "#").replace("/pull/", "#")]


MANUAL_VERSIONS = (
    *("0.8.13-5", "1.0.10-1", "1.2.53", "2.10.34-2", "10.1", "11.0.21"),
    *("11.1", "11.20220922", "12.18", "12.2", "13.20", "20230508+deb12u1"),
)
"""Of the packages whose pages were kept: the archive does not name them."""
INVENTED = re.compile(r"user\d{6}@example\.org")

PAIRS = (
    Pair(
        name="Markdown in tar.gz",
        raw="docs/bsl-ls-docs-md.tar.gz",
        clean=("docs/bsl_ls_docs",),
        key=_after("docs/", ".md", "bsl-ls:"),
    ),
    Pair(
        name="rst in tar.gz",
        raw="docs/tarantool-rst-po.tar.gz",
        clean=("docs/tarantool",),
        key=_after("/doc/", ".rst", "tarantool:en/"),
    ),
    Pair(
        name="man pages in tar",
        raw="docs/manpages-ru-txt.tar",
        clean=("docs/manpages",),
        key=lambda name, _number, _file: [
            f"manpages-ru-{version}:{name.split('.tar/', 1)[1].removesuffix('.txt#1')}"
            for version in ("4.27.0-1", "4.18.1-1")
        ],
    ),
    Pair(
        name="HTML in tar.gz",
        raw="docs/debian-manuals-ru-html.tar.gz",
        clean=("docs/debian_manuals", "docs/gimp_help"),
        key=_manual,
    ),
    Pair(
        name="WML (HTML) in tar.xz",
        raw="docs/debian-web-wml.tar.xz",
        clean=("docs/debian_web", "docs/debian_advisories", "mails/debian_news"),
        key=_wml,
    ),
    Pair(
        name="CSV in gzip",
        raw="tickets/it_service_tickets.csv.gz",
        clean=("tickets/it_service_tickets",),
        key=lambda _name, number, _file: [f"itst:{number}"],
        fields=Fields(text="Document", id=None),
    ),
    Pair(
        name="CSV with HTML",
        raw="tickets/citizen_requests_ru.csv",
        clean=("tickets/citizen_requests_ru",),
        key=lambda name, _number, _file: [f"citizen:train-{name}"],
        fields=Fields(text="Текст Сообщения"),
        markup="html",
    ),
    Pair(
        name="nested JSON in zstd",
        raw="tickets/ietf_trackers.jsonl.zst",
        clean=("tickets/ietf_trackers",),
        key=_issue,
        fields=Fields(text="body", id="url"),
        inside=True,
    ),
    Pair(
        name="Bugzilla JSON",
        raw="tickets/mozilla_bugzilla.jsonl.gz",
        clean=("tickets/mozilla_bugs",),
        key=lambda name, _number, _file: [f"bugzilla.mozilla:{name}"],
        fields=Fields(text="summary"),
        inside=True,
    ),
    Pair(
        name="GitHub JSON",
        raw="tickets/webcompat_issues.jsonl.gz",
        clean=("tickets/mozilla_bugs",),
        key=lambda name, _number, _file: [f"webcompat:{name}"],
        fields=Fields(text="body", id="number"),
        inside=True,
    ),
    Pair(
        name="JSON with labels",
        raw="mails/segment_annotated_mails.jsonl.gz",
        clean=("mails/annotated_mails",),
        key=lambda name, _number, _file: [f"webis:{name}"],
    ),
    Pair(
        name="Parquet",
        raw="mails/r-*.parquet",
        clean=("mails/r_lists",),
        key=_list,
        fields=Fields(text="body"),
        inside=True,
    ),
    Pair(
        name="mbox",
        raw="mails/*.mbox",
        clean=("mails/usrp_users", "mails/apache_lists"),
        key=lambda name, _number, file: [f"usrp:{name}", f"apache:{file.removesuffix('.mbox')}:{name}"],
    ),
)


def clean_copies(corpus: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Texts by id, each through our cleaning."""
    ids: list[str] = []
    copies: list[str] = []
    for name in names:
        stream = zstandard.ZstdDecompressor().stream_reader((corpus / "clean" / f"{name}.jsonl.zst").open("rb"))
        for line in io.BufferedReader(stream):
            row = json.loads(line)
            ids.append(row["id"])
            copies.append(row["text"].replace("\nDate: None\n", "\n", 1))  # how the copies wrote a missing header
    cleaned = clean(pa.array(copies, pa.large_string()), CleanConfig()).text.to_pylist()
    return dict(zip(ids, cleaned, strict=True))


def documents(corpus: Path, pair: Pair) -> Iterator[tuple[str, int, str, str]]:
    """(id, number from 0, file, cleaned text) of every record with text."""
    number = 0
    for path in sorted((corpus / "raw").glob(pair.raw)):
        for records in read_file(str(path), fields=pair.fields, markup=pair.markup):
            ids = texts.identities(records, path.name).to_pylist()
            for name, text in zip(ids, clean(records.text, CleanConfig()).text.to_pylist(), strict=True):
                yield name, number, path.name, text or ""
                number += 1


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", INVENTED.sub(" ", text).lower()))


def share_read(text: str, copy: str) -> float:
    """The share of the copy's words that the text holds, each as often as it stands there."""
    wanted = _words(copy)
    return (wanted & _words(text)).total() / max(1, wanted.total())


def row(corpus: Path, pair: Pair) -> str:
    """The table's row of one pair."""
    copies = clean_copies(corpus, pair.clean)
    num_records = num_copies = num_equal = num_whole = 0
    shares = []
    for name, number, file, text in documents(corpus, pair):
        num_records += 1
        found = [copies[key] for key in pair.key(name, number, file) if key in copies]
        if not found:
            continue
        num_copies += 1
        read = " ".join(text.split())
        if any(read in " ".join(copy.split()) if pair.inside else read == " ".join(copy.split()) for copy in found):
            num_equal += 1
        elif (share := max(share_read(text, copy) for copy in found)) == 1:
            num_whole += 1
        else:
            shares.append(share)
    shares.sort()
    rest = f"{shares[len(shares) // 2]:.3f}, least {shares[0]:.3f}" if shares else ""
    equal = f"{num_equal:,}{' inside' if pair.inside else ''}"
    counts = f"{num_records:,} | {num_copies:,} | {equal} | {num_whole:,} | {len(shares):,}"
    return f"| {pair.name} | {pair.raw} | {counts} | {rest} |\n"


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("SHARDMILL_CORPUS", default)))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-raw-against-clean.md")
    options = parser.parse_args()
    text = "| format | file | records | with a copy | equal | all words | other | share of words, median of others |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for pair in PAIRS:
        text += row(options.corpus, pair)
    sys.stdout.write(text)
    if options.save:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        target = Path(__file__).parent / "results" / f"{today}-raw-against-clean.md"
        target.write_text(f"# Raw sources beside clean copies\n\n`python benchmarks/raw_against_clean.py`\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
