"""The build as a user meets it: the real command, real processes, real kills."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
import webdataset

from manifests.lineage import read_lineage
from manifests.manifest import Dataset, load
from manifests.shard import view_examples
from pipeline.tokenization import train_tokenizer

Build = Callable[..., subprocess.CompletedProcess[str]]
ConfigFile = Callable[..., Path]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def data_of(root: Path) -> dict[str, bytes]:
    """Everything whose bytes a data set promises: shards, lineage, tokenizer."""
    return {
        f"{folder}/{name}": data
        for folder in ("shards", "lineage", "tokenizers")
        for name, data in files_below(root / folder).items()
    }


def last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


@pytest.fixture(scope="module")
def calm(config_file: ConfigFile, run_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """One undisturbed build with one worker, which all others are compared with."""
    root = tmp_path_factory.mktemp("calm") / "data"
    result = run_build(config_file(root, workers=1), PYTHONHASHSEED="1")
    assert result.returncode == 0, result.stderr
    assert last_line(result.stdout) == f"{root}/manifests/v1.json"
    return load(last_line(result.stdout))


def stream_of(dataset: Dataset, split: str) -> np.ndarray:
    """All tokens of a split, end to end."""
    manifest = dataset.manifest
    parts = [
        view_examples(Path(dataset.resolve(shard.path)).read_bytes(), manifest.example).ravel()
        for shard in manifest.splits[split].shards
    ]
    return np.concatenate(parts)


def test_verify_finds_nothing_wrong(calm: Dataset, repository: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "manifests", "verify", calm.url],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_funnel_accounts_for_every_record(calm: Dataset) -> None:
    funnel = {(row.stage, row.reason): row for row in calm.manifest.funnel}
    read = funnel.pop(("read", None))
    assert read.num_documents == sum(row.num_documents for row in funnel.values())
    assert read.num_bytes == sum(row.num_bytes for row in funnel.values())
    inputs = pq.read_table(calm.resolve(calm.manifest.inputs.path))
    assert read.num_documents == sum(inputs["num_records"].to_pylist())
    assert funnel["quarantine", "invalid_json"].num_documents == 1
    assert funnel["exact_duplicate", None].num_documents > 0
    assert funnel["near_duplicate", None].num_documents > 0


def test_tokens_decode_back_to_the_documents_text(calm: Dataset) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(calm.resolve(calm.manifest.tokenizer.path))
    texts = kept_texts(calm)
    num_checked = 0
    for source, document_id, ids in whole_documents(calm, "validation"):
        assert ids[-1] == calm.manifest.tokenizer.eos_id
        assert tokenizer.decode(ids[:-1].tolist(), skip_special_tokens=False) in texts[source, document_id]
        num_checked += 1
    assert num_checked > 20


def kept_texts(dataset: Dataset) -> dict[tuple[str, str], list[str]]:
    """Cleaned texts by (source, id), from the build's intermediate documents."""
    texts: dict[tuple[str, str], list[str]] = {}
    for path in sorted(Path(dataset.root, ".build", "read").glob("*.json")):
        result = json.loads(path.read_text())
        source = result["inputs"][0][0]
        for file in result["files"]:
            if file.endswith(".parquet") and "quarantine" not in file:
                table = pq.read_table(file, columns=["id", "text"])
                for document_id, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
                    texts.setdefault((source, document_id), []).append(text)
    return texts


