"""What a loader has done so far, in numbers: one small object that a trainer exports and a person reads."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(kw_only=True)
class Counters:
    """Sums since the loader was made. One rank's; written by the loader, read by anybody.

    batches: micro-batches given to the consumer. rows: rows in them that hold examples. bytes_fetched: of shards
    downloaded whole. fetch_s: seconds spent on that, over all download threads. cache_hits: shards found on local disk.
    waits, wait_s: times and seconds that making a batch waited for a shard. early_rows: rows read from storage before
    their shard had arrived. retries: downloads tried again. full_disk_waits: times a download waited for disk space.
    masked_rows: rows replaced by filler since their shard is bad.
    """

    batches: int = 0
    rows: int = 0
    bytes_fetched: int = 0
    shards_fetched: int = 0
    fetch_s: float = 0.0
    cache_hits: int = 0
    waits: int = 0
    wait_s: float = 0.0
    early_rows: int = 0
    retries: int = 0
    full_disk_waits: int = 0
    masked_rows: int = 0

    @property
    def fetch_gb_per_s(self) -> float:
        """10**9 bytes a second of one download thread, 0 before the first."""
        return self.bytes_fetched / self.fetch_s / 1e9 if self.fetch_s else 0.0

    def to_json(self) -> dict[str, int | float]:
        return {**asdict(self), "fetch_gb_per_s": self.fetch_gb_per_s}
