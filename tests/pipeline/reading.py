"""Reads one small file, as every test of a reader does."""

from pathlib import Path

from pipeline.readers import read_file


def read(path: Path, content: bytes, **options):
    path.write_bytes(content)
    reading = read_file(str(path), **options)
    documents, bad = [], []
    for records in reading:
        documents += [(row["id"], row["text"]) for row in records.documents.to_pylist()]
        bad += records.bad
    assert reading.summary.num_records == len(documents) + sum(one.num_records for one in bad)
    return documents, [(one.member or one.place, one.reason) for one in bad]
