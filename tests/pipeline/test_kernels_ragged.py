"""Gathering lists equals pyarrow's take."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.kernels.ragged import take_lists

LISTS = st.lists(st.lists(st.integers(0, 65_534), max_size=5), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(LISTS, st.data(), st.sampled_from([pa.uint16(), pa.uint32()]))
def test_it_equals_take_on_slices_too(lists: list[list[int]], data: st.DataObject, dtype: pa.DataType) -> None:
    column = pa.array(lists, pa.large_list(dtype))
    first = data.draw(st.integers(0, len(lists) - 1))
    column = column.slice(first)
    rows = np.array(data.draw(st.lists(st.integers(0, len(column) - 1), max_size=30)), np.int64)
    taken = take_lists(column, rows)
    taken.validate(full=True)
    assert taken.equals(column.take(pa.array(rows)))
