"""Redaction: precision and recall by rule on two labelled sets of our own.

    python benchmarks/redaction.py [--list-errors] [--save]

The sets are tests/pipeline/redaction_examples.py, which grew beside the rules, and redaction_held_out.py, which was
written without them. An example counts as right when the redacted text is exactly the one that its marks ask for; else
all that was found in it counts as wrong and all that is marked as missed.
"""

import argparse
import datetime
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.redaction import RULES, redact_text
from tests.pipeline import redaction_held_out
from tests.pipeline.redaction_examples import MARK, examples, measure


def table(every: Sequence[str], *, list_errors: bool) -> str:
    """Precision and recall by rule, as Markdown."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for marked in every:
        one_right, one_wrong, one_missed = measure(marked)
        right, wrong, missed = right + one_right, wrong + one_wrong, missed + one_missed
        if list_errors and (one_wrong or one_missed):
            text = redact_text(MARK.sub(lambda found: found[2], marked))
            sys.stdout.write(f"wrong {dict(one_wrong)} missed {dict(one_missed)}: {marked!r} -> {text!r}\n")
    num_kept = sum(1 for marked in every if "⟦" not in marked)
    text = f"{len(every)} examples, {num_kept} of them with nothing to redact\n\n"
    text += "| rule | right | wrong | missed | precision | recall |\n|---|---|---|---|---|---|\n"
    for rule in [rule.name for rule in RULES]:
        found, labelled = right[rule] + wrong[rule], right[rule] + missed[rule]
        precision, recall = right[rule] / max(found, 1), right[rule] / max(labelled, 1)
        text += f"| {rule} | {right[rule]} | {wrong[rule]} | {missed[rule]} | {precision:.3f} | {recall:.3f} |\n"
    precision = right.total() / (right + wrong).total()
    recall = right.total() / (right + missed).total()
    text += f"| all | {right.total()} | {wrong.total()} | {missed.total()} | {precision:.3f} | {recall:.3f} |\n"
    return text


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list-errors", action="store_true")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-redaction.md")
    options = parser.parse_args()
    text = "## Beside the rules\n\n" + table(examples(), list_errors=options.list_errors)
    text += "\n## Held out\n\n" + table(redaction_held_out.examples(), list_errors=options.list_errors)
    sys.stdout.write(text)
    if options.save:
        folder = Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        (folder / f"{today}-redaction.md").write_text(f"# Redaction\n\n`python benchmarks/redaction.py`\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
