"""Show which documents a build dropped as duplicates: the one kept for each, how alike they are, and both texts.

Texts are shown while the build's intermediate results (<root>/.build) are there; keepers and similarities always.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from manifests import storage
from manifests.errors import UserError

COLUMN_CHARS = 56
NUM_WORDS = 40
"""Words of each text that are shown, from a few before the first that differs."""
NUM_WORDS_BEFORE = 8
DEFAULT_LIMIT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("root", metavar="ROOT", help="the data set: a folder or s3://bucket/prefix")
    parser.add_argument("--version", required=True, metavar="VERSION", help="the version, e.g. v1")
    parser.add_argument("--document", metavar="ID", help="only this document, dropped or kept for others")
    parser.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help=f"how many, 0: all; default {DEFAULT_LIMIT}")
    parser.add_argument("--json", action="store_true", help="all of them, one JSON object a line, without texts")


def run(options: argparse.Namespace) -> int:
    """Print what was dropped; 1 where --document names nothing that was dropped, or for which something was."""
    folder = storage.join(storage.absolute(options.root), "duplicates", options.version)
    rows = _rows(folder)
    if options.document is not None:
        every = list(rows)
        found = [row for row in every if row["document_id"] == options.document]
        found = found or [row for row in every if row["keeper_id"] == options.document]
        if not found:
            sys.stderr.write(f"no duplicate was found of document {options.document}: it was kept, or is not there\n")
            return 1
        rows = iter(found)
    if options.json:
        for row in rows:
            sys.stdout.write(_json_line(row))
        return 0
    texts, num_found = _Texts(folder), 0
    for row in rows:
        num_found += 1
        if not options.limit or num_found <= options.limit:
            sys.stdout.write(_in_words(row, texts))
    if options.limit and num_found > options.limit:
        sys.stdout.write(f"{num_found - options.limit:,} more: --limit 0 shows all, --json is for programs\n")
    if not num_found:
        sys.stdout.write("nothing was dropped as a duplicate\n")
    return 0


def _rows(folder: str) -> Iterator[dict[str, Any]]:
    from pipeline.documents import open_parquet

    try:
        urls = [info.url for info in storage.list_objects(folder) if info.url.endswith(".parquet")]
    except FileNotFoundError:
        raise UserError(
            f"there is no account of duplicates in {folder}: check ROOT and --version; a build writes it"
        ) from None
    for url in urls:
        with open_parquet(url) as parquet:
            for batch in parquet.iter_batches():
                yield from batch.to_pylist()


def _json_line(row: dict[str, Any]) -> str:
    told = {
        "document": row["document_id"],
        "keeper": row["keeper_id"],
        "kind": row["kind"],
        "similarity": row["similarity"],
    }
    return json.dumps(told, ensure_ascii=False) + "\n"


class _Texts:
    """Texts of documents by their numbers, from the build's intermediate results."""

    def __init__(self, folder: str) -> None:
        try:
            files = json.loads(storage.read_bytes(storage.join(folder, "files.json")))["files"]
        except FileNotFoundError:
            files = []
        self._files: list[tuple[str, int, int]] = [(url, first, n) for _, url, first, n in files]

    def get(self, document: int) -> str | None:
        """None where it is not there any more, or was never: a base version's."""
        from pipeline.documents import open_parquet

        for url, first, num_documents in self._files:
            if not first <= document < first + num_documents:
                continue
            try:
                with open_parquet(url) as parquet:
                    row = document - first
                    for group in range(parquet.num_row_groups):
                        num_rows = parquet.metadata.row_group(group).num_rows
                        if row < num_rows:
                            return str(parquet.read_row_group(group, columns=["text"])["text"][row].as_py())
                        row -= num_rows
            except FileNotFoundError:
                return None
        return None


def _in_words(row: dict[str, Any], texts: _Texts) -> str:
    how = "equal text" if row["kind"] == "exact" else f"similarity {row['similarity']:.3f}"
    lines = [
        f"dropped {row['source']}: {row['document_id']}",
        f"kept    {row['keeper_source']}: {row['keeper_id']}    {row['kind']}, {how}",
    ]
    left, right = texts.get(row["document"]), texts.get(row["keeper"])
    if left is None and right is None:
        lines.append("    (the texts are gone with .build, or lie in an earlier version)")
    else:
        lines += side_by_side(left, right)
    return "\n".join(lines) + "\n\n"


def side_by_side(left: str | None, right: str | None) -> list[str]:
    """A stretch of both texts in two columns, around the first word that differs; a bar marks lines that differ."""
    both = [None if text is None else text.split() for text in (left, right)]
    start = 0
    if both[0] is not None and both[1] is not None:
        differs = (i for i, (one, other) in enumerate(zip_longest(both[0], both[1])) if one != other)
        start = max(0, next(differs, 0) - NUM_WORDS_BEFORE)
    columns = []
    for words in both:
        if words is None:
            columns.append(["(not at hand)"])
            continue
        shown = words[start : start + NUM_WORDS]
        text = " ".join([*(["…"] if start else []), *shown, *(["…"] if start + NUM_WORDS < len(words) else [])])
        columns.append(textwrap.wrap(text, COLUMN_CHARS) or [""])
    return [
        f"    {one:<{COLUMN_CHARS}} {' ' if one == other else '|'} {other}".rstrip()
        for one, other in zip_longest(*columns, fillvalue="")
    ]
