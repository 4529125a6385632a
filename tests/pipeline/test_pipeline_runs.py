"""Runs: sorted pieces, found again bucket by bucket."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.runs import (
    NUM_INDEX_COLUMNS,
    EncodedBatch,
    Run,
    RunLayout,
    bucket_of,
    bucket_totals,
    buckets_of_groups,
    read_buckets,
    run_schema,
    write_run,
)
from pipeline.tokenization import SpecialIds

EOS = 60_000


def layout(num_buckets: int, bos: int | None = None) -> RunLayout:
    return RunLayout(dtype="uint16", num_buckets=num_buckets, special_ids=SpecialIds(eos=EOS, bos=bos))


def documents(keys: list[int], lengths: list[int]) -> EncodedBatch:
    """Documents whose tokens are their row; `lengths` count the EOS that each will get."""
    offsets = np.cumsum([0, *(length - 1 for length in lengths)])
    table = pa.table(
        {
            "key_high": np.array(keys, np.uint64),
            "key_low": np.arange(len(keys), dtype=np.uint64),
            "id": [str(key) for key in keys],
            "repeat": np.zeros(len(keys), np.int32),
            "num_tokens": lengths,
        },
        schema=pa.schema(list(run_schema("uint16"))[:NUM_INDEX_COLUMNS]),
    )
    tokens = np.repeat(np.arange(len(keys)), np.diff(offsets)).astype(np.uint32)
    return EncodedBatch(documents=table, tokens=tokens, starts=offsets[:-1])


def test_a_bucket_is_the_leading_bits_of_the_key() -> None:
    keys = np.array([0, 2**62, 2**63, 2**64 - 1], np.uint64)
    assert bucket_of(keys, 1).tolist() == [0, 0, 0, 0]
    assert bucket_of(keys, 2).tolist() == [0, 0, 1, 1]
    assert bucket_of(keys, 4).tolist() == [0, 1, 2, 3]


def test_a_run_is_sorted_and_its_index_tells_what_each_bucket_holds(tmp_path: Path) -> None:
    url = str(tmp_path / "run.arrow")
    run = write_run(url, "docs", [documents([2**63 + 1, 5, 2**63, 3], [4, 1, 2, 3])], layout(4))
    assert run == Run(url=url, source="docs", buckets=(0, 2), num_tokens=(4, 6), num_documents=(2, 2))
    assert Run.from_json(run.to_json()) == run
    batches = list(read_buckets(run, 0, 3))
    assert [batch["id"].to_pylist() for batch in batches] == [["3", "5"], [str(2**63), str(2**63 + 1)]]
    assert batches[0]["tokens"].to_pylist() == [[3, 3, EOS], [EOS]]
    assert [batch.num_rows for batch in read_buckets(run, 1, 1)] == []
    [index, _] = read_buckets(run, 0, 3, tokens=False)
    assert index.schema.names == ["key_high", "key_low", "id", "repeat", "num_tokens"]
    assert index["num_tokens"].to_pylist() == [3, 1]
    assert [batch.num_rows for batch in read_buckets(run, 1, 2)] == [2]


def test_totals_add_up_over_runs() -> None:
    first = Run(url="a", source="s", buckets=(0, 2), num_tokens=(4, 2**40), num_documents=(1, 1))
    second = Run(url="b", source="s", buckets=(2,), num_tokens=(2**40,), num_documents=(1,))
    assert bucket_totals([first, second], 4) == [4, 0, 2**41, 0]


def test_batches_are_merged_and_copies_may_share_their_tokens(tmp_path: Path) -> None:
    first, second = documents([7, 1], [3, 1]), documents([4], [3])
    second = EncodedBatch(documents=second.documents, tokens=np.array([5, 6], np.uint32), starts=np.array([0]))
    copy = EncodedBatch(documents=second.documents, tokens=first.tokens, starts=np.array([0]))
    run = write_run(str(tmp_path / "run.arrow"), "docs", [first, second, copy], layout(1))
    [batch] = read_buckets(run, 0, 0)
    assert batch["tokens"].to_pylist() == [[EOS], [5, 6, EOS], [0, 0, EOS], [0, 0, EOS]]


def test_bos_stands_before_every_document_of_a_run_and_eos_after_it(tmp_path: Path) -> None:
    batch = documents([7, 1], [4, 2])
    starts = np.array([0, 2])  # of 4 places one is BOS and one EOS
    batch = EncodedBatch(documents=batch.documents, tokens=np.array([5, 6], np.uint32), starts=starts)
    run = write_run(str(tmp_path / "run.arrow"), "docs", [batch], layout(1, bos=9))
    [read] = read_buckets(run, 0, 0)
    assert read["tokens"].to_pylist() == [[9, EOS], [9, 5, 6, EOS]]


@pytest.mark.parametrize(
    ("first", "last", "num_groups", "num_buckets", "buckets"),
    [(0, 0, 1, 8, (0, 7)), (1, 2, 4, 8, (2, 5)), (3, 3, 4, 4, (3, 3)), (5, 6, 8, 2, (1, 1)), (3, 4, 8, 2, (0, 1))],
)
def test_a_group_is_some_buckets_or_a_part_of_one(
    first: int, last: int, num_groups: int, num_buckets: int, buckets: tuple[int, int]
) -> None:
    assert buckets_of_groups(first, last, num_groups, num_buckets) == buckets


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 5)), min_size=1, max_size=30),
    st.sampled_from([1, 2, 16]),
)
def test_nothing_is_lost_between_writing_and_reading(rows: list[tuple[int, int]], num_buckets: int) -> None:
    batch = documents([key for key, _ in rows], [n for _, n in rows])
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(f"{folder}/run.arrow", "docs", [batch], layout(num_buckets))
        back = pa.Table.from_batches(read_buckets(run, 0, num_buckets - 1))
        assert back["key_high"].to_pylist() == sorted(batch.documents["key_high"].to_pylist())
        by_row = back.sort_by("key_low")
        assert by_row.drop_columns("tokens").equals(batch.documents)
        assert by_row["tokens"].to_pylist() == [[i] * (n - 1) + [EOS] for i, (_, n) in enumerate(rows)]
        assert sum(run.num_tokens) == sum(n for _, n in rows)
