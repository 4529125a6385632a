"""What a batch's columns hold, token by token."""

import multiprocessing
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import columns, machine_code
from loader.columns import COLUMNS, fill_columns, fill_plainly

EOS = 1
PADDING = 65_535


def columns_of(
    tokens: list[list[int]], num_rows: int | None = None, names: tuple[str, ...] = COLUMNS, dtype: str = "int64"
) -> dict[str, list[list[int]]]:
    rows = np.array(tokens, dtype="<u2").reshape(len(tokens), -1) if tokens else np.zeros((0, 3), dtype="<u2")
    num_rows = len(tokens) if num_rows is None else num_rows
    arrays = {name: np.empty((num_rows, rows.shape[1]), dtype=dtype) for name in names}
    fill_columns(rows, num_rows, arrays, eos_id=EOS, padding_id=PADDING)
    return {name: array.tolist() for name, array in arrays.items()}


def test_positions_and_documents_begin_anew_after_each_eos_and_labels_never_cross_it() -> None:
    assert columns_of([[7, 9, EOS, 4, 5, 6]]) == {
        "input_ids": [[7, 9, EOS, 4, 5, 6]],
        "labels": [[9, EOS, -100, 5, 6, -100]],
        "position_ids": [[0, 1, 2, 0, 1, 2]],
        "document_ids": [[0, 0, 0, 1, 1, 1]],
    }


def test_an_eos_at_the_head_and_at_the_end_of_a_row_are_documents_too() -> None:
    assert columns_of([[EOS, EOS, 5, EOS]]) == {
        "input_ids": [[EOS, EOS, 5, EOS]],
        "labels": [[-100, -100, EOS, -100]],
        "position_ids": [[0, 0, 0, 1]],
        "document_ids": [[0, 1, 2, 2]],
    }


def test_padding_has_an_embeddable_id_no_label_and_no_document() -> None:
    assert columns_of([[5, EOS, PADDING, PADDING], [5, 6, 7, PADDING]]) == {
        "input_ids": [[5, EOS, EOS, EOS], [5, 6, 7, EOS]],
        "labels": [[EOS, -100, -100, -100], [6, 7, -100, -100]],
        "position_ids": [[0, 1, 0, 0], [0, 1, 2, 0]],
        "document_ids": [[0, 0, -1, -1], [0, 0, 0, -1]],
    }


def test_filler_rows_have_no_label_and_no_document() -> None:
    assert columns_of([[5, 6, 7]], num_rows=2) == {
        "input_ids": [[5, 6, 7], [EOS, EOS, EOS]],
        "labels": [[6, 7, -100], [-100, -100, -100]],
        "position_ids": [[0, 1, 2], [0, 0, 0]],
        "document_ids": [[0, 0, 0], [-1, -1, -1]],
    }


def test_a_batch_of_filler_alone_can_be_made() -> None:
    assert columns_of([], num_rows=1) == {
        "input_ids": [[EOS, EOS, EOS]],
        "labels": [[-100, -100, -100]],
        "position_ids": [[0, 0, 0]],
        "document_ids": [[-1, -1, -1]],
    }


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_alone_is_what_it_is_among_all(name: str, dtype: str) -> None:
    tokens = [[7, EOS, 4, 5], [6, EOS, PADDING, PADDING]]
    assert columns_of(tokens, names=(name,), dtype=dtype) == {name: columns_of(tokens)[name]}


@settings(max_examples=100, deadline=None)
@given(row=st.lists(st.sampled_from([EOS, 2, 3, 4]), min_size=1, max_size=24))
def test_every_label_is_the_next_token_of_the_same_document(row: list[int]) -> None:
    columns = {name: values[0] for name, values in columns_of([row]).items()}
    documents = columns["document_ids"]
    for place, label in enumerate(columns["labels"]):
        follows = place + 1 < len(row) and documents[place + 1] == documents[place]
        assert label == (row[place + 1] if follows else -100)
    assert documents[-1] == row[:-1].count(EOS)
    starts = [place for place, position in enumerate(columns["position_ids"]) if position == 0]
    assert starts == [0, *(place + 1 for place in range(len(row) - 1) if row[place] == EOS)]


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 200).flatmap(
        lambda length: st.lists(
            st.lists(st.sampled_from([EOS, PADDING, *range(2, 40)]), min_size=length, max_size=length), max_size=3
        )
    ),
    num_filler=st.integers(0, 2),
)
def test_the_kernel_and_plain_numpy_fill_alike(rows: list[list[int]], num_filler: int) -> None:
    tokens = np.array(rows, dtype="<u2").reshape(len(rows), -1) if rows else np.zeros((0, 3), dtype="<u2")
    num_rows = len(rows) + num_filler
    if not num_rows:
        return
    compiled, plain = ({name: np.empty((num_rows, tokens.shape[1]), dtype="int64") for name in COLUMNS} for _ in "ab")
    fill_columns(tokens, num_rows, compiled, eos_id=EOS, padding_id=PADDING)
    addresses = tokens.ctypes.data + np.arange(len(rows)) * tokens.strides[0]
    fill_plainly(addresses, num_rows, tokens.dtype, plain, eos_id=EOS, padding_id=PADDING)
    assert {name: array.tolist() for name, array in compiled.items()} == {
        name: array.tolist() for name, array in plain.items()
    }


def test_a_process_forked_while_its_parent_compiles_has_the_kernel_too(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    types = "uint32", "int16"  # of no other test

    def compiled(*_: object) -> object:
        has_begun.set()
        may_end.wait()
        return int

    monkeypatch.setattr(machine_code, "kept_kernel", lambda *_: None)
    monkeypatch.setattr(machine_code, "compiled_kernel", compiled)
    assert columns._kernels.get_or_begin(types) is None
    has_begun.wait()

    def child() -> None:
        may_end.set()
        columns.load_kernel(np.dtype(types[0]), np.dtype(types[1]))

    forked = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    forked.start()
    forked.join(60)
    may_end.set()
    assert forked.exitcode == 0
    columns.load_kernel(np.dtype(types[0]), np.dtype(types[1]))  # the parent's thread has ended
