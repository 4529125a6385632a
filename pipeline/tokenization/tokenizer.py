"""A tokenizer.json read: its EOS and BOS, and the copy of it that takes every text as plain text.

Text is encoded with a copy that has no `added_tokens`, so no name of a special token is cut out of a text. That alone
is enough for byte-level and SentencePiece-style BPE, whose merges never build such a name. Unigram and WordPiece look
whole pieces up in the vocabulary, where `</s>` stands like any word: there the added tokens' entries get names that no
text holds, at their old ids.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manifests import storage
from manifests.errors import UserError

# Names under which published tokenizers know the end of a document, the commonest first. `tokenizer.eos` in the config
# wins over them, and so does a token that the tokenizer itself puts after a text.
KNOWN_EOS = (
    "<|endoftext|>",
    "<｜end▁of▁sentence｜>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<EOT>",
    "<|im_end|>",
    "[SEP]",
)


class TokenizerError(UserError):
    """The tokenizer cannot be used as asked."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A tokenizer and its rules, checked when read. Build it with `read_tokenizer`."""

    data: bytes
    """The tokenizer.json as it was given."""
    plain_json: str
    """The same without added tokens, truncation and padding: what text is encoded with."""
    vocab_size: int
    """Every id that can occur is below it, added tokens included."""
    eos_id: int
    bos_id: int | None
    """Begins every document, where not None."""

    @property
    def sha256(self) -> str:
        """64 hex digits over `data`."""
        return hashlib.sha256(self.data).hexdigest()


def read_tokenizer(data: bytes, *, eos: str | None = None, bos: str | None = None) -> Tokenizer:
    """Read a tokenizer.json and settle its EOS and BOS.

    Args:
        data: the file's bytes.
        eos: the token that ends a document; None takes what the tokenizer's own post-processor puts after a text, else
            the first of KNOWN_EOS that it has.
        bos: the token that begins one; None takes what the post-processor puts before a text, mostly nothing.

    Raises:
        TokenizerError: not a tokenizer.json, no EOS to be found, one that the vocabulary lacks, or one token for both.
    """
    import tokenizers  # slow to import, and needed only where text is encoded

    try:
        fields = json.loads(data)
        whole = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise TokenizerError(f"tokenizer.path: not a tokenizer.json that `tokenizers` reads: {error}") from error
    vocabulary: dict[str, int] = whole.get_vocab(with_added_tokens=True)
    own_bos, own_eos = _own_special_ids(whole)
    if eos is not None:
        eos_id = _id_of(vocabulary, "eos", eos)
    else:
        eos_id = _known_eos_id(vocabulary) if own_eos is None else own_eos
    bos_id = own_bos if bos is None else _id_of(vocabulary, "bos", bos)
    if bos_id == eos_id:
        if bos is not None:
            raise TokenizerError(
                f"tokenizer.bos is {bos!r}, which is the end-of-document token too (id {eos_id}): that one may stand"
                " at a document's end only; leave bos out or name another"
            )
        bos_id = None  # GPT-2 uses one token for both
    names = [token["content"] for token in fields.get("added_tokens", ())]
    names += [name for name, token in vocabulary.items() if token in (eos_id, bos_id)]
    return Tokenizer(
        data=data,
        plain_json=_plain_json(fields, sorted(set(names)), marker=hashlib.sha256(data).hexdigest()[:16]),
        vocab_size=max(vocabulary.values()) + 1,
        eos_id=eos_id,
        bos_id=bos_id,
    )


def check_special_tokens(tokenizer: Tokenizer) -> None:
    """TokenizerError where plain text can be encoded to EOS or BOS: `eos: "the"` would end a document in mid-sentence.

    Tried on the token's own text. It costs as much as reading the tokenizer, so a build does it once, at its start.
    """
    import tokenizers

    plain = tokenizers.Tokenizer.from_str(tokenizer.plain_json)
    whole = tokenizers.Tokenizer.from_str(tokenizer.data.decode())
    for key, special in (("eos", tokenizer.eos_id), ("bos", tokenizer.bos_id)):
        if special is None:
            continue
        shown = whole.decode([special], skip_special_tokens=False)
        for text in (shown, f" {shown}", f"a {shown} a", f"a{shown}a"):
            if special in plain.encode(text, add_special_tokens=False).ids:
                raise TokenizerError(
                    f"tokenizer.{key} is {shown!r} (id {special}), which ordinary text is encoded to as well: name a"
                    " token that no text gives"
                )


def read_tokenizer_file(path: str) -> bytes:
    """The bytes of a tokenizer.json, given its path or url, or the local folder that holds it."""
    if storage.local_path(path) is not None and Path(path).is_dir():
        path = str(Path(path) / "tokenizer.json")
    try:
        return storage.read_bytes(path)
    except FileNotFoundError as error:
        raise TokenizerError(f"tokenizer.path: {path} does not exist: name a tokenizer.json or its folder") from error


def _known_eos_id(vocabulary: dict[str, int]) -> int:
    for name in KNOWN_EOS:
        if name in vocabulary:
            return vocabulary[name]
    raise TokenizerError(
        "tokenizer.eos: this tokenizer has none of the known end-of-document tokens"
        f" ({', '.join(KNOWN_EOS)}): name the one to use"
    )


def _id_of(vocabulary: dict[str, int], key: str, token: str) -> int:
    if token not in vocabulary:
        raise TokenizerError(
            f"tokenizer.{key} is {token!r}, which is not among the tokenizer's {len(vocabulary):,} tokens: correct it"
        )
    return vocabulary[token]


def _own_special_ids(whole: Any) -> tuple[int | None, int | None]:
    """The ids that the tokenizer's own post-processor puts before and after a text, if any."""
    whole.no_truncation()
    whole.no_padding()
    with_rule = whole.encode("a", add_special_tokens=True)
    without = whole.encode("a", add_special_tokens=False).ids
    if not without or len(with_rule.ids) <= len(without):
        return None, None
    first, last = (int(with_rule.ids[i]) if with_rule.special_tokens_mask[i] else None for i in (0, -1))
    return first, last


def _plain_json(fields: dict[str, Any], names: list[str], *, marker: str) -> str:
    # A file may carry truncation and padding: every text would become exactly 128 ids, without a warning.
    plain = {**fields, "added_tokens": [], "truncation": None, "padding": None, "model": dict(fields["model"])}
    model = plain["model"]
    # U+FDD0 is no character, and the marker is the file's own hash: no text holds it but on purpose.
    hidden = {name: f"\ufdd0{marker}:{index}" for index, name in enumerate(names)}
    if isinstance(model.get("vocab"), list):  # Unigram: [piece, score] by id
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
