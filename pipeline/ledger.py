"""Where every record of the input ended. It balances, or the build fails and says by how much.

A record is entered once, at the place where its way ends: quarantined, dropped by a filter's reason, not drawn by its
source's weight, dropped as a duplicate, or kept. How many were read is counted apart, by the readers, so that a record
lost between two stages shows as a difference and not as silence.

    ledger = Ledger()
    ledger.read("docs", 3, 900)
    ledger.end("docs", "filter", "length.too_short", 1, 20)
    ledger.end("docs", "kept", None, 2, 880)
    ledger.check()                      # 3 documents and 900 bytes read = 3 and 900 ended

Bytes are UTF-8 bytes of a document's cleaned text (of the raw record where it could not be read), counted once and
carried along, so that they balance as the documents do.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from manifests.manifest import FunnelRow

# The order of a document's life, which is the order of the funnel's rows.
STAGES = ("quarantine", "filter", "weight", "exact_duplicate", "near_duplicate", "kept")


class LedgerError(AssertionError):
    """The ledger does not balance: a defect of the build, never of the input."""


@dataclass
class Ledger:
    """Counts of documents and bytes by (source, stage, reason)."""

    read_documents: Counter[str] = field(default_factory=Counter)
    read_bytes: Counter[str] = field(default_factory=Counter)
    ended_documents: Counter[tuple[str, str, str | None]] = field(default_factory=Counter)
    ended_bytes: Counter[tuple[str, str, str | None]] = field(default_factory=Counter)

    def read(self, source: str, num_documents: int, num_bytes: int) -> None:
        """Enter records that a reader found in `source`."""
        self.read_documents[source] += num_documents
        self.read_bytes[source] += num_bytes

    def end(self, source: str, stage: str, reason: str | None, num_documents: int, num_bytes: int) -> None:
        """Enter records whose way ended at `stage` for `reason`."""
        assert stage in STAGES, f"unknown stage {stage!r}, of {STAGES}"
        self.ended_documents[source, stage, reason] += num_documents
        self.ended_bytes[source, stage, reason] += num_bytes

    def move(self, source: str, from_stage: str, to_stage: str, num_documents: int, num_bytes: int) -> None:
        """Records that an earlier stage kept end at a later one after all: duplicates are `kept` by reading."""
        self.end(source, from_stage, None, -num_documents, -num_bytes)
        self.end(source, to_stage, None, num_documents, num_bytes)

    def copy(self) -> "Ledger":
        """A ledger of its own with the same counts."""
        return Ledger(
            Counter(self.read_documents),
            Counter(self.read_bytes),
            Counter(self.ended_documents),
            Counter(self.ended_bytes),
        )

    def documents(self, source: str, stage: str) -> int:
        """How many documents of `source` ended at `stage`, for any reason."""
        return sum(n for (s, t, _), n in self.ended_documents.items() if (s, t) == (source, stage))

    def check(self) -> None:
        """Raise LedgerError unless, in every source, what was read is what ended somewhere."""
        sources = sorted({*self.read_documents, *(source for source, _, _ in self.ended_documents)})
        wrong = []
        for source in sources:
            for what, read, ended in (
                ("documents", self.read_documents[source], _sum_of(self.ended_documents.items(), source)),
                ("bytes", self.read_bytes[source], _sum_of(self.ended_bytes.items(), source)),
            ):
                if read != ended:
                    wrong.append(f"source {source}: {read} {what} read, {ended} accounted for, {read - ended:+d}")
        if wrong:
            raise LedgerError("the ledger does not balance: " + "; ".join(wrong))

    def funnel(self) -> tuple[FunnelRow, ...]:
        """The ledger over all sources, in the order of a document's life; a row a reason, rows of zero documents left
        out save read and kept.
        """
        documents: Counter[tuple[str, str | None]] = Counter()
        sizes: Counter[tuple[str, str | None]] = Counter()
        for (source, stage, reason), n in self.ended_documents.items():
            documents[stage, reason] += n
            sizes[stage, reason] += self.ended_bytes[source, stage, reason]
        rows = [
            FunnelRow(
                stage="read",
                reason=None,
                num_documents=sum(self.read_documents.values()),
                num_bytes=sum(self.read_bytes.values()),
            )
        ]
        documents.setdefault(("kept", None), 0)
        for stage, reason in sorted(documents, key=lambda key: (STAGES.index(key[0]), key[1] or "")):
            if documents[stage, reason] or stage == "kept":
                rows.append(
                    FunnelRow(
                        stage=stage,
                        reason=reason,
                        num_documents=documents[stage, reason],
                        num_bytes=sizes[stage, reason],
                    )
                )
        return tuple(rows)


def _sum_of(counts: Iterable[tuple[tuple[str, str, str | None], int]], source: str) -> int:
    return sum(n for (s, _, _), n in counts if s == source)
