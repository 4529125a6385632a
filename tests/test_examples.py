"""examples/: every config is accepted by the program that reads it, and the bundled sample is what its README says."""

import dataclasses
import gzip
import json
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SAMPLE = EXAMPLES / "sample"

BUILD_CONFIGS = ["cluster.yaml", "demo.yaml", "local.yaml", "s3.yaml"]
TRAIN_CONFIGS = ["demo_train.yaml", "train.yaml"]

# As in the table of sample/README.md: records, and kilobytes of text (1,000 bytes, rounded).
COUNTS = {
    "docs/pages/tarantool/": (53, 198),
    "docs/tarantool.jsonl.zst": (81, 433),
    "docs/pages/python/": (7, 47),
    "docs/debian_advisories.jsonl.zst": (250, 266),
    "mail/debian_news.parquet": (136, 645),
    "tickets/it_service_tickets.jsonl.gz": (1504, 417),
    "tickets/math_educators.jsonl.gz": (229, 275),
}


def read_lines(path: Path) -> list[bytes]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else zstandard.ZstdDecompressor().stream_reader(data).read()
    return text.removesuffix(b"\n").split(b"\n")


def read_sample(name: str) -> list[dict[str, Any] | None]:
    """The records of one row of the README's table; None for a line that is not JSON."""
    path = SAMPLE / name
    if path.is_dir():
        return [{"text": page.read_text(encoding="utf-8")} for page in sorted(path.rglob("*")) if page.is_file()]
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    records: list[dict[str, Any] | None] = []
    for line in read_lines(path):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            records.append(None)
    return records


def dotted_keys(values: Any, prefix: str = "") -> set[str]:
    """Keys of nested mappings as `a.b`; of a list of mappings, those of its first entry."""
    if isinstance(values, list):
        return dotted_keys(values[0], prefix) if values and isinstance(values[0], dict) else {prefix.rstrip(".")}
    if not isinstance(values, dict):
        return {prefix.rstrip(".")}
    return {key for name, value in values.items() for key in dotted_keys(value, f"{prefix}{name}.")}


