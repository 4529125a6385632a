"""Runs: sorted pieces, found again bucket by bucket."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.runs import (
    DOCUMENTS,
    EncodedBatch,
    Run,
    RunLayout,
    RunSlice,
    bucket_of,
    bucket_totals,
    buckets_of_groups,
    merge_runs,
    on_disk,
    read_buckets,
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
        schema=DOCUMENTS,
    )
    tokens = np.repeat(np.arange(len(keys)), np.diff(offsets)).astype(np.uint32)
    return EncodedBatch(documents=table, tokens=tokens, starts=offsets[:-1])


def test_a_bucket_is_the_leading_bits_of_the_key() -> None:
    keys = np.array([0, 2**62, 2**63, 2**64 - 1], np.uint64)
    assert bucket_of(keys, 1).tolist() == [0, 0, 0, 0]
    assert bucket_of(keys, 2).tolist() == [0, 0, 1, 1]
    assert bucket_of(keys, 4).tolist() == [0, 1, 2, 3]


def tokens_of(stretch: RunSlice) -> list[list[int]]:
    ends = np.cumsum(stretch.documents["num_tokens"].to_numpy())
    return [tokens.tolist() for tokens in np.split(stretch.tokens, ends[:-1])]


def test_a_run_is_sorted_and_any_buckets_of_it_can_be_read(tmp_path: Path) -> None:
    url = str(tmp_path / "docs.run")
    run = write_run(url, "docs", [documents([2**63 + 1, 5, 2**63, 3], [4, 1, 2, 3])], layout(4))
    assert run == Run(url=url, source="docs", num_buckets=4)
    assert bucket_totals([run, run], 4) == [8, 0, 12, 0]
    [whole] = read_buckets([run], "uint16", 0, 3)
    assert whole.source == "docs"
    assert whole.documents["id"].to_pylist() == ["3", "5", str(2**63), str(2**63 + 1)]
    assert tokens_of(whole) == [[3, 3, EOS], [EOS], [2, EOS], [0, 0, 0, EOS]]
    [some] = read_buckets([run], "uint16", 1, 2)
    assert some.documents["num_tokens"].to_pylist() == [2, 4]
    assert tokens_of(some) == [[2, EOS], [0, 0, 0, EOS]]
    assert list(read_buckets([run], "uint16", 1, 1)) == []
    [index] = read_buckets([run], "uint16", 0, 3, tokens=False)
    assert index.documents["num_tokens"].to_pylist() == [3, 1, 2, 4]
    assert len(index.tokens) == 0


def test_batches_are_merged_and_copies_may_share_their_tokens(tmp_path: Path) -> None:
    first, second = documents([7, 1], [3, 1]), documents([4], [3])
    second = EncodedBatch(documents=second.documents, tokens=np.array([5, 6], np.uint32), starts=np.array([0]))
    copy = EncodedBatch(documents=second.documents, tokens=first.tokens, starts=np.array([0]))
    run = write_run(str(tmp_path / "docs.run"), "docs", [first, second, copy], layout(1))
    [read] = read_buckets([run], "uint16", 0, 0)
    assert tokens_of(read) == [[EOS], [5, 6, EOS], [0, 0, EOS], [0, 0, EOS]]


def test_bos_stands_before_every_document_of_a_run_and_eos_after_it(tmp_path: Path) -> None:
    batch = documents([7, 1], [4, 2])
    starts = np.array([0, 2])  # of 4 places one is BOS and one EOS
    batch = EncodedBatch(documents=batch.documents, tokens=np.array([5, 6], np.uint32), starts=starts)
    run = write_run(str(tmp_path / "docs.run"), "docs", [batch], layout(1, bos=9))
    [read] = read_buckets([run], "uint16", 0, 0)
    assert tokens_of(read) == [[9, EOS], [9, 5, 6, EOS]]
    merged = merge_runs(str(tmp_path / "merged.run"), [run, run], layout(1, bos=9))
    [read] = read_buckets([merged], "uint16", 0, 0)
    assert tokens_of(read) == [[9, EOS], [9, EOS], [9, 5, 6, EOS], [9, 5, 6, EOS]]


@pytest.mark.parametrize(
    ("first", "last", "num_groups", "num_buckets", "buckets"),
    [(0, 0, 1, 8, (0, 7)), (1, 2, 4, 8, (2, 5)), (3, 3, 4, 4, (3, 3)), (5, 6, 8, 2, (1, 1)), (3, 4, 8, 2, (0, 1))],
)
def test_a_group_is_some_buckets_or_a_part_of_one(
    first: int, last: int, num_groups: int, num_buckets: int, buckets: tuple[int, int]
) -> None:
    assert buckets_of_groups(first, last, num_groups, num_buckets) == buckets


ROWS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 5)), min_size=1, max_size=30)


@settings(max_examples=30, deadline=None)
@given(ROWS, st.sampled_from([1, 2, 16]))
def test_nothing_is_lost_between_writing_and_reading(rows: list[tuple[int, int]], num_buckets: int) -> None:
    batch = documents([key for key, _ in rows], [n for _, n in rows])
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(f"{folder}/docs.run", "docs", [batch], layout(num_buckets))
        [back] = read_buckets([run], "uint16", 0, num_buckets - 1)
        assert back.documents["key_high"].to_pylist() == sorted(batch.documents["key_high"].to_pylist())
        assert back.documents.sort_by("key_low").equals(batch.documents)
        rows_read = back.documents["key_low"].to_pylist()
        assert tokens_of(back) == [[row] * (rows[row][1] - 1) + [EOS] for row in rows_read]
        assert sum(bucket_totals([run], num_buckets)) == sum(n for _, n in rows)


@settings(max_examples=30, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from([1, 4]), st.sampled_from([4, 64]))
def test_merged_runs_are_the_run_of_all_their_documents(
    parts: list[list[tuple[int, int]]], run_buckets: int, num_buckets: int
) -> None:
    batches = [documents([key for key, _ in rows], [n for _, n in rows]) for rows in parts]
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            write_run(f"{folder}/{number}.run", "docs", [batch], layout(run_buckets))
            for number, batch in enumerate(batches)
        ]
        merged = merge_runs(f"{folder}/merged.run", runs, layout(num_buckets))
        whole = write_run(f"{folder}/whole.run", "docs", batches, layout(num_buckets))
        for bucket in range(num_buckets):
            [found, expected] = (list(read_buckets([run], "uint16", bucket, bucket)) for run in (merged, whole))
            assert [one.documents for one in found] == [one.documents for one in expected]
            assert [tokens_of(one) for one in found] == [tokens_of(one) for one in expected]
        assert bucket_totals([merged], num_buckets) == bucket_totals([whole], num_buckets)


def test_a_part_of_runs_on_s3_is_copied_to_the_local_disk_and_read_there_as_the_whole_would_be(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keys = [number << 60 for number in range(16)]
    runs = [
        write_run(f"{s3_root}/{number}.run", f"source {number}", [documents(keys[number::3], lengths)], layout(16))
        for number, lengths in enumerate([[3, 1, 2, 5, 4, 2], [2, 2, 2, 1, 1], [4, 3, 2, 1, 1]])
    ]
    with on_disk(runs, "uint16", 5, 11) as copies:
        assert [copy.source for copy in copies] == ["source 0", "source 1", "source 2"]
        for first, last in ((5, 11), (7, 8), (11, 11)):
            here, there = (list(read_buckets(some, "uint16", first, last)) for some in (copies, runs))
            assert [one.documents for one in here] == [one.documents for one in there]
            assert [one.source for one in here] == [one.source for one in there]
            assert [tokens_of(one) for one in here] == [tokens_of(one) for one in there]
    assert list(tmp_path.iterdir()) == []
