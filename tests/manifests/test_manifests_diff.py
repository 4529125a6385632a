from dataclasses import replace

import pyarrow as pa

from manifests import INPUTS_SCHEMA, FunnelRow, Parent, Split, load, read_inputs, render
from manifests.diff import Change, SetChange, compare
from tests.manifests.manifest_samples import DOCUMENTS, FORMAT, Document, build, manifest_of


def test_a_version_differs_from_itself_in_nothing(tmp_path):
    dataset = load(build(str(tmp_path)))
    inputs = read_inputs(dataset.resolve(dataset.manifest.inputs.path))
    difference = compare(dataset.manifest, dataset.manifest, inputs, inputs)
    assert difference.is_empty
    assert difference.relation == "same data"
    assert difference.changes == ()
    assert difference.shards == {"train": SetChange(num_kept=2, added=(), removed=(), changed=())}
    assert {group.num_kept for group in difference.inputs.values()} == {3}


def test_who_was_built_from_whom_is_told():
    old = manifest_of(Split.of([], seq_len=8))
    new = replace(manifest_of(Split.of([], seq_len=8), version="v2"), parent=Parent(version="v1", digest=old.digest))
    assert compare(old, new).relation == "new from old"
    assert compare(new, old).relation == "old from new"
    assert compare(old, replace(new, parent=None)).relation == "unrelated"


def test_what_lies_outside_the_digest_is_no_difference():
    manifest = manifest_of(Split.of([], seq_len=8))
    difference = compare(manifest, replace(manifest, code={"version": "9"}, built={}))
    assert difference.is_empty
    assert difference.changes == ()


def changes_of_config(old: dict, new: dict) -> list[tuple]:
    manifest = manifest_of(Split.of([], seq_len=8))
    difference = compare(replace(manifest, config=old), replace(manifest, config=new))
    return [(change.field, change.kind, change.old, change.new) for change in difference.changes]


def test_config_is_compared_leaf_by_leaf():
    old = {"dedup": {"near": {"threshold": 0.8, "ngram": 5}}, "seed": 0, "clean": {}}
    new = {"dedup": {"near": {"threshold": 0.7, "ngram": 5}}, "seed": 0, "filters": ["a", "b"], "clean": {}}
    assert changes_of_config(old, new) == [
        ("config.dedup.near.threshold", "changed", 0.8, 0.7),
        ("config.filters", "added", None, ["a", "b"]),
    ]


def test_named_items_of_a_list_are_compared_by_name():
    old = {"sources": [{"name": "docs", "weight": 1.0}]}
    new = {"sources": [{"name": "chats", "weight": 1.0}, {"name": "docs", "weight": 2.0}]}
    assert changes_of_config(old, new) == [
        ("config.sources.docs.weight", "changed", 1.0, 2.0),
        ("config.sources.chats.name", "added", None, "chats"),
        ("config.sources.chats.weight", "added", None, 1.0),
    ]


def test_values_that_python_calls_equal_and_json_does_not_are_a_change():
    assert changes_of_config({"a": 1, "b": True}, {"a": 1.0, "b": 1}) == [
        ("config.a", "changed", 1, 1.0),
        ("config.b", "changed", True, 1),
    ]


def test_a_value_that_becomes_null_is_changed_not_removed():
    assert changes_of_config({"a": 1}, {"a": None}) == [("config.a", "changed", 1, None)]


def test_funnel_rows_are_compared_by_stage_and_reason():
    old = manifest_of(Split.of([], seq_len=8))
    extra = FunnelRow(stage="near_duplicate", reason=None, num_documents=2, num_bytes=20)
    read = replace(old.funnel[0], num_documents=9)
    difference = compare(old, replace(old, funnel=(read, *old.funnel[1:], extra)))
    assert difference.changes == (
        Change(field="funnel.read.num_documents", kind="changed", old=7, new=9),
        Change(field="funnel.near_duplicate.num_documents", kind="added", old=None, new=2),
        Change(field="funnel.near_duplicate.num_bytes", kind="added", old=None, new=20),
    )


def test_shards_are_told_by_their_content_not_their_path(tmp_path):
    old = load(build(str(tmp_path))).manifest
    first, second = old.splits["train"].shards
    moved = replace(first, path="s3://elsewhere/shards/train/v1-000000.tar")
    other = replace(second, path="shards/train/v2-000000.tar", sha256="0" * 64)
    new = replace(old, version="v2", splits={"train": Split.of([moved, other], seq_len=FORMAT.seq_len)})
    assert compare(old, new).shards == {
        "train": SetChange(
            num_kept=1, added=("shards/train/v2-000000.tar",), removed=("shards/train/v1-000001.tar",), changed=()
        )
    }


def test_input_files_are_told_by_source_and_name_and_compared_by_content():
    def table(*rows: tuple[str, str, str]) -> pa.Table:
        fields = ("source", "name", "identity")
        rest = {"path": "/x", "num_bytes": 1, "num_records": 1}
        return pa.Table.from_pylist([dict(zip(fields, row, strict=True)) | rest for row in rows], schema=INPUTS_SCHEMA)

    manifest = manifest_of(Split.of([], seq_len=8))
    old = table(("docs", "kept", "1"), ("docs", "changed", "1"), ("docs", "removed", "1"))
    new = table(("docs", "kept", "1"), ("docs", "changed", "2"), ("mail", "kept", "1"))
    assert compare(manifest, manifest, old, new).inputs == {
        "docs": SetChange(num_kept=1, added=(), removed=("removed",), changed=("changed",)),
        "mail": SetChange(num_kept=0, added=("kept",), removed=(), changed=()),
    }
    assert compare(manifest, manifest, old, None).inputs is None


def test_a_difference_reads_well(tmp_path):
    root = str(tmp_path)
    old = load(build(root)).manifest
    documents = (*DOCUMENTS[1:], Document("docs", "new.md", 28))
    new = load(build(root, version="v2", parent=old, documents=documents, config={"seed": 7})).manifest
    text = render.diff(compare(old, new))
    assert text.startswith(f"v1 -> v2: v2 was built from v1\n  - {old.digest}\n  + {new.digest}\n")
    assert "\nconfig\n  seed  0  ->  7  +7\n" in text
    assert "\n  train.num_tokens    56     ->  64      +8 (+14.3 %)\n" in text
    assert "\nshards of train: 0 kept, 2 added, 2 removed\n  + shards/train/v2-000000.tar\n" in text
    assert "input files: not compared" in text
    assert max(map(len, text.splitlines())) <= 100