def config_keys(config: type, prefix: str = "") -> set[str]:
    """Keys that a config class takes, as `a.b`, from its fields and theirs."""
    keys = set()
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        inner = [hints[field.name], *typing.get_args(hints[field.name])]
        nested = [kind for kind in inner if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
        name = f"{prefix}{field.name}"
        keys |= config_keys(nested[0], f"{name}.") if nested else {name}
    return keys


def test_every_example_is_tried_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.yaml")) == sorted(BUILD_CONFIGS + TRAIN_CONFIGS)


@pytest.mark.parametrize("name", BUILD_CONFIGS)
def test_the_build_accepts(name: str) -> None:
    from pipeline.config import load_config

    assert load_config(EXAMPLES / name).version == "v1"


@pytest.mark.parametrize("name", TRAIN_CONFIGS)
def test_the_trainer_accepts(name: str) -> None:
    from trainer.config import load_config

    assert load_config(EXAMPLES / name, []).global_batch is not None


def test_the_local_example_shows_every_key_of_a_build() -> None:
    from pipeline.config import BuildConfig

    shown = dotted_keys(yaml.safe_load((EXAMPLES / "local.yaml").read_text()))
    # Given in a comment: it stands instead of `train`.
    assert config_keys(BuildConfig) - shown == {"tokenizer.path"}


def test_the_training_example_shows_every_key_of_a_run() -> None:
    from trainer.config import TrainConfig

    shown = dotted_keys(yaml.safe_load((EXAMPLES / "train.yaml").read_text()))
    # Given in a comment: it stands instead of `path`.
    assert config_keys(TrainConfig) - shown == {"model.config"}


@pytest.mark.parametrize("name", ["local.yaml", "train.yaml"])
def test_defaults_named_in_the_comments_are_the_programs(name: str) -> None:
    from pipeline.config import BuildConfig
    from trainer.config import TrainConfig

    defaults = plain_defaults(BuildConfig if name == "local.yaml" else TrainConfig)
    stated = stated_defaults((EXAMPLES / name).read_text())
    wrong = {
        key: (text, defaults[key]) for key, text in stated.items() if key in defaults and not agree(text, defaults[key])
    }
    assert wrong == {}
    assert len(stated.keys() & defaults.keys()) >= 8


def stated_defaults(text: str) -> dict[str, str]:
    """`a: 1  # default X` and `b:` over `  c: 1  # default X` as {"a": X, "b.c": X}; deeper keys are left out."""
    found = {}
    section = ""
    for line in text.splitlines():
        if key := re.match(r"(|  )(\w+):", line):
            section = section if key[1] else key[2]
            if stated := re.search(r"#.*\bdefault ([^\s:;,]+)", line):
                found[f"{section}.{key[2]}" if key[1] else key[2]] = stated[1]
    return found


def agree(text: str, default: Any) -> bool:
    if "<" in text or not isinstance(default, bool | int | float | str | None):
        return True  # described, not spelled: runs/<name>-<version>, [] for an empty tuple
    value = yaml.safe_load(text)
    # YAML 1.1 takes 3e-4 for text, as it has no dot.
    return float(value) == default if isinstance(default, float) else value == default


def plain_defaults(config: type, prefix: str = "") -> dict[str, Any]:
    """`a.b` -> default, for the fields of a config class that have one."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        name = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(hints[field.name]):
            found |= plain_defaults(typing.cast(type, hints[field.name]), f"{name}.")
        elif field.default is not dataclasses.MISSING:
            found[name] = field.default
    return found


def test_the_sample_holds_what_its_readme_says() -> None:
    readme = (SAMPLE / "README.md").read_text()
    total = 0
    for name, (num_records, num_kilobytes) in COUNTS.items():
        records = read_sample(name)
        num_bytes = sum(len(record["text"].encode()) for record in records if record)
        total += num_bytes
        assert (len(records), round(num_bytes / 1000)) == (num_records, num_kilobytes)
        row = next(line for line in readme.splitlines() if line.startswith(f"| {name} "))
        assert f"| {num_records:,} | {num_kilobytes} |" in row
    assert round(total / 1e6, 1) == 2.3
    assert f"2.3 MB of real text, English and Russian, {sum(n for n, _ in COUNTS.values()):,} records" in readme


def test_every_file_of_the_sample_is_in_its_readmes_table() -> None:
    files = [
        path.relative_to(SAMPLE).as_posix()
        for kind in ("docs", "tickets", "mail")
        for path in (SAMPLE / kind).rglob("*")
    ]
    unlisted = [name for name in files if not name.startswith(tuple(COUNTS)) and (SAMPLE / name).is_file()]
    assert unlisted == []


def test_every_licence_text_the_readme_points_to_is_there() -> None:
    pointed = set(re.findall(r"\(LICENSES/([^)]+)\)", (SAMPLE / "README.md").read_text()))
    assert pointed == {path.name for path in (SAMPLE / "LICENSES").iterdir()}
    assert pointed == {"BSD-2-Clause.tarantool.txt", "MIT.debian.txt", "PSF-2.0.python.txt"}


def test_debian_text_is_from_the_time_of_the_mit_licence() -> None:
    advisories = [record["created"] for record in read_sample("docs/debian_advisories.jsonl.zst") if record]
    news = [record["created"].isoformat() for record in read_sample("mail/debian_news.parquet") if record]
    assert min(advisories + news) >= "2012-01-25"


def test_every_post_names_its_author_and_its_place() -> None:
    for record in read_sample("tickets/math_educators.jsonl.gz"):
        assert record is not None
        assert record["url"].startswith("https://matheducators.stackexchange.com/")
        assert record["author"] != ""


def test_one_line_is_broken_and_one_ticket_comes_twice() -> None:
    tickets = read_sample("tickets/it_service_tickets.jsonl.gz")
    ids = [record["id"] for record in tickets if record]
    assert tickets.count(None) == 1
    assert len(ids) - len(set(ids)) == 1


def test_the_sample_has_russian_and_english_in_documentation_and_mail() -> None:
    for name in ("docs/debian_advisories.jsonl.zst", "mail/debian_news.parquet"):
        languages = [record["lang"] for record in read_sample(name) if record]
        assert languages.count("ru") == languages.count("en") == len(languages) // 2


def test_the_script_still_makes_this_sample(corpus_dir: Path, tmp_path: Path) -> None:
    shutil.copy(SAMPLE / "make_sample.py", tmp_path)
    subprocess.run([sys.executable, str(tmp_path / "make_sample.py"), str(corpus_dir)], check=True)
    for name in COUNTS:
        path = tmp_path / name
        if path.is_dir():
            made = {page.relative_to(path): page.read_bytes() for page in path.rglob("*") if page.is_file()}
            assert made == {page: (SAMPLE / name / page).read_bytes() for page in made}
        elif path.suffix == ".parquet":
            assert pq.read_table(path).equals(pq.read_table(SAMPLE / name))
        else:
            # Lines, not files: another release of zlib or zstd packs the same lines into other bytes.
            assert read_lines(path) == read_lines(SAMPLE / name)
