"""What C4 asks of a line: how it ends, how many sentences it has, and whether it holds one of a few phrases.

A *sentence* ends with a word that ends in one of . ? ! …, closing quotes and brackets aside; what is left at the end of
a line is one more. `Dr. Who` is two by this rule and by any that knows no language.
"""

from typing import Any

import numpy as np

from pipeline.kernels.bits import bits_between, count_trailing_zeros
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.scratch import num_before, num_between
from pipeline.kernels.unicode import decode_multibyte

# A document's set of words (stop_words.py) says which of these may occur in it at all; only then lines are searched.
LOREM_IPSUM = ("lorem ipsum",)
SKIPPED = (
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
HAS_LOREM_IPSUM, HAS_SKIPPED = np.uint64(1), np.uint64(2)

_PHRASES = np.frombuffer("".join((*LOREM_IPSUM, *SKIPPED)).encode(), dtype=np.uint8)
_PHRASE_ENDS = np.cumsum([len(phrase) for phrase in (*LOREM_IPSUM, *SKIPPED)])
_NUM_LOREM_IPSUM = len(LOREM_IPSUM)

_CLOSING = "\"')]}»”’"
_DOT, _QUESTION, _EXCLAMATION, _ELLIPSIS = (np.uint32(ord(mark)) for mark in ".?!…")
_CLOSING_CODES = np.array([ord(mark) for mark in _CLOSING], np.uint32)
_PROSE_ENDS = np.zeros(256, np.bool_)
_PROSE_ENDS[[ord(mark) for mark in ".?!\"'"]] = True
_EDIT, _NEEDED = (np.frombuffer(word.encode(), dtype=np.uint8) for word in ("edit", "citation needed"))
_OPEN, _CLOSE = ord("["), ord("]")


@inlined
def ends_prose(data: Any, start: Any, end: Any) -> Any:
    """Whether data[start:end] ends in one of . ? ! " ' and not in "...", marks like [12], [edit] at its end aside."""
    if data[end - 1] == _CLOSE:
        end = _before_citations(data, start, end)
        if end == start:
            return False
    last = data[end - 1]
    dots = end - start >= 3 and last == _DOT and data[end - 2] == _DOT and data[end - 3] == _DOT
    return _PROSE_ENDS[last] and not dots


@lean
def _before_citations(data: Any, start: Any, end: Any) -> Any:
    """Where the citation marks at the end of data[start:end] begin; `end` if there are none."""
    while end > start and data[end - 1] == _CLOSE:
        opening = end - 2
        while opening >= start and data[opening] != _OPEN:
            opening -= 1
        if opening < start:
            return end
        length = end - 1 - (opening + 1)
        digits = True
        for position in range(opening + 1, end - 1):
            digits &= ord("0") <= data[position] <= ord("9")
        edit = length == len(_EDIT) and _equal(data, opening + 1, _EDIT)
        needed = length == len(_NEEDED) and _equal(data, opening + 1, _NEEDED)
        if not (digits or edit or needed):
            return end
        end = opening
    return end


@inlined
def _equal(data: Any, start: Any, word: Any) -> Any:
    same = True
    for position in range(len(word)):
        same &= data[start + position] == word[position]
    return same


@inlined
def num_sentences(scratch: Any, line: Any, line_end: Any, next_word: Any) -> Any:
    """Sentences in the marked line text[line:line_end], whose last word is the one before `next_word`."""
    text, edges = scratch.text, scratch.word_edges
    # A word is marked at the place behind it, so a line's marks lie in line + 1 .. line_end; at `line` there is none.
    total = num_between(scratch.sentences, line, line_end + 1)
    last_ended = num_between(scratch.sentences, edges[2 * next_word - 1], edges[2 * next_word - 1] + 1) != 0
    for block in range(line >> 6, (line_end >> 6) + 1):
        closing = scratch.closing[block]
        while closing:
            place = (block << 6) + np.intp(count_trailing_zeros(closing))
            closing &= closing - np.uint64(1)
            if line < place <= line_end:
                word = num_before(scratch.words, place) - 1
                if _ends_sentence(text, edges[2 * word], place):
                    total += 1
                    last_ended |= word == next_word - 1
    return total + (not last_ended)


@lean
def _ends_sentence(data: Any, start: Any, end: Any) -> Any:
    """Whether data[start:end] ends in a sentence's mark, closing marks and citations aside."""
    end = _before_citations(data, start, end)
    while end > start:
        position = end - 1
        while position > start and data[position] & 0xC0 == 0x80:
            position -= 1
        last = np.uint32(data[position])
        if last >= 0x80:
            last, _ = decode_multibyte(data, position)
        if last in (_DOT, _QUESTION, _EXCLAMATION, _ELLIPSIS):
            return True
        closing = False
        for code in _CLOSING_CODES:
            closing |= code == last
        if not closing:
            return False
        end = position
    return False


@lean
def has_any(lower: Any, start: Any, end: Any, wanted: Any) -> Any:
    """Whether a line, in lower case, holds one of the wanted phrases."""
    first = 0 if wanted & HAS_LOREM_IPSUM else _NUM_LOREM_IPSUM
    last = len(_PHRASE_ENDS) if wanted & HAS_SKIPPED else _NUM_LOREM_IPSUM
    for phrase in range(first, last):
        phrase_start = 0 if phrase == 0 else _PHRASE_ENDS[phrase - 1]
        length = _PHRASE_ENDS[phrase] - phrase_start
        one, two = _PHRASES[phrase_start], _PHRASES[phrase_start + 1]
        for place in range(start, end, 64):
            begins = bits_between(lower, place, one, one) & bits_between(lower, place + 1, two, two)
            while begins:
                begin = place + np.intp(count_trailing_zeros(begins))
                begins &= begins - np.uint64(1)
                same = 2
                while same < length and lower[begin + same] == _PHRASES[phrase_start + same]:
                    same += 1
                if same == length and begin + length <= end:
                    return True
    return False
