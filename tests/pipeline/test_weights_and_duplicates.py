"""A weight below 1 and the search for duplicates: what is not drawn stands for no other document."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from manifests.manifest import Dataset
from pipeline.build import Host, build
from pipeline.config import parse
from pipeline.stages.read import find_all_inputs, read_units
from tests.pipeline.dedup_corpus import Document, values_for, words
from tests.pipeline.inline_builds import InlineRuntime, a_token_a_byte, lineage_of, problems_of


def built(folder: Path, documents: list[Document], weights: dict[str, float], **changes: Any) -> Dataset:
    """`documents` as a data set below `folder`; deduplication as it comes, rows so short that no text is cut off."""
    values = values_for(folder, documents) | {"example": {"seq_len": 16}, "validation": {"fraction": 0.0}} | changes
    for source in values["sources"]:
        source["weight"], source["priority"] = weights[source["name"]], 0
    (folder / "tokenizer.json").write_bytes(a_token_a_byte())
    values["tokenizer"] = {"path": str(folder / "tokenizer.json")}
    runtime = InlineRuntime(f"{values['output']}/.build")
    return build(parse(values), runtime, Host(workers=1, ray="none"), lambda _line: None)


def funnel_of(dataset: Dataset) -> dict[str, int]:
    return {row.stage: row.num_documents for row in dataset.manifest.funnel}


def texts(number: int) -> list[str]:
    generator = random.Random(number)
    return [" ".join(words(generator, 30)) for _ in range(300)]


def test_a_text_of_a_source_weighted_down_is_kept_where_another_source_has_it_too(tmp_path: Path) -> None:
    same = [(source, f"{i:03d}", text) for source in "ab" for i, text in enumerate(texts(0))]
    dataset = built(tmp_path, same, {"a": 0.1, "b": 1})
    # 300 draws at one tenth: a standard deviation of 5. Of equal texts the one of source a stays, where it was drawn.
    num_drawn = dataset.manifest.sources["a"].documents_kept
    assert 15 < num_drawn < 45
    assert dataset.manifest.sources["b"].documents_kept == 300 - num_drawn
    funnel = {"read": 600, "weight": 300 - num_drawn, "exact_duplicate": num_drawn, "kept": 300}
    assert list(funnel_of(dataset).items()) == list(funnel.items())
    assert set(lineage_of(dataset)["document_id"].to_pylist()) == {f"{i:03d}" for i in range(300)}
    assert problems_of(dataset) == []


def test_what_was_not_drawn_in_the_base_can_be_in_the_next_version(tmp_path: Path) -> None:
    documents = [("a", f"{i:03d}", text) for i, text in enumerate(texts(1))]
    first = built(tmp_path, documents, {"a": 0.5}, version="v1")
    num_drawn = funnel_of(first)["kept"]
    assert 110 < num_drawn < 190
    signatures = pq.read_table(tmp_path / "out" / "signatures" / "v1" / "000000.parquet")
    assert set(signatures["id"].to_pylist()) == set(lineage_of(first)["document_id"].to_pylist())
    second = built(tmp_path, documents, {"a": 1}, version="v2", base="v1.json")
    # Counts of both versions: 300 were read twice, and each text is in the shards once.
    left_out = 300 - num_drawn
    assert funnel_of(second) == {"read": 600, "weight": left_out, "exact_duplicate": num_drawn, "kept": 300}
    assert len(set(lineage_of(second)["document_id"].to_pylist())) == 300
    assert problems_of(second) == []


def test_reading_is_not_done_again_for_another_weight_of_one_and_more(tmp_path: Path) -> None:
    values = values_for(tmp_path, [("a", f"{i:03d}", text) for i, text in enumerate(texts(2)[:20])])

    def key(weight: float, seed: int = 0) -> str:
        values["sources"][0]["weight"] = weight
        config = parse(values | {"seed": seed})
        [unit] = read_units(config, find_all_inputs(config), {})
        return unit.key

    assert key(1) == key(2.5) == key(1, seed=1)
    assert len({key(1), key(0.5), key(0.25), key(0.5, seed=1)}) == 4
