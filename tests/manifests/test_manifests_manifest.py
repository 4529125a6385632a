import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests import (
    CanonicalError,
    ExampleFormat,
    FunnelRow,
    Manifest,
    ManifestError,
    ShardEntry,
    Split,
    TokenizerEntry,
    UserError,
    load,
    save,
    storage,
)
from manifests.manifest import to_bytes
from tests.manifests.manifest_samples import DOCUMENTS, FORMAT, build, manifest_of


def shard(number: int = 0, num_examples: int = 3) -> ShardEntry:
    return ShardEntry(
        path=f"shards/train/v1-{number:06d}.tar",
        sha256="ab" * 32,
        num_bytes=FORMAT.shard_num_bytes(num_examples),
        num_examples=num_examples,
        num_tokens=num_examples * FORMAT.seq_len,
        num_documents=2,
    )


def sample() -> Manifest:
    return manifest_of(Split.of([shard(0), shard(1)], seq_len=FORMAT.seq_len))


def changed(path: str, value: object) -> dict:
    """The sample's JSON with one value replaced, by dotted path; `...` removes it."""
    manifest = json.loads(to_bytes(sample()))
    *folders, last = path.split(".")
    place = manifest
    for folder in folders:
        place = place[int(folder) if folder.isdigit() else folder]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return manifest


def test_a_manifest_is_saved_and_loaded_on_any_storage(any_root):
    url = save(sample(), any_root)
    assert url == f"{any_root}/manifests/v1.json"
    dataset = load(url)
    assert dataset.manifest == sample()
    assert dataset.root == any_root
    assert dataset.resolve("shards/x.tar") == f"{any_root}/shards/x.tar"
    assert dataset.resolve("s3://other/x.tar") == "s3://other/x.tar"


def test_a_relative_path_is_loaded_from_where_the_user_stands(tmp_path, monkeypatch):
    save(sample(), str(tmp_path))
    monkeypatch.chdir(tmp_path / "manifests")
    assert load("v1.json").root == str(tmp_path)


def test_the_file_has_sorted_keys_two_spaces_utf8_and_a_last_newline():
    manifest = replace(sample(), name="обращения", config={"b": 1, "a": {"ж": 2}})
    lines = to_bytes(manifest).decode("utf-8").split("\n")
    assert lines[:5] == ["{", '  "built": {', '    "seconds": 1.5,', '    "started_at": "2026-11-29T12:00:00Z"', "  },"]
    assert '  "name": "обращения",' in lines
    assert lines[-2:] == ["}", ""]
    keys = list(json.loads(to_bytes(manifest)))
    assert keys == sorted(keys)


def test_the_top_level_keys_are_those_of_the_contract():
    assert set(sample().to_json()) == {
        *("format", "name", "version", "parent", "digest", "tokenizer", "example", "splits", "sources", "funnel"),
        *("inputs", "config", "code", "built"),
    }


def test_code_and_built_are_outside_the_digest_and_everything_else_inside():
    manifest = sample()
    assert replace(manifest, code={"version": "9"}, built={"seconds": 3}).digest == manifest.digest
    for other in (
        replace(manifest, name="other"),
        replace(manifest, version="v2"),
        replace(manifest, config={"seed": 1}),
        replace(manifest, sources={}),
        replace(manifest, tokenizer=replace(manifest.tokenizer, eos_id=2)),
        replace(manifest, example=replace(FORMAT, packing="best_fit")),
    ):
        assert other.digest != manifest.digest


def test_the_order_of_keys_does_not_matter_to_the_digest():
    one, two = shard(0), shard(1)
    parts = {"train": Split.of([one], seq_len=8), "validation": Split.of([two], seq_len=8)}
    turned = {"validation": parts["validation"], "train": parts["train"]}
    assert replace(sample(), splits=parts).digest == replace(sample(), splits=turned).digest


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), max_size=6),
    st.dictionaries(st.text("абв", max_size=3), st.integers() | st.floats(-1, 1)),
)
def test_any_manifest_reads_back_as_it_was_written(counts, config):
    shards = [shard(number, count) for number, count in enumerate(counts)]
    manifest = replace(manifest_of(Split.of(shards, seq_len=FORMAT.seq_len)), config=config)
    assert Manifest.from_json(json.loads(to_bytes(manifest))) == manifest


def test_a_version_is_never_replaced_by_other_data(any_root):
    url = save(sample(), any_root)
    other = replace(sample(), config={"seed": 1})
    with pytest.raises(ManifestError) as caught:
        save(other, any_root)
    assert sample().digest in str(caught.value)
    assert other.digest in str(caught.value)
    assert "give this build another version" in str(caught.value)
    assert load(url).manifest == sample()


