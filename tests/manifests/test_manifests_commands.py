"""python -m manifests, as a user runs it: what it prints, and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manifests import load
from tests.manifests.manifest_samples import DOCUMENTS, build


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "manifests", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=os.environ | environment)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions: v2 was built from v1."""
    root = tmp_path_factory.mktemp("data set")
    parent = load(build(str(root))).manifest
    build(str(root), version="v2", parent=parent, documents=DOCUMENTS[:4], config={"seed": 1})
    return root


def test_show_is_one_screen(root):
    done = run("show", str(root / "manifests/v1.json"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "support-corpus v1"
    assert "  dropped    5 of 61 tokens, in the unfilled last row of each split" in lines
    assert "  train       2         7      56          5  9.2 kB    0.0 %" in lines
    assert "  docs          1     4     3   75.0 %      39    63.9 %" in lines
    assert "  - filter: gopher_quality.too_few_words          1   14.3 %    10 B" in lines
    assert len(lines) < 40
    assert all(len(line) <= 100 for line in lines if "manifest " not in line), "but for the path, which is the user's"


def test_show_json_is_the_file_itself(root):
    path = root / "manifests/v1.json"
    assert run("show", "--json", str(path)).stdout == path.read_text(encoding="utf-8")


def test_diff_has_gits_exit_codes(root):
    v1, v2 = str(root / "manifests/v1.json"), str(root / "manifests/v2.json")
    assert run("diff", v1, v2).returncode == 0
    assert run("diff", "--exit-code", v1, v2).returncode == 1
    assert run("diff", "--exit-code", v1, v1).returncode == 0


def test_diff_json_is_for_programs(root):
    done = run("diff", "--json", str(root / "manifests/v1.json"), str(root / "manifests/v2.json"))
    difference = json.loads(done.stdout)
    assert difference["relation"] == "new from old"
    assert {"field": "config.seed", "kind": "changed", "old": 0, "new": 1} in difference["changes"]
    assert difference["inputs"]["docs"] == {"num_kept": 2, "added": [], "removed": ["api.md"], "changed": []}


def test_verify_says_that_everything_holds(root):
    done = run("verify", "--verbose", str(root / "manifests/v1.json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("ok  shards/train/v1-000000.tar  4 examples  ")
    assert done.stdout.splitlines()[-1] == "support-corpus v1: read 2 shards, 9.2 kB: everything holds"


def test_verify_prints_each_finding_on_a_line_and_exits_with_1(tmp_path):
    url = build(str(tmp_path))
    (tmp_path / "shards/train/v1-000000.tar").unlink()
    done = run("verify", url)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "shards/train/v1-000000.tar: file: stated 5120 bytes, found no such file",
        "support-corpus v1: read 2 shards, 9.2 kB: 1 finding",
    ]


def test_verify_of_a_manifest_changed_by_hand_exits_with_1(tmp_path):
    path = Path(build(str(tmp_path)))
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    done = run("verify", str(path))
    assert done.returncode == 1
    assert "the file was changed after it was written" in done.stdout


def test_where_names_shard_and_examples(root):
    done = run("where", str(root / "manifests/v1.json"), "guide/install.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "docs: guide/install.md: 20 tokens",
        "  shards/train/v1-000000.tar  examples 0-2  from token 0  document tokens 0-19",
        "tickets: guide/install.md: 18 tokens",
        "  shards/train/v1-000001.tar  examples 0-2  from token 1  document tokens 0-17",
    ]


def test_where_json_is_for_programs(root):
    done = run("where", "--json", str(root / "manifests/v1.json"), "guide/настройка.md")
    assert json.loads(done.stdout) == [
        {
            "source": "docs",
            "document_id": "guide/настройка.md",
            "repeat": 0,
            "split": "train",
            "shard": "shards/train/v1-000000.tar",
            "first_example": 2,
            "last_example": 3,
            "first_token": 4,
            "num_tokens": 9,
            "document_offset": 0,
            "ends": True,
        }
    ]


def test_where_of_a_document_that_is_not_held_exits_with_1(root):
    done = run("where", str(root / "manifests/v1.json"), "nobody")
    assert (done.returncode, done.stdout) == (1, "v1 holds no document 'nobody'\n")
    assert run("where", "--json", str(root / "manifests/v1.json"), "nobody").stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "{root}/manifests/v9.json"), "v9.json: no such file or object: check the path"),
        (("show", "{root}/manifests"), "is a folder, not a file"),
        (("show", "{root}/shards/train/v1-000000.tar"), "is not JSON"),
        (("verify", "{root}/manifests/v9.json"), "no such file or object"),
        (("diff", "{root}/manifests/v1.json"), "the following arguments are required: NEW"),
        (("diff", "{root}/manifests/v1.json", "{root}/manifests/v9.json"), "no such file or object"),
        (("where", "{root}/manifests/v1.json"), "the following arguments are required: DOC_ID"),
        (("list",), "invalid choice: 'list'"),
        (("show", "--colour", "{root}/manifests/v1.json"), "unrecognized arguments: --colour"),
        (("show", "gs://bucket/manifests/v1.json"), "give a local path or s3://"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(root, arguments, said):
    done = run(*(argument.format(root=root) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_bare_command_helps_with_an_example():
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "python -m manifests show data/manifests/v3.json" in done.stderr


def test_a_reader_that_leaves_early_is_no_error(root):
    command = f"{sys.executable} -m manifests show --json '{root}/manifests/v1.json' | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_utf8_gets_escapes(root):
    done = run("where", str(root / "manifests/v1.json"), "guide/настройка.md", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.startswith("docs: guide/\\u043d")


def test_every_command_works_on_s3(s3_root):
    url = build(s3_root + "/corpus")
    assert run("verify", url).stdout == "support-corpus v1: read 2 shards, 9.2 kB: everything holds\n"
    assert run("show", url).stdout.startswith("support-corpus v1\n")
    assert run("diff", "--exit-code", url, url).returncode == 0
    assert run("where", url, "api.md").returncode == 0
    missing = run("show", s3_root + "/corpus/manifests/v9.json")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
