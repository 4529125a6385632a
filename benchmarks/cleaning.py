"""How right cleaning is: mails whose parts people labelled, and pages whose mojibake their authors repaired.

    python benchmarks/cleaning.py [--corpus ../shared/corpus] [--list N] [--save]

Mails    raw/mails/segment_annotated_mails.jsonl.gz (Webis, ACL 2020): every stretch of 596 mails has a label. Each
         transform for mails is run alone; a character counts as removed when the line it stands in is gone. Wanted
         gone: what the labels call by the transform's name. Lost: the writer's own text, which is what has
         no such label above the first header inside the body (below it, labels do not tell whose text it is).
Mojibake neardup/web_revisions_ru.jsonl.zst: 107 revisions are mojibake, and the next one is right. Repaired means
         that the Cyrillic words of the repaired old text are those of the new one, as far as the revision kept them.
         Of the other texts, which are no mojibake, none may change.
"""

import argparse
import datetime
import gzip
import io
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zstandard

from pipeline.transforms import mail_parts, mojibake

WANTED = {
    "quotes": ({mail_parts.QUOTE}, {"quotation", "quotation_marker"}),
    "signatures, disclaimers": (
        {mail_parts.SIGNATURE, mail_parts.DISCLAIMER},
        {"personal_signature", "closing", "mua_signature"},
    ),
}
"""Kinds of lines, and the labels that such lines should have. `mua_signature` is what programs append: a list's footer.
Rows of dashes ("visual_separator") count for nobody.
"""
LOST = {"paragraph", "section_heading", "log_data", "raw_code", "technical", "tabular", "patch"}


def label_of_lines(text: str, labels: list[tuple[int, int, str]]) -> list[str]:
    """For each line the label that holds most of its characters that are no white space, "" for none."""
    names = [""] * len(text)
    for start, end, name in labels:
        names[start:end] = [name] * (end - start)
    found, start = [], 0
    for line in text.split("\n"):
        held = Counter(name for name, mark in zip(names[start:], line, strict=False) if not mark.isspace())
        found.append(held.most_common(1)[0][0] if held else "")
        start += len(line) + 1
    return found


def mails(corpus: Path, num_listed: int) -> str:
    """The table of mails."""
    with gzip.open(corpus / "raw/mails/segment_annotated_mails.jsonl.gz") as stream:
        rows = [json.loads(line) for line in stream if line.strip()]
    totals: dict[str, Counter[str]] = {wanted: Counter() for wanted in WANTED}
    listed: Counter[str] = Counter()
    for row in rows:
        lines = row["text"].split("\n")
        is_own = True
        labels = label_of_lines(row["text"], row["labels"])
        for line, label, kind in zip(lines, labels, mail_parts.kinds_of(lines), strict=True):
            size = len("".join(line.split()))
            is_own = is_own and label != "inline_headers"
            for wanted, (kinds, names) in WANTED.items():
                counts = totals[wanted]
                is_gone = kind in kinds and label != "visual_separator"
                counts["wanted"] += size * (label in names)
                counts["gone"] += size * is_gone
                counts["right"] += size * (is_gone and label in names)
                counts["lost"] += size * (is_gone and is_own and label in LOST)
                counts["own"] += size * (is_own and label in LOST)
                is_wrong = is_gone and label not in names and (is_own or label not in LOST)
                if (is_wrong or (label in names and not is_gone)) and size and listed[wanted] < num_listed:
                    listed[wanted] += 1
                    what = f"removed, labelled {label or 'nothing'}" if is_gone else f"kept as {kind}, labelled {label}"
                    sys.stdout.write(f"mail {row['id']}, {wanted}: {what}: {line[:120]!r}\n")
    text = f"{len(rows)} mails, labelled by people; characters that are no white space\n\n"
    text += (
        "| removed | characters labelled so | of these removed | of what is removed, labelled so | own text lost |\n"
    )
    text += "|---|---|---|---|---|\n"
    for kind, counts in totals.items():
        recall, precision = counts["right"] / counts["wanted"], counts["right"] / max(1, counts["gone"])
        lost = counts["lost"] / counts["own"]
        text += f"| {kind} | {counts['wanted']:,} | {recall:.3f} | {precision:.3f} | {lost:.4f} |\n"
    return text


_CYRILLIC = re.compile(r"[А-Яа-яЁё]{2,}")


def broken_pages(corpus: Path) -> str:
    """The table of mojibake."""
    stream = zstandard.ZstdDecompressor().stream_reader((corpus / "neardup/web_revisions_ru.jsonl.zst").open("rb"))
    num_broken = num_repaired = num_changed = num_sound = 0
    shares = []
    for row in map(json.loads, io.TextIOWrapper(stream, encoding="utf-8", newline="\n")):
        old, new = row["text_old"], row["text_new"]
        if row["old_is_mojibake"]:
            num_broken += 1
            words = Counter(_CYRILLIC.findall(mojibake.TRANSFORM.apply(old)))
            shares.append((words & Counter(_CYRILLIC.findall(new))).total() / max(1, words.total()))
            num_repaired += shares[-1] >= 0.9
        for text, is_broken in ((old, row["old_is_mojibake"]), (new, row["new_is_mojibake"])):
            if not is_broken:
                num_sound += 1
                num_changed += mojibake.TRANSFORM.apply(text) != text
    shares.sort()
    return (
        f"{num_broken} pages of mojibake: {num_repaired} repaired (90 % of their words are the next revision's; median"
        f" {shares[len(shares) // 2]:.3f}, least {shares[0]:.3f}); of {num_sound:,} sound pages {num_changed} changed\n"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("SHARDMILL_CORPUS", default)))
    parser.add_argument("--list", type=int, default=0, metavar="N", help="show the first N lines of each kind of error")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-cleaning.md")
    options = parser.parse_args()
    text = mails(options.corpus, options.list) + "\n" + broken_pages(options.corpus)
    sys.stdout.write(text)
    if options.save:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        target = Path(__file__).parent / "results" / f"{today}-cleaning.md"
        target.write_text(f"# Cleaning of mails and mojibake\n\n`python benchmarks/cleaning.py`\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
