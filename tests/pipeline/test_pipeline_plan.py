"""The plan: exact counts to shards."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.errors import UserError
from manifests.shard import ExampleFormat
from pipeline.plan import num_buckets_for, plan_split

FORMAT = ExampleFormat(seq_len=4, dtype="uint32", packing="concat")
THREE_EXAMPLES = FORMAT.shard_num_bytes(3)


def test_the_worked_example_of_the_docstring() -> None:
    plan = plan_split([10, 6, 9], FORMAT, THREE_EXAMPLES)
    assert (plan.num_examples, plan.num_dropped_tokens) == (6, 1)
    assert [
        (shard.first_example, shard.num_examples, shard.first_bucket, shard.last_bucket, shard.bucket_start)
        for shard in plan.shards
    ] == [(0, 3, 0, 1, 0), (3, 3, 1, 2, 10)]


def test_shards_are_equal_to_within_one_example_even_where_full_ones_would_leave_a_small_rest() -> None:
    plan = plan_split([4 * 10], FORMAT, THREE_EXAMPLES)
    assert [shard.num_examples for shard in plan.shards] == [2, 3, 2, 3]


def test_nothing_gives_no_shard() -> None:
    assert plan_split([], FORMAT, THREE_EXAMPLES).shards == ()
    plan = plan_split([0, 3, 0], FORMAT, THREE_EXAMPLES)
    assert (plan.shards, plan.num_examples, plan.num_dropped_tokens, plan.num_buckets) == ((), 0, 3, 3)


def test_a_limit_below_one_example_names_both_sizes() -> None:
    with pytest.raises(
        UserError, match=r"max_bytes is 1,000 and one example of seq_len 4 needs a shard of 2,048 bytes"
    ):
        plan_split([100], FORMAT, 1000)


def test_more_tokens_than_32_bits_hold() -> None:
    plan = plan_split([2**40, 2**40], FORMAT, 256_000_000)
    assert plan.num_examples == 2**39
    assert plan.shards[-1].first_example + plan.shards[-1].num_examples == 2**39


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5))
def test_every_token_is_in_one_shard_or_in_the_tail_and_buckets_cover_their_shard(tokens: list[int], most: int) -> None:
    plan = plan_split(tokens, FORMAT, FORMAT.shard_num_bytes(most))
    assert plan.num_examples * 4 + plan.num_dropped_tokens == sum(tokens)
    assert 0 <= plan.num_dropped_tokens < 4
    assert sum(shard.num_examples for shard in plan.shards) == plan.num_examples
    sizes = {shard.num_examples for shard in plan.shards}
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert max(sizes, default=0) <= most
    ends = list(accumulate(tokens))
    for shard in plan.shards:
        end_token = shard.first_token + 4 * shard.num_examples
        assert shard.first_token == 4 * shard.first_example
        assert shard.bucket_start == sum(tokens[: shard.first_bucket])
        assert shard.bucket_start <= shard.first_token < ends[shard.first_bucket]
        assert ends[shard.last_bucket] >= end_token > ends[shard.last_bucket] - tokens[shard.last_bucket]


def test_buckets_grow_with_the_text_up_to_their_bound() -> None:
    assert [num_buckets_for(n) for n in (0, 3_999_999, 4_000_000, 8_000_000, 10**14)] == [1, 1, 2, 4, 65_536]
