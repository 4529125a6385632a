"""A tokenizer.json read: its EOS and BOS, settled and checked. What text is encoded with: plain.py."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from manifests import storage
from manifests.errors import UserError
from pipeline.tokenization.plain import PlainTokenizer, SpecialIds

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
    vocab_size: int
    """Every id that can occur is below it, added tokens included."""
    special_ids: SpecialIds

    @cached_property
    def sha256(self) -> str:
        """64 hex digits over `data`."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def plain(self) -> PlainTokenizer:
        """What text is encoded with."""
        return PlainTokenizer.of(self.data, self.special_ids)


@lru_cache(maxsize=2)  # a command reads it before Ray starts, its build again: 0.7 s each with 128,000 ids
def read_tokenizer(data: bytes, *, eos: str | None = None, bos: str | None = None) -> Tokenizer:
    """Read a tokenizer.json and settle its EOS and BOS.

    Args:
        data: the file's bytes.
        eos: the token that ends a document; None takes what the tokenizer's own post-processor puts after a text, else
            the first of KNOWN_EOS that it marks special, else the first that it has.
        bos: the token that begins one; None takes what the post-processor puts before a text, mostly nothing.

    Raises:
        TokenizerError: not a tokenizer.json, no EOS to be found, one that the vocabulary lacks, one token for both, or
            one that plain text is encoded to: `eos: "the"` would end a document in mid-sentence.
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
        eos_id = _known_eos_id(vocabulary, fields) if own_eos is None else own_eos
    bos_id = own_bos if bos is None else _id_of(vocabulary, "bos", bos)
    if bos_id == eos_id:
        if bos is not None:
            raise TokenizerError(
                f"tokenizer.bos is {bos!r}, which is the end-of-document token too (id {eos_id}): that one may stand"
                " at a document's end only; leave bos out or name another"
            )
        bos_id = None  # GPT-2 uses one token for both
    tokenizer = Tokenizer(
        data=data, vocab_size=max(vocabulary.values()) + 1, special_ids=SpecialIds(eos=eos_id, bos=bos_id)
    )
    _check_special_tokens(tokenizer, whole)
    return tokenizer


def _check_special_tokens(tokenizer: Tokenizer, whole: Any) -> None:
    """TokenizerError where plain text can be encoded to EOS or BOS, tried on the token's own text."""
    plain = tokenizer.plain.loaded
    for key, special in (("eos", tokenizer.special_ids.eos), ("bos", tokenizer.special_ids.bos)):
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


def _known_eos_id(vocabulary: dict[str, int], fields: dict[str, Any]) -> int:
    # Gemma has `<eos>`, and `</s>` as well: there it is a piece of HTML, not marked special.
    special = [token["content"] for token in fields.get("added_tokens", ()) if token["special"]]
    for names in (special, vocabulary):
        for name in KNOWN_EOS:
            if name in names:
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
