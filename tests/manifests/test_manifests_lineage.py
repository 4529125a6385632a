import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manifests import (
    INPUTS_SCHEMA,
    LINEAGE_SCHEMA,
    ManifestError,
    UserError,
    find_document,
    inputs_digest,
    lineage_path,
    load,
    read_inputs,
    read_lineage,
    storage,
    view_examples,
    write_inputs,
    write_lineage,
)
from manifests.lineage import copies
from manifests.tables import TableError
from tests.manifests.manifest_samples import DOCUMENTS, EOS, Document, build


def test_a_shard_and_its_lineage_lie_side_by_side():
    assert lineage_path("shards/train/v3-000000.tar") == "lineage/train/v3-000000.parquet"
    assert (
        lineage_path("s3://b/shards/x/shards/train/v3-000001.tar") == "s3://b/shards/x/lineage/train/v3-000001.parquet"
    )
    assert lineage_path("/data/shards/train/v3-000001.tar") == "/data/lineage/train/v3-000001.parquet"
    with pytest.raises(ManifestError, match="its lineage has no place"):
        lineage_path("train/v3-000000.tar")


def test_a_document_is_found_run_by_run(any_root):
    dataset = load(build(any_root, examples_per_shard=2))
    runs = [run for run in find_document(dataset, "guide/install.md") if run.source == "docs"]
    assert [(run.shard, run.first_example, run.last_example, run.first_token, run.num_tokens) for run in runs] == [
        ("shards/train/v1-000000.tar", 0, 1, 0, 16),
        ("shards/train/v1-000001.tar", 0, 0, 0, 4),
    ]
    assert [(run.document_offset, run.ends) for run in runs] == [(0, False), (16, True)]


def test_the_tokens_a_placement_names_are_the_documents(tmp_path):
    dataset = load(build(str(tmp_path), examples_per_shard=2))
    found = []
    for run in find_document(dataset, "guide/настройка.md"):
        examples = view_examples(storage.read_bytes(dataset.resolve(run.shard)), dataset.manifest.example)
        start = run.first_example * dataset.manifest.example.seq_len + run.first_token
        found.append(np.ascontiguousarray(examples).reshape(-1)[start : start + run.num_tokens])
    tokens = np.concatenate(found)
    assert len(tokens) == 9
    assert tokens[-1] == EOS
    assert (np.diff(tokens[:-1].astype(int)) == 1).all()


def test_documents_of_several_sources_under_one_id_are_all_found(tmp_path):
    dataset = load(build(str(tmp_path)))
    together = copies(find_document(dataset, "guide/install.md"))
    assert [(runs[0].source, sum(run.num_tokens for run in runs)) for runs in together] == [
        ("docs", 20),
        ("tickets", 18),
    ]


def test_two_documents_of_one_source_and_id_are_told_apart(tmp_path):
    twice = (Document("docs", "same", 12), Document("docs", "same", 13), *DOCUMENTS)
    dataset = load(build(str(tmp_path), documents=twice, examples_per_shard=1))
    together = copies(find_document(dataset, "same"))
    assert [[run.num_tokens for run in runs] for runs in together] == [[8, 4], [4, 8, 1]]


def test_a_document_that_is_not_held_is_found_nowhere(tmp_path):
    assert find_document(load(build(str(tmp_path))), "Guide/install.md") == []


def rows(num_rows: int) -> pa.Table:
    numbers = np.random.default_rng(0).permutation(num_rows)
    return pa.table(
        {
            "source": ["docs"] * num_rows,
            "document_id": [f"d{number:07d}" for number in numbers],
            "repeat": np.zeros(num_rows, np.int32),
            "first_example": np.arange(num_rows) // 3,
            "first_token": np.arange(num_rows) % 3,
            "num_tokens": np.ones(num_rows, np.int64),
            "document_offset": np.zeros(num_rows, np.int64),
            "ends": np.ones(num_rows, bool),
        },
        schema=LINEAGE_SCHEMA,
    )


def test_lineage_is_read_in_the_order_of_place_and_written_the_same_from_any_order(any_root):
    table = rows(1000)
    urls = [storage.join(any_root, name) for name in ("a.parquet", "b.parquet")]
    write_lineage(urls[0], table)
    write_lineage(urls[1], table.take(np.random.default_rng(1).permutation(1000)))
    assert storage.read_bytes(urls[0]) == storage.read_bytes(urls[1])
    assert read_lineage(urls[0]).equals(table)


def test_a_search_can_rule_out_all_row_groups_but_one(tmp_path):
    url = str(tmp_path / "x.parquet")
    write_lineage(url, rows(50_000))
    file = pq.ParquetFile(url)
    column = file.schema_arrow.names.index("document_id")
    groups = [file.metadata.row_group(group).column(column).statistics for group in range(file.num_row_groups)]
    assert len(groups) == 4
    assert sum(group.min <= "d0030000" <= group.max for group in groups) == 1


def inputs(paths: tuple[str, ...] = ("/a", "/b"), identity: str = "sha256:1") -> pa.Table:
    return pa.table(
        {
            "source": ["docs", "docs"],
            "name": ["a", "б"],
            "path": list(paths),
            "num_bytes": [1, 2],
            "identity": [identity, "sha256:2"],
            "num_records": [1, 1],
        },
        schema=INPUTS_SCHEMA,
    )


def test_moving_or_reordering_the_corpus_keeps_the_inputs_digest_and_changing_it_does_not():
    digest = inputs_digest(inputs())
    assert inputs_digest(inputs(paths=("s3://b/a", "s3://b/b"))) == digest
    assert inputs_digest(inputs().take([1, 0])) == digest
    assert inputs_digest(inputs(identity="sha256:3")) != digest
    assert inputs_digest(inputs().slice(0, 1)) != digest


def test_the_inputs_digest_spelled_out():
    """Relied on by every manifest's inputs.digest."""
    from manifests import fingerprint

    assert inputs_digest(inputs()) == fingerprint([["docs", "a", 1, "sha256:1"], ["docs", "б", 2, "sha256:2"]])


def test_inputs_come_back_as_written(any_root):
    url = storage.join(any_root, "inputs/v1.parquet")
    write_inputs(url, inputs().take([1, 0]))
    assert read_inputs(url).equals(inputs())


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a table at all"])
def test_a_file_that_is_no_table_is_named(any_root, content):
    url = storage.join(any_root, "x.parquet")
    storage.write_bytes(url, content)
    with pytest.raises(TableError, match="is no Parquet file that can be read") as caught:
        read_lineage(url)
    assert url in str(caught.value)
    assert isinstance(caught.value, UserError)


def test_another_table_is_told_by_its_columns(tmp_path):
    url = str(tmp_path / "x.parquet")
    write_inputs(url, inputs())
    with pytest.raises(TableError, match="it is another table"):
        read_lineage(url)
