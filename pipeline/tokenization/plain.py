"""The copy of a tokenizer.json that takes every text as plain text.

It has no `added_tokens`, so no name of a special token is cut out of a text. That alone is enough for byte-level and
SentencePiece-style BPE, whose merges never build such a name. Unigram and WordPiece look whole pieces up in the
vocabulary, where `</s>` stands like any word: there the added tokens' entries get names that no text holds, at their
old ids.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """The ids that stand around every document, and nowhere else."""

    eos: int
    """Ends it."""
    bos: int | None
    """Begins it, where not None."""

    def __contains__(self, token: int) -> bool:
        return token in (self.eos, self.bos)

    @property
    def num(self) -> int:
        """How many a document gets."""
        return 1 if self.bos is None else 2


@dataclass(frozen=True, kw_only=True)
class PlainTokenizer:
    """What every engine encodes with."""

    json: str
    """A tokenizer.json without added tokens, truncation and padding."""
    names: tuple[str, ...]
    """The names of the added tokens that the original has."""

    @classmethod
    def of(cls, data: bytes, special_ids: SpecialIds) -> "PlainTokenizer":
        """Make it from a tokenizer.json that `read_tokenizer` took, and the ids it settled."""
        fields = json.loads(data)
        names = tuple(token["content"] for token in fields.get("added_tokens", ()))
        vocabulary = fields["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: [piece, score] by id
            special = {piece for number, (piece, _) in enumerate(vocabulary) if number in special_ids}
        else:
            special = {piece for piece, number in vocabulary.items() if number in special_ids}
        # The marker is the file's own hash: no text holds it but on purpose.
        marker = hashlib.sha256(data).hexdigest()[:16]
        return cls(json=_plain_json(fields, sorted(special.union(names)), marker), names=names)

    @cached_property
    def loaded(self) -> Any:
        """The `tokenizers.Tokenizer` of it: a fifth of a second with 128,000 ids."""
        import tokenizers  # slow to import, and needed only where text is encoded

        return tokenizers.Tokenizer.from_str(self.json)


def _plain_json(fields: dict[str, Any], names: list[str], marker: str) -> str:
    # A file may carry truncation and padding: every text would become exactly 128 ids, without a warning.
    plain = {**fields, "added_tokens": [], "truncation": None, "padding": None, "model": dict(fields["model"])}
    model = plain["model"]
    if "dropout" in model:  # of merges, by chance, for training a model: other ids at every call
        model["dropout"] = None
    hidden = {name: f"\ufdd0{marker}:{index}" for index, name in enumerate(names)}  # U+FDD0 is no character
    if isinstance(model["vocab"], list):
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]
    else:
        # What merges take or make is ordinary text, whatever added_tokens says of it (Gemma's runs of newlines).
        for merge in model.get("merges") or ():
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            for part in (left, right, left + right):
                hidden.pop(part, None)
        # Characters that text is first split into: merges start from them, and some are not in any merge.
        hidden = {name: mark for name, mark in hidden.items() if len(name) > 1}
        model["vocab"] = {hidden.get(token, token): number for token, number in model["vocab"].items()}
    if model.get("unk_token") in hidden:
        model["unk_token"] = hidden[model["unk_token"]]
    return json.dumps(plain, ensure_ascii=False)