def whole_documents(dataset: Dataset, split: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """(source, id, tokens) of documents that lie in one shard as a whole, found by lineage."""
    manifest = dataset.manifest
    for shard in manifest.splits[split].shards:
        tokens = view_examples(Path(dataset.resolve(shard.path)).read_bytes(), manifest.example).ravel()
        lineage = read_lineage(dataset.resolve(shard.path.replace("shards/", "lineage/").replace(".tar", ".parquet")))
        for row in lineage.to_pylist():
            if row["document_offset"] == 0 and row["ends"]:
                start = row["first_example"] * manifest.example.seq_len + row["first_token"]
                yield row["source"], row["document_id"], tokens[start : start + row["num_tokens"]]


def test_eos_stands_once_a_document_and_nowhere_else(calm: Dataset) -> None:
    for split, entry in calm.manifest.splits.items():
        eos = int(np.count_nonzero(stream_of(calm, split) == calm.manifest.tokenizer.eos_id))
        assert eos == entry.num_documents


def test_a_weight_of_one_and_a_half_repeats_about_half_of_the_documents(calm: Dataset) -> None:
    lineage = pa.concat_tables(
        [
            read_lineage(calm.resolve(shard.path.replace("shards/", "lineage/").replace(".tar", ".parquet")))
            for shard in calm.manifest.splits["train"].shards
        ]
    )
    tickets = [row for row in lineage.to_pylist() if row["source"] == "tickets" and row["ends"]]
    first, second = (sum(row["repeat"] == repeat for row in tickets) for repeat in (0, 1))
    assert {row["repeat"] for row in lineage.to_pylist() if row["source"] != "tickets"} == {0}
    assert {row["repeat"] for row in tickets} == {0, 1}
    assert 0.4 < second / first < 0.6


def test_gnu_tar_lists_a_shard_with_constant_fields(calm: Dataset) -> None:
    shard = calm.manifest.splits["train"].shards[0]
    listing = subprocess.run(
        ["tar", "--list", "--verbose", "--numeric-owner", "--utc", "--file", calm.resolve(shard.path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout.splitlines()
    assert len(listing) == shard.num_examples
    assert listing[0].split() == ["-rw-r--r--", "0/0", "384", "1970-01-01", "00:00", "v1-000000-00000000.tokens.npy"]


def test_stock_webdataset_reads_the_same_tokens(calm: Dataset) -> None:
    shard = calm.manifest.splits["train"].shards[1]
    path = calm.resolve(shard.path)
    rows = [sample["tokens.npy"] for sample in webdataset.WebDataset(path, shardshuffle=False).decode()]
    assert np.array_equal(np.stack(rows), view_examples(Path(path).read_bytes(), calm.manifest.example))


def test_two_workers_another_hash_seed_and_reversed_paths_give_the_same_bytes(
    calm: Dataset, config_file: ConfigFile, run_build: Build, tmp_path: Path, repository: Path
) -> None:
    sample = repository / "examples" / "sample"
    pages = sorted(str(path) for path in (sample / "tickets").iterdir())
    sources = [
        {"name": "tickets", "paths": pages[::-1], "preset": "tickets", "weight": 1.5},
        {"name": "mail", "paths": [str(sample / "mail" / "*.parquet")], "preset": "correspondence"},
        {"name": "docs", "paths": [str(sample / "docs")], "preset": "documentation", "priority": 1},
    ]
    result = run_build(config_file(tmp_path / "data", workers=2, sources=sources), PYTHONHASHSEED="2")
    assert result.returncode == 0, result.stderr
    other = load(last_line(result.stdout))
    assert other.manifest.digest == calm.manifest.digest
    assert data_of(Path(other.root)) == data_of(Path(calm.root))


def test_a_second_run_finds_everything_done_and_changes_nothing(
    calm: Dataset, config_file: ConfigFile, run_build: Build
) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(calm.root, "shards").rglob("*.tar")}
    manifest = Path(calm.url).read_bytes()
    result = run_build(config_file(calm.root, workers=2))
    assert result.returncode == 0, result.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert Path(calm.url).read_bytes() == manifest


def test_killed_at_any_moment_and_run_again_it_ends_with_the_same_bytes(
    calm: Dataset, config_file: ConfigFile, run_build: Build, tmp_path: Path, repository: Path
) -> None:
    """A SIGKILL at every stage: as soon as a stage's first result appears, the driver dies, and its Ray with it."""
    root = tmp_path / "data"
    config = config_file(root, workers=2)
    for stage in ("read", "exact", "sign", "verify", "settle", "deduplicate", "encode", "write"):
        driver = subprocess.Popen(
            [sys.executable, str(repository / "pipeline" / "build.py"), str(config)],
            cwd=repository,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for_result(root / ".build" / stage, driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert not (root / "manifests" / "v1.json").exists()
    result = run_build(config)
    assert result.returncode == 0, result.stderr
    assert load(last_line(result.stdout)).manifest.digest == calm.manifest.digest
    assert data_of(root) == data_of(Path(calm.root))


def wait_for_result(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Return once a stage's first result is there; fail when the build ends before, or after two minutes."""
    end = time.monotonic() + 120
    while not any(folder.glob("*.json")):
        assert process.poll() is None, f"the build ended with {process.returncode} before the moment to kill it"
        assert time.monotonic() < end, "the moment to kill the build never came"
        time.sleep(0.005)  # a poll of the file system; the deadline above decides


def test_a_changed_input_is_noticed_and_other_content_never_takes_an_existing_version(
    config_file: ConfigFile, run_build: Build, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number in range(4):
        (corpus / f"{number}.jsonl").write_text(
            "".join(json.dumps({"id": i, "text": f"document {number} {i} " + "слово " * i}) + "\n" for i in range(60)),
            encoding="utf-8",
        )
    changes = {"sources": [{"name": "a", "paths": [str(corpus)]}], "validation": {"fraction": 0}, "workers": 2}
    root = tmp_path / "data"
    first = run_build(config_file(root, **changes))
    assert first.returncode == 0, first.stderr
    before = files_below(root / "shards")

    (corpus / "2.jsonl").write_text('{"id": 0, "text": "another text altogether"}\n', encoding="utf-8")
    refused = run_build(config_file(root, **changes))
    assert refused.returncode == 2
    assert "version: v1 exists already with other content (digest.inputs was" in last_line(refused.stderr)
    assert files_below(root / "shards") == before

    second = run_build(config_file(root, version="v2", **changes))
    fresh = run_build(config_file(tmp_path / "fresh", version="v2", **changes))
    assert second.returncode == fresh.returncode == 0, second.stderr + fresh.stderr
    assert load(last_line(second.stdout)).manifest.digest == load(last_line(fresh.stdout)).manifest.digest
    assert load(last_line(second.stdout)).manifest.digest != load(last_line(first.stdout)).manifest.digest
    assert files_below(root / "shards" / "train").keys() >= {"v1-000000.tar", "v2-000000.tar"}


def test_another_tokenizer_never_takes_an_existing_version_either(
    calm: Dataset, config_file: ConfigFile, run_build: Build, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"id": {i}, "text": "one two three {i}"}}\n' for i in range(300)), encoding="utf-8")
    other = tmp_path / "tokenizer.json"
    other.write_bytes(train_tokenizer(["four five six"], 300))
    root = tmp_path / "data"
    changes = {"sources": [{"name": "a", "paths": [str(corpus)]}], "example": {"seq_len": 16}}
    own = calm.resolve(calm.manifest.tokenizer.path)
    first = run_build(config_file(root, tokenizer={"path": own}, **changes))
    assert first.returncode == 0, first.stderr
    before = files_below(root)
    second = run_build(config_file(root, tokenizer={"path": str(other)}, **changes))
    assert second.returncode == 2
    assert "version: v1 exists already with other content (digest.tokenizer was" in second.stderr
    assert files_below(root) == before


def test_a_file_that_changes_under_the_build_ends_it_with_one_line(
    config_file: ConfigFile, tmp_path: Path, repository: Path
) -> None:
    """The file grows after it was listed, before a Ray worker can have been started to read it."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "one"}\n', encoding="utf-8")
    config = config_file(tmp_path / "data", sources=[{"name": "a", "paths": [str(corpus)]}])
    build = subprocess.Popen(
        [sys.executable, str(repository / "pipeline" / "build.py"), str(config)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=repository,
    )
    assert build.stderr is not None
    assert build.stderr.readline() == "found 1 files, 0.0 MB, in 1 sources\n"
    with corpus.open("a", encoding="utf-8") as file:
        file.write('{"text": "two"}\n')
    _, rest = build.communicate(timeout=300)
    assert build.returncode == 2
    assert "corpus.jsonl changed while it was read" in last_line(rest)
    assert "Traceback" not in rest


def test_too_many_bad_records_stop_the_build_and_say_where_to_look(
    config_file: ConfigFile, run_build: Build, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'{"text": "good"}\n' * 100 + b"{broken\n" * 20 + b'{"txt": 1}\n' * 3)
    root = tmp_path / "data"
    result = run_build(config_file(root, sources=[{"name": "logs", "paths": [str(bad)]}]))
    assert result.returncode == 2
    assert last_line(result.stderr) == (
        "error: bad_records.budget_fraction: source logs has 23 unreadable of 123 records, 10 are allowed"
        f" (invalid_json 20, missing_field 3): see {root}/quarantine/v1, then mend the files or raise the budget"
    )
    rows = pq.read_table(root / "quarantine" / "v1" / "logs-000000.parquet").to_pylist()
    assert (rows[0]["file"], rows[0]["place"], rows[0]["first_bytes"]) == ("bad.jsonl", "line 101", b"{broken")
    assert not (root / "manifests").exists()


def test_a_corpus_of_nothing_ends_well(config_file: ConfigFile, run_build: Build, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "blank.jsonl").write_bytes(b'{"text": ""}\n{"text": null}\n{"text": " \\n"}\n')
    result = run_build(config_file(tmp_path / "data", sources=[{"name": "none", "paths": [str(tmp_path / "*.jsonl")]}]))
    assert result.returncode == 0, result.stderr
    manifest = load(last_line(result.stdout)).manifest
    assert {name: split.num_shards for name, split in manifest.splits.items()} == {"train": 0, "validation": 0}
    assert [(row.stage, row.reason, row.num_documents) for row in manifest.funnel] == [
        ("read", None, 3),
        ("filter", "empty.blank", 2),
        ("filter", "empty.null", 1),
        ("kept", None, 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.yaml"], "missing.yaml"),
        (["examples/demo.yaml", "--set", "exampel.seq_len=5"], 'did you mean "example"?'),
        (["examples/demo.yaml", "--set", "example.seq_len=many"], "example.seq_len"),
        (["examples/demo.yaml", "--set", "sources.0.paths=[nowhere/*.jsonl]"], "nowhere/*.jsonl"),
        (
            ["examples/demo.yaml", "--set", "tokenizer.train=null", "--set", "tokenizer.path=nowhere.json"],
            "nowhere.json",
        ),
        (["examples/demo.yaml", "--input", "x"], "--input"),
        (["examples/demo.yaml", "--dry"], "unrecognized arguments: --dry"),
        (["examples/demo.yaml", "--set", "filters=3"], "filters: 3 is neither a preset's name nor a list"),
        (["examples/demo.yaml", "--set", "sources.0.weight=1e30"], "sources.0.weight"),
        (["examples/demo.yaml", "--set", "ray.address=127.0.0.1:1"], "ray.address: no Ray answers at 127.0.0.1:1"),
        (["examples/demo.yaml", "--set", "output=examples/sample/docs/out"], "examples/sample/docs, which source docs"),
        (["examples/demo.yaml", "--set", "output=README.md"], "README.md is a file"),
        (["--input", "x"], "--output"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    run_build: Build, tmp_path: Path, arguments: list[str], message: str
) -> None:
    if arguments[0] == "examples/demo.yaml":
        arguments = [arguments[0], "--set", f"output={tmp_path / 'data'}", *arguments[1:]]
    result = run_build(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in last_line(result.stderr)
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_without_arguments_it_shows_an_example(run_build: Build) -> None:
    result = run_build()
    assert (result.returncode, result.stdout) == (2, "")
    assert "python pipeline/build.py examples/demo.yaml" in result.stderr


def test_a_dry_run_tells_files_bytes_and_tasks_and_writes_nothing(
    config_file: ConfigFile, run_build: Build, tmp_path: Path
) -> None:
    result = run_build(config_file(tmp_path / "data"), "--dry-run")
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "data").exists()
    [total] = [line.split() for line in result.stdout.splitlines() if line.startswith("total")]
    assert int(total[1]) > 20
    assert float(total[2]) > 0.3
    assert total[3] == "3"


def test_a_first_try_without_a_file(run_build: Build, repository: Path, tmp_path: Path) -> None:
    result = run_build("--input", repository / "examples" / "sample" / "docs" / "pages", "--output", tmp_path / "first")
    assert result.returncode == 0, result.stderr
    assert load(last_line(result.stdout)).manifest.name == "first"
