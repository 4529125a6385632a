"""The text pass: one walk over a batch's UTF-8 bytes leaves what filters judge by and what deduplication compares.

LargeStringArray --analyse--> Statistics (a column of numbers each)  -> pipeline/filters
                         \\--> Words      (a flat column of hashes)   -> pipeline/dedup
"""

import dataclasses
import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipeline.kernels.arrow import text_buffers
from pipeline.kernels.columns import COUNTED
from pipeline.kernels.language import MIN_LETTERS, Languages, detect
from pipeline.kernels.language_model import language_labels
from pipeline.kernels.scratch import MAX_DOCUMENT_BYTES, Scratch, make_scratch
from pipeline.kernels.stop_words import LANGUAGES, stop_word_table
from pipeline.kernels.text_pass import analyse_batch
from pipeline.kernels.unicode import character_table

_KEPT_BYTES = 1 << 20
_kept = threading.local()


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What one document of a batch is like, a column a number: every field is an int64 array of shape (n,).

    Rules: a *word* is a run of characters that are not white space (`str.split()`), as Rae et al. count them, in every
    script; those without spaces (Chinese, Japanese, Thai) so have one word a clause. Words are compared byte for byte,
    case and punctuation included. A *line* ends at "\\n", and a last "\\n" opens no further line; an *empty* line has
    no characters at all.
    """

    num_bytes: np.ndarray  # UTF-8
    num_chars: np.ndarray  # code points
    num_letters: np.ndarray  # str.isalpha
    num_cyrillic_letters: np.ndarray  # U+0400 to U+052F
    num_digits: np.ndarray  # digits and other numerals: str.isalnum, but no letter
    num_words: np.ndarray
    num_word_chars: np.ndarray  # characters inside words: all that are not white space
    num_symbol_words: np.ndarray  # words of nothing but punctuation (punctuation.py)
    num_symbol_word_chars: np.ndarray
    num_alphabetic_words: np.ndarray  # words with at least one letter
    num_hash_signs: np.ndarray  # "#"
    num_ellipses: np.ndarray  # "..." (not overlapping) and "…"
    num_curly_brackets: np.ndarray  # "{"
    num_lines: np.ndarray
    num_bullet_lines: np.ndarray  # the first character that is not white space is "•" or "-"
    num_ellipsis_lines: np.ndarray  # they end, white space aside, with "..." or "…"
    num_nonempty_lines: np.ndarray
    num_duplicate_lines: np.ndarray  # equal, byte for byte, to an earlier nonempty line of the document
    num_duplicate_line_chars: np.ndarray  # characters in them
    num_filled_lines: np.ndarray  # lines with a word
    num_terminal_lines: np.ndarray  # filled lines whose very last character ends a sentence, in any script
    num_short_lines: np.ndarray  # filled lines of at most 30 characters, white space among them
    num_duplicate_filled_line_chars: np.ndarray
    num_newlines: np.ndarray
    num_paragraphs: np.ndarray  # parted by one or more empty lines, white space around the text aside
    num_duplicate_paragraphs: np.ndarray  # equal, byte for byte, to an earlier one
    num_duplicate_paragraph_chars: np.ndarray
    num_prose_lines: np.ndarray  # lines C4 keeps: 3 words, none over 1,000 characters, an end like a sentence's
    num_prose_sentences: np.ndarray  # sentences in them (prose.py)
    num_curly_bracket_lines: np.ndarray  # prose lines with "{"
    num_lorem_ipsum_lines: np.ndarray  # lines like prose lines, with "lorem ipsum"
    num_top_2gram_repeats: np.ndarray  # how often the commonest run of two words occurs, the first of several
    num_top_2gram_chars: np.ndarray  # characters in all its occurrences, the space between words included
    num_top_3gram_repeats: np.ndarray
    num_top_3gram_chars: np.ndarray
    num_top_4gram_repeats: np.ndarray
    num_top_4gram_chars: np.ndarray
    num_duplicate_5gram_chars: np.ndarray  # characters of words in runs of five that occurred before, each once
    num_duplicate_6gram_chars: np.ndarray
    num_duplicate_7gram_chars: np.ndarray
    num_duplicate_8gram_chars: np.ndarray
    num_duplicate_9gram_chars: np.ndarray
    num_duplicate_10gram_chars: np.ndarray
    num_stop_words_en: np.ndarray  # how many different ones of STOP_WORDS["en"] occur, among runs of \\w, in any case
    num_stop_words_ru: np.ndarray
    text: pa.LargeStringArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        shapes = {column.shape for column in self.columns().values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise ValueError(f"each column of Statistics has one entry a document; got the shapes {sorted(shapes)}")

    def __len__(self) -> int:
        return len(self.num_bytes)

    def num_stop_words(self, language: str) -> np.ndarray:
        """How many different stop words of `language`, one of stop_words.LANGUAGES, each document has."""
        return self.columns()[f"num_stop_words_{language}"]

    @functools.cached_property
    def languages(self) -> Languages:
        """The language of each document: a kernel of its own, which runs when this is first asked for."""
        if self.text is None:
            raise ValueError("these statistics came without their text, so their languages cannot be told")
        return detect(self.text)

    def in_language(self, code: str) -> np.ndarray:
        """bool (n,): documents of one language. Where letters are too few for the model, Cyrillic ones are Russian."""
        told = self.languages.label == language_labels().index(code)
        script = 2 * self.num_cyrillic_letters > self.num_letters
        return np.where(self.num_letters < MIN_LETTERS, script & (code == "ru"), told)

    def columns(self) -> dict[str, np.ndarray]:
        """The numbers by name, in order."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name != "text"}


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of a batch for comparison: runs of `\\w` in simple lower case, each as a 64-bit hash, in order.

    Document i has hashes[offsets[i] : offsets[i + 1]]. hashes: uint64 (m,); offsets: int64 (n + 1,).
    """

    hashes: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        if self.hashes.dtype != np.uint64 or self.offsets.dtype != np.int64:
            raise ValueError(f"words are uint64 with int64 offsets, not {self.hashes.dtype} with {self.offsets.dtype}")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.hashes[start:end] for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True))


def analyse(text: pa.LargeStringArray) -> tuple[Statistics, Words]:
    """Statistics and word hashes of every document of `text`, in one pass over its bytes that holds no lock on Python.

    Raises ValueError for nulls or another Arrow type. Memory: 8 bytes a word (1.3 a byte of prose) and 120 a document.
    """
    data, offsets = text_buffers(text)
    num_documents = len(offsets) - 1
    counts = np.zeros((num_documents, len(COUNTED) + len(LANGUAGES)), dtype=np.int64)
    # A word takes two bytes with what parts it from the next; memory that is never written is never really taken.
    hashes = np.empty((offsets[-1] - offsets[0] + num_documents) // 2 + 1, dtype=np.uint64)
    word_offsets = np.zeros(num_documents + 1, dtype=np.int64)
    scratch = _scratch(int(np.diff(offsets).max(initial=0)))
    analyse_batch(data, offsets, character_table(), stop_word_table(), scratch, counts, hashes, word_offsets)
    names = (*COUNTED, *(f"num_stop_words_{language}" for language in LANGUAGES))
    columns = dict(zip(names, np.ascontiguousarray(counts.T), strict=True))
    return Statistics(**columns, text=text), Words(hashes=hashes[: word_offsets[-1]], offsets=word_offsets)


def _scratch(num_bytes: int) -> Scratch:
    """This thread's scratch; for a document larger than most, one of its own that is not kept."""
    if num_bytes > MAX_DOCUMENT_BYTES:
        raise ValueError(f"a document has {num_bytes} bytes, kernels take up to {MAX_DOCUMENT_BYTES}: cut it up before")
    if num_bytes > _KEPT_BYTES:
        return make_scratch(num_bytes)
    if not hasattr(_kept, "scratch"):
        _kept.scratch = make_scratch(_KEPT_BYTES)
    scratch: Scratch = _kept.scratch
    return scratch
