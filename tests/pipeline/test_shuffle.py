"""Records and tables on their way between tasks, on the local disk and on S3: whole, in order, in bounded pieces."""

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests import storage
from pipeline import reads, shuffle
from pipeline.batches import read_batch_by_batch, write_batches
from pipeline.reads import ByteRange, read_many
from pipeline.shuffle import merge_part, read_part, read_parts, write_run

RECORD = np.dtype([("hash", "<u8"), ("place", "<i8")])
NUM_PARTS = 4


def written(root: str, files: Sequence[Sequence[tuple[int, int]]]) -> list[str]:
    """A run a file of (hash, place); a hash below 100 is in one of four parts of 25."""
    urls = []
    for number, rows in enumerate(files):
        records = np.array(rows, RECORD)
        urls.append(f"{root}/{number}.run")
        write_run(urls[-1], records, records["hash"].astype(np.int64) // 25, NUM_PARTS, ["hash", "place"])
    return urls


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), max_size=20), max_size=5), st.integers(1, 9))
def test_a_merged_part_is_every_record_of_it_in_order_whatever_is_held_at_once(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[int, int]]], held: int
) -> None:
    urls = written(str(tmp_path_factory.mktemp("runs")), files)
    rows = sorted(row for file in files for row in file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "MERGE_RECORDS", held)
        for part in range(NUM_PARTS):
            expected = [row for row in rows if row[0] // 25 == part]
            merged = [row for piece in merge_part(urls, RECORD, part, NUM_PARTS, ["hash", "place"]) for row in piece]
            assert [tuple(row) for row in merged] == expected
            assert read_part(urls, RECORD, part, NUM_PARTS, ["hash", "place"]).tolist() == expected


FILES = [[(number * step % 100, step) for number in range(60)] for step in (7, 11, 13)]


def test_a_part_larger_than_what_is_held_comes_from_s3_by_way_of_the_local_disk(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = written(s3_root, FILES)
    monkeypatch.setattr(shuffle, "MERGE_RECORDS", 6)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    merging = merge_part(urls, RECORD, 2, NUM_PARTS, ["hash", "place"])
    merged = [tuple(row) for row in next(merging)]
    assert len(list(tmp_path.iterdir())) == 1
    merged += [tuple(row) for piece in merging for row in piece]
    assert merged == sorted(row for file in FILES for row in file if row[0] // 25 == 2)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_each_file_comes_from_s3_by_file(s3_root: str) -> None:
    urls = written(s3_root, FILES)
    found = [part.tolist() for part in read_parts(urls, RECORD, 0, NUM_PARTS)]
    assert found == [sorted(row for row in file if row[0] < 25) for file in FILES]


def test_batches_come_from_s3_one_after_another_by_way_of_the_local_disk(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    schema = pa.schema([("id", pa.int64())])
    urls = [f"{s3_root}/{name}" for name in "ab"]
    for url, bounds in zip(urls, ([0, 2, 2, 5, 9], [0, 1, 1, 1, 4]), strict=True):
        write_batches(url, pa.table({"id": range(bounds[-1])}, schema=schema), bounds)
    assert [table["id"].to_pylist() for table in read_batch_by_batch(urls, schema, 0, 4)] == [
        [0, 1, 0],
        [],
        [2, 3, 4],
        [5, 6, 7, 8, 1, 2, 3],
    ]
    assert [table["id"].to_pylist() for table in read_batch_by_batch(urls, schema, 2, 3)] == [[2, 3, 4]]
    assert list(tmp_path.iterdir()) == []


def test_what_is_fetched_to_the_local_disk_never_needs_to_fit_into_memory(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few files may hold nearly all that a task wants: where ids follow files, so do pairs of neighbouring ranks."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    schema = pa.schema([("id", pa.int64())])
    tables, batches = [f"{s3_root}/{name}" for name in "ab"], [[0, 500, 500, 1000], [0, 1, 2, 3]]
    for url, bounds in zip(tables, batches, strict=True):
        write_batches(url, pa.table({"id": range(bounds[-1])}, schema=schema), bounds)
    records = written(s3_root, FILES)
    asked: list[int] = []

    def read_bytes(url: str, start: int = 0, length: int | None = None) -> bytes:
        if url.startswith("s3:"):
            asked.append(length or 0)
        return unbounded(url, start, length)

    unbounded = storage.read_bytes
    monkeypatch.setattr(storage, "read_bytes", read_bytes)
    monkeypatch.setattr(reads, "PIECE_BYTES", 100)
    monkeypatch.setattr(shuffle, "MERGE_RECORDS", 6)
    found = [table["id"].to_pylist() for table in read_batch_by_batch(tables, schema, 0, 3)]
    assert found == [[*range(500), 0], [1], [*range(500, 1000), 2]]
    merged = [tuple(row) for piece in merge_part(records, RECORD, 1, 4, ["hash", "place"]) for row in piece]
    assert merged == sorted(row for file in FILES for row in file if row[0] // 25 == 1)
    assert max(asked) == 100


def test_sixteen_reads_from_s3_are_under_way_at_once_and_their_order_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    all_there = threading.Barrier(16)

    def read_bytes(url: str, start: int, length: int | None) -> bytes:
        all_there.wait(timeout=60)
        return f"{url} {start} {length}".encode()

    monkeypatch.setattr(storage, "read_bytes", read_bytes)
    found = list(read_many([ByteRange(f"s3://bucket/{number}", number, 1) for number in range(96)]))
    assert found == [f"s3://bucket/{number} {number} 1".encode() for number in range(96)]


def test_a_missing_object_among_many_is_told_by_its_name(s3_root: str) -> None:
    urls = [f"{s3_root}/{number}" for number in range(40)]
    for url in urls[:-1]:
        storage.write_bytes(url, b"x")
    with pytest.raises(FileNotFoundError, match="39"):
        list(read_many([ByteRange(url, 0, 1) for url in urls]))


def test_reads_ahead_are_bounded_while_nobody_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(storage, "read_bytes", lambda url, _start, _length: asked.append(url) or b"")
    reading = read_many([ByteRange(f"s3://bucket/{number}", 0, 1) for number in range(500)])
    next(reading)
    reading.close()
    assert len(asked) <= 2 * reads.NUM_AT_ONCE
