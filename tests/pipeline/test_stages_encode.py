"""The engine in a build: proved before any text is read, and held against the reference in every task."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import documents
from pipeline.runtime import BuildError, Summary, Unit
from pipeline.stages import encode as stage
from pipeline.tokenization import Engines, ReferenceEngine, first_difference, open_engines, read_tokenizer
from tests.pipeline import inline_builds
from tests.pipeline.inline_builds import a_token_a_byte, build_texts

RECORDS = [(f"d{number:03d}", f"text number {number}") for number in range(100)]


def test_the_engine_is_proved_by_one_unit_before_any_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[tuple[str, int]] = []
    run = inline_builds.InlineRuntime.run

    def recorded(
        self: inline_builds.InlineRuntime,
        name: str,
        function: Callable[[Any], Summary],
        units: Sequence[Unit],
        check: Callable[[Unit, Summary], None] | None = None,
    ) -> list[Summary]:
        stages.append((name, len(units)))
        return run(self, name, function, units, check)

    monkeypatch.setattr(inline_builds.InlineRuntime, "run", recorded)
    build_texts(tmp_path / "d", [RECORDS[:50], RECORDS[50:]], example={"seq_len": 8})
    assert stages[0] == ("engine", 1)
    assert [name for name, _ in stages].count("engine") == 1


def test_a_task_holds_eight_documents_spread_through_it_against_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[list[str]] = []

    def recorded(engine: Any, reference: Any, texts: Sequence[str]) -> int | None:
        compared.append(list(texts))
        return first_difference(engine, reference, texts)

    monkeypatch.setattr(stage, "first_difference", recorded)
    monkeypatch.setattr(documents, "ROW_GROUP_BYTES", 600)
    build_texts(tmp_path / "d", [RECORDS], example={"seq_len": 8})
    assert len(compared) > 2, "the documents come in several row groups"
    assert [text for texts in compared for text in texts] == [f"text number {n}" for n in range(0, 100, 13)]


class WrongInOneText:
    """An engine that gives another id for the texts that hold a 7."""

    name = "wrong"

    def __init__(self, right: ReferenceEngine) -> None:
        self._right = right

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = self._right.encode(texts)
        for text, start in zip(texts, offsets, strict=False):
            ids[start] += "7" in text
        return ids, offsets


def test_a_difference_in_a_task_fails_the_build_by_the_documents_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = open_engines(read_tokenizer(a_token_a_byte()).plain, "reference").reference
    assert isinstance(right, ReferenceEngine)
    engines = Engines(chosen=WrongInOneText(right), reference=right, why="for a test")
    monkeypatch.setattr(stage, "open_in_worker", lambda _: engines)
    # Of 100 documents every thirteenth is compared: the first with a 7 in it is number 78.
    message = r"document 'd078' of source letters: wrong gives other ids than tokenizers: set tokenizer\.engine"
    with pytest.raises(BuildError, match=message):
        build_texts(tmp_path / "d", [RECORDS], example={"seq_len": 8})
