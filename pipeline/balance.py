"""What was read, kept, encoded and written, held against each other: a difference fails the build by its size."""

from collections.abc import Mapping, Sequence

from manifests.manifest import Split
from pipeline.ledger import Ledger, LedgerError
from pipeline.plan import SplitPlan
from pipeline.stages.encode import Encoded


def settle_ledger(read: Ledger, dropped: Sequence[tuple[str, str, int, int]]) -> Ledger:
    """The finished ledger: what reading kept, less what deduplication dropped. It balances, or LedgerError says by how
    much.
    """
    ledger = read.copy()
    for source, kind, num_documents, num_bytes in dropped:
        ledger.move(source, "kept", f"{kind}_duplicate", num_documents, num_bytes)
    ledger.check()
    return ledger


def check_documents(encoded: Encoded, ledger: Ledger) -> None:
    """Every document that the ledger calls kept was encoded; LedgerError says by how much not."""
    for source, num_documents in sorted(encoded.num_documents.items()):
        kept = ledger.documents(source, "kept")
        if num_documents != kept:
            raise LedgerError(
                f"source {source}: {kept} documents kept, {num_documents} encoded: {num_documents - kept:+d}"
            )


def check_tokens(encoded: Encoded, plans: Mapping[str, SplitPlan], splits: Mapping[str, Split]) -> None:
    """Every token encoded stands in a shard or was dropped by a named rule; LedgerError says by how much not.

    Padding is no token: with best_fit nothing is dropped, and concat drops less than a row a split.
    """
    in_shards = sum(split.num_tokens for split in splits.values())
    tails = sum(plan.num_dropped_tokens for plan in plans.values())
    tokens = sum(encoded.num_tokens.values())
    if tokens != in_shards + tails:
        raise LedgerError(
            f"{tokens} tokens encoded, {in_shards} in shards and {tails} dropped as concat_tail:"
            f" {tokens - in_shards - tails:+d}"
        )
