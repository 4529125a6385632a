"""Every kind of tokenizer.json: special tokens in text are text, and a fast engine only where it is exact."""

import json
import string
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, normalizers, pre_tokenizers, trainers

from pipeline.tokenization import (
    Engines,
    ReferenceEngine,
    SpecialIds,
    TokenizerError,
    encode_surely,
    first_difference,
    hard_texts,
    open_engines,
    read_tokenizer,
    train_tokenizer,
)

TEXTS = [
    "Служба поддержки отвечает на письма и звонки.",
    "The service desk answers letters and calls.",
    "one two three one two three four",
] * 5
SPECIALS = ["<unk>", "<s>", "</s>"]
NAMES_IN_TEXT = ["</s>", "a </s> b", "a</s>b", "<s></s><unk>", "[SEP] [CLS][SEP]", "<|endoftext|>"]


def byte_level_bpe() -> bytes:
    return train_tokenizer(TEXTS, 400)


def sentencepiece_bpe(alphabet: str = string.printable) -> bytes:
    """As Llama 2 is written: spaces to ▁ by a normalizer, byte fallback, BOS by template."""
    trained = HfTokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=SPECIALS + [f"<0x{byte:02X}>" for byte in range(256)],
            initial_alphabet=list(alphabet),
            show_progress=False,
        ),
    )
    fields = json.loads(trained.to_str())
    fields["model"] |= {"byte_fallback": True, "fuse_unk": True}
    fields["pre_tokenizer"] = None
    fields["normalizer"] = json.loads(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]).__getstate__()
    )
    fields["added_tokens"] = [token for token in fields["added_tokens"] if token["content"] in SPECIALS]
    return json.dumps(with_template(fields, "<s>", None)).encode()


def unigram() -> bytes:
    tokenizer = HfTokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False),
    )
    return json.dumps(with_template(json.loads(tokenizer.to_str()), None, "</s>")).encode()


def word_piece() -> bytes:
    tokenizer = HfTokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False),
    )
    return json.dumps(with_template(json.loads(tokenizer.to_str()), "[CLS]", "[SEP]")).encode()


def with_template(fields: dict[str, Any], before: str | None, after: str | None) -> dict[str, Any]:
    """The fields with a post-processor that puts these tokens around a text."""
    ids = {token["content"]: token["id"] for token in fields["added_tokens"]}

    def special(name: str | None) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": name, "type_id": 0}}] if name else []

    text = {"Sequence": {"id": "A", "type_id": 0}}
    fields["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*special(before), text, *special(after)],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (before, after) if name
        },
    }
    return fields


@pytest.mark.parametrize(
    ("make", "eos", "bos", "engine"),
    [
        (byte_level_bpe, "<|endoftext|>", None, "fastokens"),
        (sentencepiece_bpe, "</s>", "<s>", "fastokens"),
        (unigram, "</s>", None, "tokenizers"),
        (word_piece, "[SEP]", "[CLS]", "tokenizers"),
    ],
)
def test_special_tokens_come_from_the_tokenizers_own_rule_and_never_from_text(
    make: Callable[[], bytes], eos: str, bos: str | None, engine: str
) -> None:
    data = make()
    tokenizer = read_tokenizer(data)
    vocabulary = HfTokenizer.from_str(data.decode()).get_vocab()
    assert tokenizer.special_ids == SpecialIds(eos=vocabulary[eos], bos=vocabulary[bos] if bos else None)
    engines = open_engines(tokenizer.plain, "auto")
    assert engines.chosen.name == engine
    assert ("cannot read this tokenizer" in engines.why) == (engine == "tokenizers")
    for each in (engines.chosen, engines.reference):
        ids, _ = each.encode(NAMES_IN_TEXT)
        assert not {tokenizer.special_ids.eos, tokenizer.special_ids.bos} & set(ids.tolist())


