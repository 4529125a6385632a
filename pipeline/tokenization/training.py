"""A tokenizer of the corpus's own: byte-level BPE with one special token."""

from collections.abc import Sequence

from pipeline.tokenization.tokenizer import KNOWN_EOS


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> bytes:
    """Train a byte-level BPE tokenizer with one special token, `<|endoftext|>`; equal texts in equal order give equal
    bytes.

    Args:
        texts: what to learn from; the caller bounds it.
        vocab_size: ids wanted, at least 257 (256 bytes and EOS); a small corpus may yield fewer.
    """
    from tokenizers import Tokenizer as HfTokenizer
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = HfTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[KNOWN_EOS[0]],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str().encode()
