"""The inputs that broke other tools (../shared/cases), through our readers, each against its expected.json."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config import CleanConfig, SourceConfig
from pipeline.inputs import find_inputs
from pipeline.readers import Fields, read_file
from pipeline.transforms import clean

SCRIPT = Path(os.environ.get("SHARDMILL_CASES", Path(__file__).parents[3] / "shared" / "cases")) / "make_cases.py"


def between(number: int, expected: int | list[int]) -> bool:
    low, high = expected if isinstance(expected, list) else (expected, expected)
    return low <= number <= high


@pytest.mark.skipif(not SCRIPT.exists(), reason=f"no cases at {SCRIPT.parent}: set SHARDMILL_CASES")
def test_every_case_reads_as_its_page_says(tmp_path):
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True, capture_output=True)
    cases = sorted(tmp_path.iterdir())
    assert len(cases) >= 24
    for case in cases:
        expected = json.loads((case / "expected.json").read_text())
        fields = Fields(text=expected.get("text_field_override", "text"))
        texts: dict[str, str] = {}
        num_read = num_quarantined = 0
        for file in find_inputs(SourceConfig(name="case", paths=(str(case / "input"),))).files:
            for records in read_file(file.url, fields=fields):
                num_read += records.documents.num_rows
                num_quarantined += sum(bad.num_records for bad in records.bad)
                ids = [identity and identity.split("@")[0] for identity in records.documents["id"].to_pylist()]
                texts.update(zip(ids, clean(records.text, CleanConfig()).text.to_pylist(), strict=True))
        assert between(num_read, expected["read"]), case.name
        assert between(num_quarantined, expected["quarantined"]), case.name
        if expected["records"] is not None and expected["format"] != "mixed":
            assert num_read + num_quarantined == expected["records"], case.name
        for identity, wanted in (expected.get("documents") or {}).items():
            assert texts[identity] == wanted.get("text", texts[identity]), (case.name, identity)
            assert all(part in texts[identity] for part in wanted.get("contains", [])), (case.name, identity)
            assert not any(part in texts[identity] for part in wanted.get("absent", [])), (case.name, identity)
