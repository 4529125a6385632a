"""Spoilt files of every format: no crash, no hang, every record accounted for. 10,000 through the command by hand:
tests/pipeline/soak_reading.py.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.readers import REASONS, read_file
from tests.pipeline.hostile_files import hostile_file, num_lines


@settings(max_examples=250, deadline=5000)
@given(seed=st.integers(0, 2**32))
def test_a_spoilt_file_is_read_or_accounted_for(tmp_path_factory, seed):
    name, content = hostile_file(seed)
    path = tmp_path_factory.mktemp("hostile") / name
    path.write_bytes(content)
    reading = read_file(str(path))
    num_records = 0
    for records in reading:
        records.documents.validate(full=True)
        assert all(bad.reason in REASONS and bad.num_records > 0 for bad in records.bad)
        num_records += records.documents.num_rows + sum(bad.num_records for bad in records.bad)
    summary = reading.summary
    assert summary.num_records == num_records
    assert summary.num_bytes == len(content)
    if (summary.format, summary.compression) == ("jsonl", "none") and content[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        assert num_records == num_lines(content)
    first = [row for records in read_file(str(path)) for row in records.documents.to_pylist()]
    assert first == [row for records in read_file(str(path)) for row in records.documents.to_pylist()]
