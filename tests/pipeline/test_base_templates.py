"""Template lines of a version, in the version that continues it."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from manifests.errors import UserError
from pipeline.dedup.templates import hash_line
from tests.pipeline.dedup_corpus import Document, words
from tests.pipeline.test_stages_deduplicate import FORM
from tests.pipeline.test_weights_and_duplicates import built, funnel_of


def tickets(seed: int, number: int, source: str = "a") -> list[Document]:
    """On one form, each with a problem of its own: the whole texts are alike, the problems are not."""
    generator = random.Random(seed)
    form = " ".join(words(random.Random(1), 120)) + "\n" + FORM
    return [(source, f"{seed}-{i:04d}", form.format(" ".join(words(generator, 6)))) for i in range(number)]


def test_a_few_new_tickets_on_a_form_the_base_knew_are_all_kept(tmp_path: Path) -> None:
    built(tmp_path / "1", tickets(1, 200), {"a": 1}, version="v1", output=str(tmp_path / "data"))
    kept = pq.read_table(tmp_path / "data" / "signatures" / "v1" / "templates.parquet").to_pylist()
    row = {"source": "a", "line_hash": hash_line("Отдел: бухгалтерия и финансы"), "num_documents": 200}
    assert row in kept
    assert len(kept) == 7
    new = tickets(2, 60)
    # Alone they are too few to show that the form is one.
    assert funnel_of(built(tmp_path / "alone", new, {"a": 1})) == {"read": 60, "near_duplicate": 59, "kept": 1}
    second = built(tmp_path / "2", new, {"a": 1}, version="v2", base="v1.json", output=str(tmp_path / "data"))
    assert funnel_of(second) == {"read": 260, "kept": 260}


def test_the_version_after_the_next_knows_the_form_too(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    built(tmp_path / "1", tickets(1, 200), {"a": 1}, version="v1", output=root)
    built(tmp_path / "2", tickets(2, 3, "b"), {"b": 1}, version="v2", base="v1.json", output=root)
    # Of the three of source b, which has no known form, two go.
    third = built(tmp_path / "3", tickets(4, 20), {"a": 1}, version="v3", base="v2.json", output=root)
    assert funnel_of(third) == {"read": 223, "near_duplicate": 2, "kept": 221}


def test_a_base_without_its_template_lines_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "data"
    built(tmp_path / "1", tickets(1, 5), {"a": 1}, version="v1", output=str(root))
    (root / "signatures" / "v1" / "templates.parquet").unlink()
    with pytest.raises(UserError, match=r"base: the template lines of v1 are not at .*/v1/templates\.parquet"):
        built(tmp_path / "2", tickets(2, 5), {"a": 1}, version="v2", base="v1.json", output=str(root))
