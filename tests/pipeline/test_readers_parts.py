"""A file in parts gives what the file gives whole: the same records, ids and places, wherever it is cut."""

import bz2
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.manifest import Dataset
from pipeline import inputs
from pipeline.build import Host, build
from pipeline.config import parse
from pipeline.readers import compression, read_file
from pipeline.readers.survey import Survey, survey
from tests.pipeline.inline_builds import InlineRuntime, a_token_a_byte

PACK: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
LINES = st.one_of(
    st.builds(lambda n: json.dumps({"id": n, "text": "слово " * n}).encode(), st.integers(0, 40)),
    st.sampled_from([b"", b"  ", b"{", b'{"text": 5}', b'{"text": "\xff"}', b'{"text": "no id"}', b"\xef\xbb\xbf{}"]),
)


def content(path: Path, found: Survey | None = None) -> tuple[list[dict], list[tuple]]:
    documents: list[dict] = []
    bad: list[tuple] = []
    for part in found.parts if found is not None else (None,):
        for records in read_file(str(path), part=part):
            documents += records.documents.to_pylist()
            bad += [(one.place, one.reason, one.detail, one.num_bytes, one.first_bytes) for one in records.bad]
    return documents, bad


def packed(plain: bytes, kind: str, cuts: list[int]) -> bytes:
    """`plain` in as many frames or members as `cuts` make, empty ones too, wherever lines end."""
    ends = [*sorted(cut % (len(plain) + 1) for cut in cuts), len(plain)]
    return b"".join(PACK[kind](plain[start:end]) for start, end in zip([0, *ends], ends, strict=False))


@settings(deadline=None, max_examples=60)
@given(
    lines=st.lists(LINES, max_size=60),
    ends_in_a_line=st.booleans(),
    kind=st.sampled_from(sorted(PACK)),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
    part_bytes=st.integers(1, 3000),
    piece_bytes=st.sampled_from([64, 1000, 1 << 18]),
)
def test_json_lines_in_parts_are_the_lines_of_the_file(
    tmp_path_factory, lines, ends_in_a_line, kind, cuts, part_bytes, piece_bytes
):
    path = tmp_path_factory.mktemp("parts") / "a.jsonl"
    path.write_bytes(packed(b"\n".join(lines) + b"\n" * ends_in_a_line, kind, cuts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "READ_BYTES", piece_bytes)
        patch.setattr("pipeline.readers.source.READ_BYTES", piece_bytes)
        patch.setattr("pipeline.readers.source.HEAD_BYTES", min(piece_bytes, 4096))
        found = survey(str(path), part_bytes=part_bytes)
    assert len(found.parts) != 1
    if found.parts:
        assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert content(path, found) == content(path)


@pytest.mark.parametrize("kind", sorted(PACK))
def test_a_file_of_several_frames_is_cut_and_one_of_a_single_frame_is_not(tmp_path, kind):
    lines = [json.dumps({"id": n, "text": f"{n} " * 40}).encode() for n in range(5000)]
    plain = b"\n".join(lines)
    several = tmp_path / "several.jsonl"
    several.write_bytes(packed(plain, kind, list(range(0, len(plain), 100_000))))
    found = survey(str(several), part_bytes=1)
    assert len(found.parts) >= 3
    assert content(several, found) == content(several)
    single = tmp_path / "single.jsonl"
    single.write_bytes(PACK[kind](plain))
    assert bool(survey(str(single), part_bytes=1).parts) == (kind == "none")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_damaged_file_is_read_whole(tmp_path, kind):
    path = tmp_path / "a.jsonl"
    path.write_bytes(packed(b'{"text": "x"}\n' * 50_000, kind, [100_000, 200_000])[:-3])
    assert survey(str(path), part_bytes=1) == Survey()


def test_other_formats_are_read_whole(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "row\n" * 100_000)
    assert survey(str(path), part_bytes=1) == Survey()
    path = tmp_path / "b.jsonl"
    path.write_bytes(('{"text": "x"}\n' * 100_000).encode("utf-16"))
    assert survey(str(path), part_bytes=1) == Survey()


@pytest.mark.parametrize("part_bytes", [1, 3000, 20_000])
def test_parquet_in_parts_gives_the_rows_of_the_file(tmp_path, part_bytes):
    path = tmp_path / "a.parquet"
    texts = [None if n % 7 == 0 else (f"строка {n} ".encode() if n % 11 else b"\xff") for n in range(5000)]
    pq.write_table(pa.table({"text": pa.array(texts, pa.binary())}), path, row_group_size=600)
    found = survey(str(path), part_bytes=part_bytes)
    assert found.parts
    assert content(path, found) == content(path)
    assert found.parts[0].first_record == 1


def test_parquet_without_the_text_column_is_read_whole(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["x"] * 100}), path, row_group_size=10)
    assert survey(str(path), part_bytes=1) == Survey()


def built(root: Path, source: Path) -> tuple[Dataset, pa.Table, pa.Table]:
    root.mkdir()
    (root / "tokenizer.json").write_bytes(a_token_a_byte())
    values = {
        "name": "parts",
        "output": str(root / "data"),
        "sources": [{"name": "mixed", "paths": [str(source)]}],
        "tokenizer": {"path": str(root / "tokenizer.json")},
        "example": {"seq_len": 64},
        "bad_records": {"budget_fraction": 0.5},
    }
    runtime = InlineRuntime(f"{values['output']}/.build")
    dataset = build(parse(values), runtime, Host(workers=1, ray="none"), lambda _line: None)
    inputs_table = pq.read_table(dataset.resolve(dataset.manifest.inputs.path))
    quarantine = pa.concat_tables(pq.read_table(file) for file in sorted((root / "data/quarantine/v1").iterdir()))
    return dataset, inputs_table, quarantine


def test_a_build_in_parts_is_the_build_of_whole_files_byte_for_byte(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    lines = [json.dumps({"text": f"документ {n} " + "слово " * (n % 50)}).encode() for n in range(4000)]
    lines[17], lines[3500] = b"{", b'{"text": 1}'
    plain = b"\n".join(lines)
    (source / "a.jsonl").write_bytes(plain)
    (source / "b.jsonl.zst").write_bytes(packed(plain, "zstd", list(range(0, len(plain), 150_000))))
    (source / "c.txt").write_text("между ними")
    pq.write_table(
        pa.table({"text": [f"ряд {n} " * 30 for n in range(3000)]}), source / "d.parquet", row_group_size=500
    )
    whole, whole_inputs, whole_quarantine = built(tmp_path / "whole", source)
    monkeypatch.setattr(inputs, "SPLIT_FILE_BYTES", 1)
    monkeypatch.setattr(inputs, "TARGET_GROUP_BYTES", 10_000)
    parts, parts_inputs, parts_quarantine = built(tmp_path / "parts", source)
    surveyed = list((tmp_path / "parts/data/.build").rglob("survey/*"))
    assert len(surveyed) == 4
    assert parts.manifest.digest == whole.manifest.digest
    assert parts.manifest.funnel == whole.manifest.funnel
    assert parts_inputs == whole_inputs
    assert parts_quarantine == whole_quarantine
    assert parts_quarantine["place"].to_pylist() == ["line 18", "line 3501", "line 18", "line 3501"]
