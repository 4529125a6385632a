"""Tables through storage: any stretch of batches comes back, and empty ones take only their place in the index."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batches import BatchRange, read_batch_by_batch, read_batches, write_batches

SCHEMA = pa.schema([("id", pa.large_string()), ("hashes", pa.large_list(pa.uint64()))])


@given(lengths=st.lists(st.integers(0, 4), max_size=8), cut=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_any_stretch_of_batches_is_the_rows_between_its_bounds(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], cut: tuple[int, int]
) -> None:
    url = str(tmp_path_factory.mktemp("batches") / "file")
    rows = [{"id": f"d{i}", "hashes": None if i % 3 == 0 else [i] * (i % 5)} for i in range(sum(lengths))]
    bounds = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    write_batches(url, pa.Table.from_pylist(rows, schema=SCHEMA), bounds)
    first, end = sorted(min(place, len(lengths)) for place in cut)
    [read] = read_batches([BatchRange(url, first, end)], SCHEMA)
    assert read.to_pylist() == rows[bounds[first] : bounds[end]]
    assert read.schema == SCHEMA
    found = [table.to_pylist() for table in read_batch_by_batch([url, url], SCHEMA, first, end)]
    batches = [rows[bounds[number] : bounds[number + 1]] for number in range(first, end)]
    assert found == [batch + batch for batch in batches]


def test_a_million_empty_batches_are_eight_bytes_each(tmp_path: Path) -> None:
    url = str(tmp_path / "file")
    write_batches(url, SCHEMA.empty_table(), [0] * 1_000_001)
    assert Path(url).stat().st_size == 8 * 1_000_001
    [read] = read_batches([BatchRange(url, 999_998, 1_000_000)], SCHEMA)
    assert read.num_rows == 0
