"""The build's config: its keys, its checks, and what of it decides the data (reading YAML: test_yaml_config.py)."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from manifests.canonical import canonical_json
from manifests.errors import UserError
from manifests.yaml_config import ConfigError
from pipeline.config import (
    BuildConfig,
    describe_config,
    determining,
    from_arguments,
    load_config,
    parse,
    resolved_filters,
)
from pipeline.redaction import RULES

MINIMAL = """
name: demo
output: out
sources:
  - name: docs
    paths: [corpus/docs]
tokenizer:
  train: {vocab_size: 1000}
"""


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str, *overrides: str) -> BuildConfig:
        (tmp_path / "corpus.yaml").write_text(text, encoding="utf-8")
        return load_config(tmp_path / "corpus.yaml", overrides)

    return load


def message(load: Any, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(text, *overrides)
    assert isinstance(error.value, UserError)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_minimal_config_is_filled_in_with_the_defaults(load):
    config = load(MINIMAL)
    values = dataclasses.asdict(config)
    assert values == {
        "name": "demo",
        "version": "v1",
        "seed": 0,
        "output": "out",
        "sources": (
            {
                "name": "docs",
                "paths": ("corpus/docs",),
                "format": "auto",
                "text": "text",
                "id": "id",
                "date": None,
                "encoding": None,
                "markup": None,
                "weight": 1.0,
                "priority": 0,
                "clean": None,
                "preset": None,
            },
        ),
        "clean": {
            "unicode": "nfc",
            "control_characters": "remove",
            "newlines": "unify",
            "zero_width": "remove",
            "mojibake": "keep",
            "quoted_replies": "keep",
            "forwarded_headers": "keep",
            "signatures": "keep",
            "disclaimers": "keep",
        },
        "redact": {"all": False, **dict.fromkeys(rule.name for rule in RULES)},
        "filters": (),
        "base": None,
        "dedup": {
            "exact": True,
            "keep": "smallest_id",
            "near": {
                "enabled": True,
                "ngram": 5,
                "bands": 14,
                "rows": 8,
                "threshold": 0.8,
                "templates": {"enabled": True, "fraction": 0.02, "min_documents": 100},
            },
        },
        "tokenizer": {"path": None, "train": {"vocab_size": 1000}, "engine": "auto", "eos": None, "bos": None},
        "example": {"seq_len": 4096, "packing": "concat"},
        "shards": {"max_bytes": 256_000_000},
        "validation": {"fraction": 0.005},
        "bad_records": {"budget_fraction": 0.001},
        "ray": {"address": None, "num_cpus": None},
        "workers": None,
    }


def test_set_changes_one_value_as_yaml_and_makes_stages_the_file_leaves_out(load):
    config = load(
        MINIMAL, "seed=7", "sources.0.weight=2", "dedup.near.threshold=0.7", "ray.address=null", "example.seq_len=512"
    )
    assert (config.seed, config.sources[0].weight, config.dedup.near.threshold) == (7, 2.0, 0.7)
    assert config.example.seq_len == 512


def test_set_takes_lists_and_texts_with_equals_signs(load):
    config = load(MINIMAL, "sources.0.paths=[a=b, 'c d']", "tokenizer={path: t=1.json}")
    assert config.sources[0].paths == ("a=b", "c d")
    assert config.tokenizer.path == "t=1.json"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed", '--set: "seed" is not of the form key=value: write, for example, seed=7'),
        ("=7", '--set: "=7" is not of the form key=value: write, for example, seed=7'),
        ("sources.1.weight=2", 'sources: holds 1 items and "1" is none of them: use 0 to 0'),
        ("sources.x=2", 'sources: holds 1 items and "x" is none of them: use 0 to 0'),
        ("name.x=2", "name: is 'demo' and has no \"x\" inside: set name as a whole"),
        ("seed=[", "--set seed: line 1, column 2: expected the node content, but found '<stream end>'"),
        ("sede=7",
         'sede: there is no such key; did you mean "seed"? known: bad_records, base, clean, dedup, example, filters, '
         "name, output, ray, redact, seed, shards, sources, tokenizer, validation, version, workers"),
        ("dedup.near.treshold=0.5",
         'dedup.near.treshold: there is no such key; did you mean "threshold"? known: bands, '
         "enabled, ngram, rows, templates, threshold"),
        ("sources.0.path=x",
         'sources.0.path: there is no such key; did you mean "paths"? known: clean, date, encoding, format, id, '
         "markup, name, paths, preset, priority, text, weight"),
        ("seed=true", "seed: is the truth value true, expected a whole number"),
        ('seed="5"', "seed: is the text '5', expected a whole number"),
        ("seed=1.0", "seed: is the number 1.0, expected a whole number"),
        ("seed=010", "seed: is the number 10.0, expected a whole number"),
        ("seed=-1", "seed: is -1, allowed: 0 to 2**63 - 1"),
        ("version=1", "version: is the number 1, expected text (quote it if it looks like a number)"),
        ("version=v1.2", "version: is 'v1.2', allowed: 1 to 40 letters, digits, - and _ (no dots, it names files)"),
        ("dedup.exact=1", "dedup.exact: is the number 1, expected true or false"),
        ("dedup.exact=yes", "dedup.exact: is the text 'yes', expected true or false"),
        ("dedup.near.threshold=.nan", "--set dedup.near.threshold: line 1, column 1: .nan is not a finite number"),
        ("dedup.near.threshold=0", "dedup.near.threshold: is 0.0, allowed: above 0, up to 1"),
        ("dedup.near.threshold=1.01", "dedup.near.threshold: is 1.01, allowed: above 0, up to 1"),
        ("dedup.near.rows=0", "dedup.near.rows: is 0, allowed: 1 or more"),
        ("dedup=5", "dedup: is the number 5, expected keys with values"),
        ("sources.0.format=xml",
         "sources.0.format: is the text 'xml', expected one of auto, jsonl, json, parquet, csv, text, html, mbox, eml"),
        ("sources.0.paths=x", "sources.0.paths: is the text 'x', expected a list: write [x]"),
        ("sources.0.paths=[]", "sources.0.paths: is [], allowed: at least one path"),
        ("sources.0.paths=[1]",
         "sources.0.paths.0: is the number 1, expected text (quote it if it looks like a "
         "number)"),
        ("sources.0.weight=0", "sources.0.weight: is 0.0, allowed: above 0, up to 1000 (to leave it out, remove it)"),
        ("sources.0.name=a b",
         "sources.0.name: is 'a b', allowed: 1 to 40 letters, digits, - and _ (no dots, it names "
         "files)"),
        ("sources=[]", "sources: is [], allowed: at least one source"),
        ("tokenizer.path=x.json", "tokenizer: both path and train are set: give path (a tokenizer.json) or train (with "
         "vocab_size), exactly one"),
        ("tokenizer={}", "tokenizer: neither path nor train is set: give path (a tokenizer.json) or train (with "
         "vocab_size), exactly one"),
        ("tokenizer.train.vocab_size=5", "tokenizer.train.vocab_size: is 5, allowed: 300 to 1000000"),
        ("tokenizer.engine=fast", "tokenizer.engine: is the text 'fast', expected one of auto, reference"),
        ("example.seq_len=1",
         "example.seq_len: is 1, allowed: 2 or more (a model predicts each token from those before "
         "it)"),
        ("shards.max_bytes=9000",
         "shards.max_bytes: is 9000, but one example of example.seq_len 4096 alone makes a shard of "
         "10240 bytes: raise max_bytes or lower seq_len"),
        ("validation.fraction=1", "validation.fraction: is 1.0, allowed: 0 up to, not including, 1"),
        ("workers=0", "workers: is 0, allowed: 1 or more, or null"),
        ("workers=many", "workers: is the text 'many', expected a whole number or null"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_value_and_remedy(load, override, expected):
    assert message(load, MINIMAL, override) == expected


def test_missing_keys_are_named_with_what_they_mean(load):
    assert message(load, "name: x\noutput: y\n") == "sources: is missing: the input, a list of sources"
    assert message(load, MINIMAL.replace("    paths: [corpus/docs]\n", "")).startswith(
        "sources.0.paths: is missing: files,"
    )


def test_two_sources_of_one_name_are_refused(load):
    text = MINIMAL.replace("tokenizer:", "  - name: docs\n    paths: [x]\ntokenizer:")
    assert message(load, text) == 'sources.1.name: "docs" already names sources.0: rename one, or join their paths'


def test_a_file_that_holds_nothing_is_pointed_to_an_example(load, tmp_path):
    assert message(load, "") == f"{tmp_path}/corpus.yaml: holds no keys: a config starts with `name:`; see examples/"


def test_a_number_or_a_word_of_yaml_1_1_means_what_it_says(load):
    text = MINIMAL.replace("name: demo", "name: no").replace("output: out", "output: 2024-01-01")
    config = load(text + "version: on\nvalidation: {fraction: 1e-3}\nshards: {max_bytes: 100_000_000}\nclean:\n")
    assert (config.name, config.version, config.output) == ("no", "on", "2024-01-01")
    assert config.validation.fraction == 0.001
    assert config.shards.max_bytes == 100_000_000
    assert config.clean.unicode == "nfc"


def test_filters_are_checked_against_the_filters_there_are(load):
    assert load(MINIMAL, "filters=documentation", "sources.0.preset=tickets").sources[0].preset == "tickets"
    assert message(load, MINIMAL, "filters=documentatoin").startswith("filters: ")
    assert message(load, MINIMAL, "filters=[lenght]").startswith("filters: ")
    assert message(load, MINIMAL, "sources.0.preset=tikets").startswith("sources.0.preset: ")


def test_a_sources_preset_takes_the_place_of_the_common_filters(load):
    config = load(MINIMAL, "filters=gopher", "sources=[{name: a, paths: [x]}, {name: b, paths: [y], preset: none}]")
    assert resolved_filters(config, config.sources[0])
    assert not resolved_filters(config, config.sources[1])


def test_what_determines_the_data_leaves_out_where_and_how(load):
    base = determining(load(MINIMAL))
    for override in [
        "output=elsewhere",
        "workers=3",
        "ray.num_cpus=2",
        "bad_records.budget_fraction=1",
        "sources.0.paths=[moved]",
        "sources.0.date=written",  # nobody looks at it, unless the newest is to stay
    ]:
        assert canonical_json(determining(load(MINIMAL, override))) == canonical_json(base), override
    for override in [
        "seed=1",
        "dedup.exact=false",
        "dedup.keep=newest",
        "filters=gopher",
        "clean.unicode=none",
        "example.seq_len=8",
        "version=v2",
    ]:
        assert canonical_json(determining(load(MINIMAL, override))) != canonical_json(base), override


def test_where_the_newest_stays_the_field_of_dates_determines_the_data(load):
    one, other = (determining(load(MINIMAL, "dedup.keep=newest", f"sources.0.date={name}")) for name in ("a", "b"))
    assert canonical_json(one) != canonical_json(other)


def test_what_determines_the_data_does_not_depend_on_the_order_of_sources_or_where_the_tokenizer_lies(load):
    sources = ["{name: a, paths: [x]}", "{name: b, paths: [y], weight: 2}"]
    one = load(MINIMAL, f"sources=[{', '.join(sources)}]", "tokenizer={path: a/t.json}")
    other = load(MINIMAL, f"sources=[{', '.join(reversed(sources))}]", "tokenizer={path: b/t.json}")
    assert canonical_json(determining(one)) == canonical_json(determining(other))


def test_a_preset_is_written_out_with_its_thresholds(load):
    (source,) = determining(load(MINIMAL, "filters=gopher"))["sources"]
    assert source["filters"]
    assert all(isinstance(settings, dict) and settings for entry in source["filters"] for settings in entry.values())


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("out", "out"),
        ("/data/my set/", "my-set"),
        ("s3://bucket/support.corpus", "support-corpus"),
        ("s3://bucket", "bucket"),
        ("данные", "dataset"),
        ("/", "dataset"),
        ("x" * 60, "x" * 40),
    ],
)
def test_a_first_try_needs_input_and_output_alone(output, name):
    config = from_arguments(["a.jsonl", "folder"], output)
    assert config.name == name
    assert config.output == output
    assert [(source.name, source.paths) for source in config.sources] == [("input", ("a.jsonl", "folder"))]
    assert config.tokenizer.train is not None
    assert config.tokenizer.train.vocab_size == 8192
    assert from_arguments(["a"], "b", "t.json").tokenizer.path == "t.json"


def test_help_names_every_key_with_its_default():
    lines = describe_config(120).splitlines()
    for start in [
        "  name (required) ",
        "  seed = 0 ",
        "  sources.N.weight = 1 ",
        "  dedup.near.threshold = 0.8 ",
        "  tokenizer.train = null ",
        "  tokenizer.train.vocab_size (required) ",
        "  shards.max_bytes = 256000000 ",
        "  workers = null ",
    ]:
        assert sum(line.startswith(start) for line in lines) == 1, start


def test_a_config_travels_between_processes(load):
    config = load(MINIMAL, "filters=[length]")
    assert pickle.loads(pickle.dumps(config)) == config


def test_plain_values_are_taken_as_a_config_too():
    values = {"name": "n", "output": "o", "sources": [{"name": "s", "paths": ["p"]}], "tokenizer": {"path": "t"}}
    assert parse(values).sources[0].paths == ("p",)


def test_a_misspelt_key_is_told_before_another_that_is_missing() -> None:
    with pytest.raises(ConfigError, match=r'sources\.0\.pats: there is no such key; did you mean "paths"'):
        parse({"name": "x", "output": "out", "sources": [{"name": "a", "pats": ["x"]}]})  # no tokenizer either
