"""python -m pipeline read, as a process."""

import json
import subprocess
import sys

CONFIG = """\
name: t
output: {root}/out
sources:
- {{name: lines, paths: ["{root}/in/a.jsonl"]}}
- {{name: table, paths: ["{root}/in/b.csv"]}}
tokenizer: {{train: {{vocab_size: 400}}}}
redact: {{email: true}}
"""


def run(tmp_path, *arguments):
    (tmp_path / "in").mkdir(exist_ok=True)
    lines = b'{"id": 1, "text": "to a@example.org\\r\\n"}\n{\n{"text": null}\n{"id": "b", "text": " "}\n'
    (tmp_path / "in" / "a.jsonl").write_bytes(lines)
    (tmp_path / "in" / "b.csv").write_text("id,text\nc,table\n")
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG.format(root=tmp_path))
    command = [sys.executable, "-m", "pipeline", "read", str(config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_has_a_line_for_every_record(tmp_path):
    done = run(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["quarantine"] | {"detail": ""} == {
        "source": "lines",
        "file": "a.jsonl",
        "place": "line 2",
        "reason": "invalid_json",
        "detail": "",
        "num_records": 1,
        "first_bytes": "{",
    }
    assert rows[1:] == [
        {"id": "1", "source": "lines", "file": "a.jsonl", "text": "to [EMAIL]\n"},
        {"id": "a.jsonl#3", "source": "lines", "file": "a.jsonl", "text": "", "dropped": "empty.null"},
        {"id": "b", "source": "lines", "file": "a.jsonl", "text": " ", "dropped": "empty.blank"},
        {"id": "c", "source": "table", "file": "b.csv", "text": "table"},
    ]
    assert "4 records = 3 documents" in done.stderr


def test_source_and_limit_narrow_what_is_shown(tmp_path):
    done = run(tmp_path, "--source", "table", "--limit", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("  c  5 chars  table\n")
    assert "lines" not in done.stdout
    first = run(tmp_path, "--source", "lines", "--limit", "1").stdout
    assert "1 documents" in first
    assert "cleaning changed 1 texts" in first
    none = run(tmp_path, "--source", "lines", "--limit", "0").stdout
    assert "cleaning changed 0 texts" in none
    assert "redacted" not in none
    wrong = run(tmp_path, "--source", "tabel")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "python -m pipeline: --source: there is no source tabel, known: lines, table\n",
    )


def test_dates_are_shown_where_the_newest_is_to_stay(tmp_path):
    dated = ("--set", "dedup.keep=newest", "--set", "sources.0.date=id", "--json")
    rows = [json.loads(line) for line in run(tmp_path, *dated).stdout.splitlines()]
    assert [row["date"] for row in rows if "date" in row] == ["1970-01-01T00:00:01Z", None, None, None]
    shown = run(tmp_path, *dated[:-1]).stdout
    assert "  1  1970-01-01T00:00:01Z  11 chars" in shown
    assert "  b  no date  1 chars" in shown
    assert "  without a date that can be read: 2\n" in shown
