"""Exact counts -> which tokens lie in which shard, decided before the first shard is written.

`concat` packing lays all documents of a split end to end, in the order of their keys, as one virtual stream of tokens,
and cuts it into rows of `seq_len`. So a shard is an interval of that stream, and everything about it (its name, size,
which stored tokens it needs) follows from counts:

    tokens a bucket  10  6  9                     seq_len 4, at most 3 examples a shard
    stream           [0 .. 25)                    6 examples, 1 token left over: dropped by the rule "concat_tail",
    counted
    shards           0: examples 0-2, tokens [0, 12), buckets 0-1       1: examples 3-5, tokens [12, 24), buckets 1-2

A bucket is an interval of document keys. How many buckets there are decides how much a shard's task reads beside its
own tokens, never a byte of the result.

`best_fit` packing makes whole rows of each group of documents (pipeline/packing.py), and the rows of all groups, end to
end, are the stream: a group is then what a bucket is above, its rows' places, padding among them, are its tokens, and
nothing is left over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from manifests.errors import UserError
from manifests.shard import ExampleFormat


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """One shard to write: examples and tokens as half-open intervals of the split's stream."""

    shard: int
    first_example: int
    num_examples: int
    first_token: int
    """Where the shard's tokens begin in the stream."""
    first_bucket: int
    last_bucket: int
    """Buckets first_bucket..last_bucket, both included, hold the shard's tokens."""
    bucket_start: int
    """Where first_bucket's tokens begin in the stream: at most first_token."""


@dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """All shards of one split, and what is left over."""

    shards: tuple[ShardPlan, ...]
    num_examples: int
    num_dropped_tokens: int
    """Tokens after the last whole example: fewer than seq_len, dropped by the rule "concat_tail"."""
    num_buckets: int
    """How many buckets the plan was made of; with best_fit, groups."""


def plan_split(bucket_tokens: Sequence[int], example: ExampleFormat, max_bytes: int) -> SplitPlan:
    """Cut a stream into the fewest shards that fit `max_bytes`, equal to within one example.

    Args:
        bucket_tokens: tokens of each bucket, in key order (Python ints: a sum may pass 2**31).
        example: the layout, which decides how many examples fit.
        max_bytes: the largest size of a shard's file.

    Raises:
        UserError: when not even one example fits into `max_bytes`.
    """
    most = example.max_examples(max_bytes)
    if most < 1:
        raise UserError(
            f"shards.max_bytes is {max_bytes:,} and one example of seq_len {example.seq_len} needs a shard of"
            f" {example.shard_num_bytes(1):,} bytes: raise shards.max_bytes or lower example.seq_len"
        )
    ends = list(accumulate(int(n) for n in bucket_tokens))
    total = ends[-1] if ends else 0
    num_examples = total // example.seq_len
    num_shards = -(-num_examples // most)
    bounds = [num_examples * s // num_shards for s in range(num_shards + 1)] if num_shards else [0]
    shards = []
    for shard, (first, end) in enumerate(pairwise(bounds)):
        first_token, end_token = first * example.seq_len, end * example.seq_len
        # side="right" skips buckets that end where the shard begins, empty ones among them.
        first_bucket = int(np.searchsorted(ends, first_token, side="right"))
        last_bucket = int(np.searchsorted(ends, end_token, side="left"))
        shards.append(
            ShardPlan(
                shard=shard,
                first_example=first,
                num_examples=end - first,
                first_token=first_token,
                first_bucket=first_bucket,
                last_bucket=last_bucket,
                bucket_start=ends[first_bucket - 1] if first_bucket else 0,
            )
        )
    return SplitPlan(
        shards=tuple(shards),
        num_examples=num_examples,
        num_dropped_tokens=total - num_examples * example.seq_len,
        num_buckets=len(ends),
    )


def num_buckets_for(num_text_bytes: int) -> int:
    """A power of two, so that a bucket holds some 4 MB of text and a bucket number is the leading bits of a key.

    At most 2**16: the driver adds up the index of every run, 1 MB each then. 4 MB is a sixtieth of a shard, so a
    shard's task reads 3 % more than it writes; of 50 TB a bucket is larger than a shard, and a task that writes 16 of
    them reads 10 % more.
    """
    return 1 << min(16, max(0, (num_text_bytes // 4_000_000).bit_length()))