def test_a_known_name_that_is_marked_special_wins_over_one_that_is_not() -> None:
    """Gemma has `<eos>`, and among its HTML tags `</s>` too."""
    fields = json.loads(train_tokenizer(TEXTS, 400))
    [known] = fields["added_tokens"]
    vocabulary_size = len(fields["model"]["vocab"])
    fields["added_tokens"] = [
        {**known, "content": "</s>", "id": vocabulary_size, "special": False},
        {**known, "content": "<eos>", "id": vocabulary_size + 1, "special": True},
    ]
    assert read_tokenizer(json.dumps(fields).encode()).special_ids.eos == vocabulary_size + 1
    fields["added_tokens"][0]["special"] = True
    assert read_tokenizer(json.dumps(fields).encode()).special_ids.eos == vocabulary_size


def test_an_engine_that_is_not_exact_for_this_very_tokenizer_is_not_used() -> None:
    """Where `<` and `0` are no pieces, fastokens 0.3.5 takes the text `<0x0A>` for the byte of that name."""
    engines = open_engines(read_tokenizer(sentencepiece_bpe(alphabet="")).plain, "auto")
    assert engines.chosen.name == "tokenizers"
    assert engines.why.startswith("fastokens gives other ids for '<|endoftext|></s><s>")


@pytest.mark.parametrize("make", [byte_level_bpe, sentencepiece_bpe, unigram, word_piece])
def test_ids_of_ordinary_text_are_those_of_the_file_as_it_was_given(make: Callable[[], bytes]) -> None:
    data = make()
    given = HfTokenizer.from_str(data.decode())
    right = [encoding.ids for encoding in given.encode_batch(TEXTS[:3], add_special_tokens=False)]
    for setting in ("auto", "reference"):
        ids, offsets = open_engines(read_tokenizer(data).plain, setting).chosen.encode(TEXTS[:3])
        assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == right


def test_special_names_that_merges_make_stay_text_that_merges_make() -> None:
    """Gemma's added tokens hold runs of newlines, which its merges build as well."""
    fields = json.loads(byte_level_bpe())
    name = fields["model"]["merges"][0]
    joined = "".join(name) if isinstance(name, list) else name.replace(" ", "")
    fields["added_tokens"].append(
        {**fields["added_tokens"][0], "content": joined, "id": fields["model"]["vocab"][joined], "special": False}
    )
    plain = json.loads(read_tokenizer(json.dumps(fields).encode()).plain.json)
    assert joined in plain["model"]["vocab"]
    assert plain["added_tokens"] == []


def test_an_end_of_document_token_that_text_gives_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.eos is 'o' .* which ordinary text is encoded to as well"):
        read_tokenizer(byte_level_bpe(), eos="o")


def test_the_hard_set_holds_this_tokenizers_own_names() -> None:
    texts = hard_texts(read_tokenizer(sentencepiece_bpe()).plain)
    assert {"<s>", "</s>", "<unk>", "<unk> <s> </s>", "<unk>x<s>x</s>"} <= set(texts)


class GivesUp:
    """An engine whose regular expressions run out of steps on some texts."""

    name = "gives-up"

    def __init__(self, right: ReferenceEngine) -> None:
        self._right = right

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if any("=" in text for text in texts):
            raise ValueError("match limit exceeded")
        return self._right.encode(texts)


def test_a_text_that_the_fast_engine_gives_up_on_is_encoded_by_the_reference() -> None:
    right = ReferenceEngine(read_tokenizer(byte_level_bpe()).plain)
    engines = Engines(chosen=GivesUp(right), reference=right, why="for a test")
    texts = ["one", "= two =", "", "three"]
    ids, offsets, num_by_reference = encode_surely(engines, texts)
    expected, expected_offsets = right.encode(texts)
    assert (ids.tolist(), offsets.tolist(), num_by_reference) == (expected.tolist(), expected_offsets.tolist(), 1)
    assert encode_surely(engines, ["one", "two"])[2] == 0


@pytest.mark.parametrize("text", ["x" * 1_000_000, "=" * 300_000, " " * 1_000_000, "яж" * 500_000])
def test_a_text_without_a_space_takes_time_in_proportion(text: str) -> None:
    """Case 7: both engines encode 1 MB without a space in about a second, so no text needs cutting."""
    engines = open_engines(read_tokenizer(byte_level_bpe()).plain, "auto")
    assert first_difference(engines.chosen, engines.reference, [text]) is None
