"""Text -> token ids: the reference engine, a fast one that must equal it, and the rules for special tokens.

    tokenizer.json -> tokenizer.py: EOS and BOS settled;  plain.py: a copy that takes every text as plain text
                   -> engines.py:   the fast engine, proved against `tokenizers` on hard_texts.py, or `tokenizers` alone
    texts          -> engine        -> ids, offsets -> specials.py: BOS and EOS put around every document
    texts          -> training.py   -> a tokenizer.json of the corpus's own

1. A tokenizer is the bytes of a `tokenizer.json`, kept beside the data set under its sha256.
2. Text is encoded with a copy of it in which no text finds an added token, so that the names of special tokens in user
   text come out as plain text. The switch `encode_special_tokens` of `tokenizers` neutralises only those marked
   special, and real tokenizers have dozens that are not (`<think>`, `<|EOT|>`).
3. EOS ends every document and stands nowhere else; BOS begins every document where the tokenizer itself says so. We
   append both.
4. `tokenizers` is the reference. A fast engine is used only where it gave equal ids on a hard set for this very
   tokenizer: once before any text is read, and once in every process that encodes, since an engine takes other code on
   other processors. Every task compares a sample of its own texts again, and a difference fails the build by the
   document's name.
"""

from pipeline.tokenization.engines import (
    Engine,
    Engines,
    FastEngine,
    ReferenceEngine,
    encode_surely,
    first_difference,
    open_engines,
)
from pipeline.tokenization.hard_texts import HARD_TEXTS, hard_texts
from pipeline.tokenization.plain import PlainTokenizer, SpecialIds
from pipeline.tokenization.specials import check_no_specials, frame
from pipeline.tokenization.tokenizer import (
    KNOWN_EOS,
    Tokenizer,
    TokenizerError,
    read_tokenizer,
    read_tokenizer_file,
)
from pipeline.tokenization.training import train_tokenizer

__all__ = [
    "HARD_TEXTS",
    "KNOWN_EOS",
    "Engine",
    "Engines",
    "FastEngine",
    "PlainTokenizer",
    "ReferenceEngine",
    "SpecialIds",
    "Tokenizer",
    "TokenizerError",
    "check_no_specials",
    "encode_surely",
    "first_difference",
    "frame",
    "hard_texts",
    "open_engines",
    "read_tokenizer",
    "read_tokenizer_file",
    "train_tokenizer",
]
