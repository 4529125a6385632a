"""The language kernel against fastText's own binding."""

from pathlib import Path

import fasttext  # type: ignore[import-untyped]  # it publishes no types
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.kernels.language import detect
from pipeline.kernels.language_model import fnv1a, language_labels, model_path
from tests.pipeline.kernels_corpus import sample_texts

REFERENCE = fasttext.load_model(str(model_path()))
# fastText takes a word that begins so for a label of its training data, and skips it; we do not.
LABEL = "__label__"
WORDS = st.sampled_from(
    ["printer", "принтер", "Drucker", "друк", "プリンタ", "imprimante", "a", "я", "1", "…", "\xa0", "x" * 40]
)
TEXTS = st.lists(WORDS | st.text(max_size=4), max_size=12).map(" ".join).filter(lambda text: LABEL not in text)


def check(texts: list[str]) -> None:
    languages = detect(pa.array(texts, pa.large_string()))
    for number, text in enumerate(texts):
        labels, scores = REFERENCE.predict(text.replace("\n", " "), k=2)
        if len(scores) > 1 and scores[0] - scores[1] < 1e-4:
            continue  # a tie but for rounding: the sums are made in another order
        assert f"{LABEL}{languages.code(number)}" == labels[0], text
        assert languages.score[number] == pytest.approx(scores[0], abs=1e-4)


def test_the_model_has_176_languages_in_its_order() -> None:
    assert len(language_labels()) == 176
    assert language_labels()[:3] == ("en", "ru", "de")


def test_the_hash_is_that_of_fasttext_with_its_sign() -> None:
    assert fnv1a(b"") == 2_166_136_261
    assert fnv1a(b"a") == 0xE40C292C
    assert fnv1a("я".encode()) != fnv1a(b"\xd1") != fnv1a(b"Q")


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4))
@example([""])
@example(["\x00", "\r", "\x0b\x0c\t", "a\x00b"])
def test_labels_and_scores_are_those_of_fasttext(texts: list[str]) -> None:
    check(texts)


def test_words_at_the_edges_of_blocks_and_long_ones_are_read_whole() -> None:
    check([f"{'x' * size} принтер не печатает {'я' * size}" for size in (1, 7, 8, 31, 32, 62, 63, 64, 65, 127, 300)])


def test_a_label_does_not_depend_on_the_batch() -> None:
    texts = [f"слово{number} word{number} Wort{number} слово" for number in range(5_000)]
    together = detect(pa.array(texts, pa.large_string()))
    alone = detect(pa.array(texts[4_990:], pa.large_string()))
    assert together.label[4_990:].tolist() == alone.label.tolist()
    assert together.score[4_990:].tolist() == alone.score.tolist()


def test_nothing_is_detected_in_nothing() -> None:
    assert detect(pa.array([], pa.large_string())).label.tolist() == []


def test_real_documents_are_labelled_as_fasttext_labels_them(corpus_dir: Path) -> None:
    check(sample_texts(corpus_dir)[::3])
