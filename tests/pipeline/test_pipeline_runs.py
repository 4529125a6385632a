"""Runs: sorted pieces, found again bucket by bucket."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.runs import Run, bucket_of, bucket_totals, read_buckets, run_schema, write_run


def documents(keys: list[int], lengths: list[int]) -> pa.Table:
    return pa.table(
        {
            "key_high": np.array(keys, np.uint64),
            "key_low": np.arange(len(keys), dtype=np.uint64),
            "id": [str(key) for key in keys],
            "repeat": np.zeros(len(keys), np.int32),
            "tokens": [[i] * n for i, n in enumerate(lengths)],
        },
        schema=run_schema("uint16"),
    )


def test_a_bucket_is_the_leading_bits_of_the_key() -> None:
    keys = np.array([0, 2**62, 2**63, 2**64 - 1], np.uint64)
    assert bucket_of(keys, 1).tolist() == [0, 0, 0, 0]
    assert bucket_of(keys, 2).tolist() == [0, 0, 1, 1]
    assert bucket_of(keys, 4).tolist() == [0, 1, 2, 3]


def test_a_run_is_sorted_and_its_index_tells_what_each_bucket_holds(tmp_path: Path) -> None:
    url = str(tmp_path / "run.arrow")
    run = write_run(url, "docs", documents([2**63 + 1, 5, 2**63, 3], [4, 1, 2, 3]), num_buckets=4)
    assert run == Run(url=url, source="docs", buckets=(0, 2), num_tokens=(4, 6), num_documents=(2, 2))
    assert Run.from_json(run.to_json()) == run
    batches = list(read_buckets(run, 0, 3))
    assert [batch["id"].to_pylist() for batch in batches] == [["3", "5"], [str(2**63), str(2**63 + 1)]]
    assert batches[0]["tokens"].to_pylist() == [[3, 3, 3], [1]]
    assert [batch.num_rows for batch in read_buckets(run, 1, 1)] == []
    assert [batch.num_rows for batch in read_buckets(run, 1, 2)] == [2]


def test_totals_add_up_over_runs() -> None:
    first = Run(url="a", source="s", buckets=(0, 2), num_tokens=(4, 2**40), num_documents=(1, 1))
    second = Run(url="b", source="s", buckets=(2,), num_tokens=(2**40,), num_documents=(1,))
    assert bucket_totals([first, second], 4) == [4, 0, 2**41, 0]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 5)), min_size=1, max_size=30),
    st.sampled_from([1, 2, 16]),
)
def test_nothing_is_lost_between_writing_and_reading(rows: list[tuple[int, int]], num_buckets: int) -> None:
    import tempfile

    table = documents([key for key, _ in rows], [n for _, n in rows])
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(f"{folder}/run.arrow", "docs", table, num_buckets)
        back = pa.Table.from_batches(read_buckets(run, 0, num_buckets - 1))
        assert back.sort_by("key_low").equals(table)
        assert back["key_high"].to_pylist() == sorted(table["key_high"].to_pylist())
        assert sum(run.num_tokens) == sum(n for _, n in rows)