def test_the_same_data_may_be_saved_again_and_the_first_build_stays_on_record(tmp_path):
    url = save(sample(), str(tmp_path))
    before = Path(url).read_bytes()
    assert save(replace(sample(), built={"seconds": 99}), str(tmp_path)) == url
    assert Path(url).read_bytes() == before


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("format", "shardmill/2", "format is 'shardmill/2', this program reads 'shardmill/1'"),
        ("note", "hello", r"the manifest has the unknown keys \['note'\]"),
        ("parent", ..., r"the manifest lacks the keys \['parent'\]"),
        ("tokenizer.eos_id", "1", "tokenizer.eos_id is '1': it must be a whole number"),
        ("tokenizer.eos_id", True, "tokenizer.eos_id is True: it must be a whole number"),
        ("tokenizer.eos_id", 1000, "tokenizer: eos_id is 1000, outside the vocabulary of 1000"),
        ("tokenizer.bos_id", -1, "tokenizer: bos_id is -1, outside"),
        ("tokenizer.vocab_size", 70_000, "dtype is uint16, but tokenizer.vocab_size is 70000"),
        ("tokenizer.sha256", "ABC", "tokenizer: sha256 is 'ABC'"),
        ("tokenizer.path", "../../etc/passwd", "tokenizer: path is '../../etc/passwd'"),
        ("example.stride", 1025, "example: example.stride is 1025"),
        ("splits", [], r"splits is \[\]: it must be an object"),
        ("splits.train.num_tokens", 47, "splits.train: num_tokens is 47, but its shards sum to 48"),
        ("splits.train.num_shards", 3, "splits.train: num_shards is 3, but its shards sum to 2"),
        ("splits.train.num_padding_tokens", 1, "48 tokens and 1 of padding do not fill 6 examples of 8"),
        ("splits.train.shards.1.num_bytes", 1, "num_bytes is 8192, but its shards sum to 4097"),
        ("splits.train.shards.1.num_examples", 0, r"splits.train.shards\[1\]: num_examples is 0"),
        ("splits.train.shards.1.num_tokens", -1, r"splits.train.shards\[1\]: num_tokens is -1"),
        ("splits.train.shards.1.path", "shards/train/v1-000000.tar", "splits list shards/train/v1-000000.tar twice"),
        ("splits.train.shards", {}, "splits.train.shards is {}: it must be a list"),
        ("sources.docs.weight", "1", "sources.docs.weight is '1': it must be a number"),
        ("sources.docs.extra", 1, r"sources.docs has the unknown keys \['extra'\]"),
        ("sources.docs", None, "sources.docs is None: it must be an object with the keys"),
        ("funnel.0.reason", 3, r"funnel\[0\].reason is 3: it must be a string"),
        ("funnel.0.stage", "kept", "funnel has two rows of one stage and reason"),
        ("funnel.0.stage", "started", "funnel has 0 rows of the stage 'read'"),
        ("inputs.digest", "sha256:0", "inputs: digest is 'sha256:0'"),
        ("config.seed", 1, "digest is 'sha256:.*, but the content's is 'sha256:.*: the file was changed"),
        ("digest", "sha256:" + "0" * 64, "digest is 'sha256:0000"),
        ("parent", {"version": "v 0", "digest": "sha256:" + "0" * 64}, "parent: version 'v 0' is not a version name"),
    ],
)
def test_what_is_not_a_sound_manifest_is_refused_with_its_place(path, value, said):
    with pytest.raises(UserError, match=said):
        Manifest.from_json(changed(path, value))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"\x93NUMPY", "is not JSON"),
        (b"[1]", "this is not a manifest"),
        (b'{"format": 1, "format": 2}', "the key 'format' stands twice"),
        (b'{"format": NaN}', "it holds NaN"),
        (b"[" * 200_000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_manifest_is_named_with_what_is_wrong(tmp_path, content, said):
    path = tmp_path / "v1.json"
    path.write_bytes(content)
    with pytest.raises(ManifestError, match=said) as caught:
        load(str(path))
    assert str(caught.value).startswith(str(path))


def test_padding_needs_best_fit():
    entry = replace(shard(), num_tokens=20)
    split = Split.of([entry], seq_len=8)
    assert split.num_padding_tokens == 4
    with pytest.raises(ManifestError, match="packing is concat, which pads nothing"):
        manifest_of(split)
    assert (
        replace(sample(), splits={"train": split}, example=replace(FORMAT, packing="best_fit")).splits["train"] == split
    )


def test_a_shards_size_must_follow_from_its_examples():
    entry = replace(shard(), num_bytes=5000)
    with pytest.raises(
        ManifestError, match=r"splits.train.shards\[0\].num_bytes is 5000, but 3 examples of stride 1024 make 4096"
    ):
        manifest_of(Split.of([entry], seq_len=8))


def test_what_json_cannot_hold_is_refused_before_it_is_saved(tmp_path):
    with pytest.raises(CanonicalError, match="threshold is nan"):
        save(replace(sample(), config={"threshold": float("nan")}), str(tmp_path))
    assert storage.list_objects(str(tmp_path)) == []


def test_a_vocabulary_at_the_edge_of_uint16_is_accepted_and_one_past_it_is_not():
    tokenizer = sample().tokenizer
    assert replace(sample(), tokenizer=replace(tokenizer, vocab_size=65_535)).example.dtype == "uint16"
    with pytest.raises(ManifestError, match="such ids need uint32"):
        replace(sample(), tokenizer=replace(tokenizer, vocab_size=65_536))
    wide = ExampleFormat(seq_len=8, dtype="uint32", packing="concat")
    assert ExampleFormat.from_json(wide.to_json()) == wide


def test_tokens_in_no_shard_are_counted(tmp_path):
    manifest = load(build(str(tmp_path))).manifest
    assert sum(document.num_tokens for document in DOCUMENTS) == 61
    assert manifest.splits["train"].num_tokens == 56
    assert manifest.num_dropped_tokens == 5


def test_the_parts_are_exported_as_they_are_used():
    assert isinstance(sample().tokenizer, TokenizerEntry)
    assert isinstance(sample().funnel[0], FunnelRow)
