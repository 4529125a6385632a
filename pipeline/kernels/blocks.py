"""What every byte of a document is, sixty-four at a time: a comparison of a block gives a uint64 with a bit a byte.

Where words and runs of \\w begin and end, how many characters are letters, which words hold none: all of it is
arithmetic on such bits, a few instructions a block. ASCII and the letters of Russian and its neighbours (U+0400 to
U+045F, two bytes each) need nothing else; any other character is decoded and looked up in the table, one by one, and
sets bits of its own.
"""

from typing import Any

import numpy as np

from pipeline.kernels import columns
from pipeline.kernels.bits import add_where, bits_between, copy_block, count_ones, count_trailing_zeros
from pipeline.kernels.compiled import inlined, lean
from pipeline.kernels.scratch import AFTER, FIRST, num_before, num_between
from pipeline.kernels.unicode import (
    LETTER,
    LOWER_MASK,
    LOWER_SIZE_MASK,
    LOWER_SIZE_SHIFT,
    PUNCTUATION,
    SPACE,
    WORD,
    decode_multibyte,
    encode_four,
)

_0, _1, _2, _62, _63 = (np.uint64(number) for number in (0, 1, 2, 62, 63))
_EVERY_BIT = np.uint64(0xFFFFFFFFFFFFFFFF)
_ELLIPSIS = np.uint32(ord("…"))
_FIRST_CYRILLIC, _NUM_CYRILLIC = np.uint32(0x400), np.uint32(0x130)  # the blocks Cyrillic and Cyrillic Supplement

# What any word of more than 1,000 bytes fills entirely: 63 and 63 bytes of it may lie in blocks before and behind.
_LONG_WORD_BLOCKS = 14


@lean
def mark_document(data: Any, start: Any, end: Any, scratch: Any, table: Any, count: Any) -> Any:
    """Mark data[start:end] in `scratch` and fill the columns of characters and words.

    Returns (place behind the document, \\w runs, whether lower case takes other numbers of bytes than the text has).
    """
    text, lower = scratch.text, scratch.lower
    size = end - start
    behind = FIRST + size
    copy_document(data, start, size, text)
    copy_document(data, start, size, lower)

    num_characters = num_word_characters = num_words = num_sentences = num_edges = num_run_edges = num_newlines = 0
    num_letters = num_digits = num_cyrillic = num_hash_signs = num_curly_brackets = num_ellipses = 0
    num_symbol_words = num_symbol_characters = num_plain_words = num_dots = num_full = longest_full = 0
    # What the block before hands on: bit 0 of each is about this block's first byte.
    was_filled = was_run = was_cyrillic = was_mark = was_closing = symbols_so_far = plain_so_far = _0
    space_ahead = run_ahead = _0
    was_dot = _0  # the last two bytes
    other_lower = False
    # Up to the block of the place behind `behind`, which num_before of a line's last mark asks for.
    num_blocks = ((behind + 1) >> 6) + 1
    for block in range(FIRST >> 6, num_blocks):
        first = block << 6
        spaces = bits_between(text, first, 0x20, 0x20) | bits_between(text, first, 0x09, 0x0D)
        spaces |= bits_between(text, first, 0x1C, 0x1F)
        newlines = bits_between(text, first, 0x0A, 0x0A)
        capitals = bits_between(text, first, 0x41, 0x5A)
        letters = capitals | bits_between(text, first, 0x61, 0x7A)
        digits = bits_between(text, first, 0x30, 0x39)
        runs = letters | digits | bits_between(text, first, 0x5F, 0x5F)
        dots = bits_between(text, first, 0x2E, 0x2E)
        marks = dots | bits_between(text, first, 0x21, 0x21) | bits_between(text, first, 0x3F, 0x3F)
        closing = bits_between(text, first, 0x22, 0x22) | bits_between(text, first, 0x27, 0x27)
        closing |= bits_between(text, first, 0x29, 0x29) | bits_between(text, first, 0x5D, 0x5D)
        closing |= bits_between(text, first, 0x7D, 0x7D)
        num_hash_signs += count_ones(bits_between(text, first, 0x23, 0x23))
        num_curly_brackets += count_ones(bits_between(text, first, 0x7B, 0x7B))
        foreign = bits_between(text, first, 0x80, 0xFF)
        more = letters | digits
        num_digits += count_ones(digits)
        add_where(lower, first, capitals, 0x20)
        leads = _EVERY_BIT
        if foreign:  # also where a character goes on from the block before
            leads = ~bits_between(text, first, 0x80, 0xBF)
            cyrillic = cyrillic_leads(text, first)
            both = cyrillic | (cyrillic << _1) | was_cyrillic
            was_cyrillic = cyrillic >> _63
            letters |= cyrillic
            more |= cyrillic
            runs |= both | run_ahead
            spaces |= space_ahead
            num_cyrillic += count_ones(cyrillic)
            # » ” ’ … by their last bytes
            last_bytes = bits_between(text, first, 0xBB, 0xBB) | bits_between(text, first, 0x9D, 0x9D)
            last_bytes |= bits_between(text, first, 0x99, 0x99) | bits_between(text, first, 0xA6, 0xA6)
            closing |= last_bytes & ~both
            lower_cyrillic(text, lower, first)
            run_ahead = space_ahead = _0
            others = foreign & ~both & leads
            while others:
                bit = count_trailing_zeros(others)
                others &= others - _1
                place = first + np.intp(bit)
                code_point, after = decode_multibyte(text, place)
                entry = table[code_point]
                num_bytes = np.uint64(after - place)
                all_bytes = (_1 << num_bytes) - _1
                beyond = (all_bytes >> (_63 - bit)) >> _1
                if entry & SPACE:
                    spaces |= all_bytes << bit
                    space_ahead = beyond
                    continue
                if not entry & PUNCTUATION:
                    more |= _1 << bit
                if entry & WORD:
                    runs |= all_bytes << bit
                    run_ahead = beyond
                    if entry & LETTER:
                        letters |= _1 << bit
                        num_cyrillic += np.uint32(code_point - _FIRST_CYRILLIC) < _NUM_CYRILLIC
                    else:
                        num_digits += 1
                    other_lower |= lower_other(lower, place, num_bytes, entry)
                num_ellipses += code_point == _ELLIPSIS
        filled = ~spaces
        num_full = num_full + 1 if filled == _EVERY_BIT else 0
        longest_full = max(longest_full, num_full)
        edges = filled ^ ((filled << _1) | was_filled)
        starts, ends = edges & filled, edges & ~filled
        scratch.characters.bits[block] = leads
        scratch.characters.before[block] = num_characters
        scratch.word_characters.bits[block] = leads & filled
        scratch.word_characters.before[block] = num_word_characters
        scratch.words.bits[block] = starts
        scratch.words.before[block] = num_words
        ended = ((marks << _1) | was_mark) & ends
        scratch.sentences.bits[block] = ended
        scratch.sentences.before[block] = num_sentences
        scratch.closing[block] = ((closing << _1) | was_closing) & ends
        num_sentences += count_ones(ended)
        num_characters += count_ones(leads)
        num_word_characters += count_ones(leads & filled)
        num_letters += count_ones(letters & leads)
        # Words of symbols alone, words without a letter: see _unbroken.
        symbol_ends, symbols_so_far = _unbroken(starts, filled & ~more, symbols_so_far)
        plain_ends, plain_so_far = _unbroken(starts, filled & ~letters, plain_so_far)
        num_plain_words += count_ones(plain_ends & ~filled)
        num_edges = emit_places(scratch.word_edges, num_edges, edges, first, 8)
        symbol_ends &= ~filled
        num_symbol_words += count_ones(symbol_ends)
        while symbol_ends:
            bit = count_trailing_zeros(symbol_ends)
            symbol_ends &= symbol_ends - _1
            place = first + np.intp(bit)
            word = num_before(scratch.words, place) - 1
            num_symbol_characters += num_between(scratch.word_characters, scratch.word_edges[2 * word], place)
        num_words += count_ones(starts)
        run_edges = runs ^ ((runs << _1) | was_run)
        num_run_edges = emit_places(scratch.run_edges, num_run_edges, run_edges, first, 8)
        num_newlines = emit_places(scratch.newlines, num_newlines, newlines, first, 1)
        # Three dots in a row?
        if dots & ((dots << _1) | (was_dot >> _1)) & ((dots << _2) | was_dot):
            for bit in range(64):
                is_dot = (dots >> np.uint64(bit)) & _1 != 0
                num_dots = num_dots + 1 if is_dot else 0
                num_ellipses += is_dot and num_dots % 3 == 0
        else:
            num_dots = int(dots >> _63) * (1 + int((dots >> _62) & _1))
        was_dot = dots >> _62
        was_filled, was_run, was_mark, was_closing = filled >> _63, runs >> _63, marks >> _63, closing >> _63

    num_padding = (num_blocks << 6) - behind
    count[columns.NUM_BYTES] = size
    count[columns.NUM_CHARS] = num_characters - num_padding
    count[columns.NUM_LETTERS] = num_letters
    count[columns.NUM_CYRILLIC_LETTERS] = num_cyrillic
    count[columns.NUM_DIGITS] = num_digits
    count[columns.NUM_WORDS] = num_words
    count[columns.NUM_WORD_CHARS] = num_word_characters
    count[columns.NUM_SYMBOL_WORDS] = num_symbol_words
    count[columns.NUM_SYMBOL_WORD_CHARS] = num_symbol_characters
    count[columns.NUM_ALPHABETIC_WORDS] = num_words - num_plain_words
    count[columns.NUM_HASH_SIGNS] = num_hash_signs
    count[columns.NUM_ELLIPSES] = num_ellipses
    count[columns.NUM_CURLY_BRACKETS] = num_curly_brackets
    count[columns.NUM_NEWLINES] = num_newlines
    return behind, num_run_edges >> 1, other_lower, longest_full >= _LONG_WORD_BLOCKS


@inlined
def copy_document(data: Any, start: Any, size: Any, text: Any) -> None:
    """data[start : start + size] to text[FIRST:], between spaces."""
    copy_piece(data, start, size, text, FIRST)
    put_spaces(text, size)


@inlined
def copy_piece(data: Any, start: Any, size: Any, text: Any, target: Any) -> None:
    """data[start : start + size] to text[target:]."""
    whole = size & ~63
    for place in range(0, whole, 64):
        copy_block(data, start + place, text, target + place)
    for place in range(whole, size):
        text[target + place] = data[start + place]


@inlined
def put_spaces(text: Any, size: Any) -> None:
    """Spaces before and behind text[FIRST : FIRST + size]."""
    for place in range(FIRST):
        text[place] = 0x20
    for place in range(FIRST + size, FIRST + size + AFTER):
        text[place] = 0x20


@inlined
def emit_places(places: Any, number: Any, bits: Any, first: Any, turns: Any) -> Any:
    """Append first + i to `places` for every bit i that is set; up to seven places behind them are written as well.

    Eight a turn, since how many bits are set cannot be foretold and each wrong guess costs as much as five of them.
    """
    behind = number + count_ones(bits)
    while number < behind:
        for turn in range(turns):
            places[np.uint64(number + turn)] = np.int32(first + np.intp(count_trailing_zeros(bits)))
            bits &= bits - _1
        number += turns
    return behind


@inlined
def _unbroken(starts: Any, bits: Any, so_far: Any) -> Any:
    """(sum, whether the word still open consists of `bits` alone): which words do, by one addition.

    A one added where such a word begins ripples through its bits and stays in the place behind its last one, where
    `bits` has none; any other word stops it inside. `so_far` is the ripple that came in from the block before.
    """
    total = bits + (bits & starts)
    carry = total < bits
    total += so_far
    carry |= total < so_far
    return total, np.uint64(carry)


@inlined
def cyrillic_leads(text: Any, first: Any) -> Any:
    """Where a letter of U+0400 to U+045F begins: D0, or D1 before 80-9F."""
    low = bits_between(text, first + 1, 0x80, 0x9F)
    return bits_between(text, first, 0xD0, 0xD0) | (bits_between(text, first, 0xD1, 0xD1) & low)


@inlined
def lower_cyrillic(text: Any, lower: Any, first: Any) -> None:
    """U+0400-042F in lower case, both bytes of each.

    Ѐ-Џ: D0 80-8F -> D1 90-9F; А-П: D0 90-9F -> D0 B0-BF; Р-Я: D0 A0-AF -> D1 80-8F.
    """
    after = bits_between(text, first - 1, 0xD0, 0xD0)
    eighties = bits_between(text, first, 0x80, 0x8F)
    nineties = bits_between(text, first, 0x90, 0x9F)
    tens = bits_between(text, first, 0xA0, 0xAF)
    next_changes = bits_between(text, first + 1, 0x80, 0x8F) | bits_between(text, first + 1, 0xA0, 0xAF)
    add_where(lower, first, bits_between(text, first, 0xD0, 0xD0) & next_changes, 1)
    add_where(lower, first, after & eighties, 0x10)
    add_where(lower, first, after & nineties, 0x20)
    add_where(lower, first, after & tens, 0xE0)


@inlined
def lower_other(lower: Any, place: Any, num_bytes: Any, entry: Any) -> Any:
    """Write a character's lower case; True if it takes another number of bytes, and was not written."""
    size = np.uint64((entry >> LOWER_SIZE_SHIFT) & LOWER_SIZE_MASK)
    if size != num_bytes:
        return True
    encoded = np.uint64(entry & LOWER_MASK)
    if size == 4:
        encoded = encode_four(encoded)
    for byte in range(size):
        lower[place + np.intp(byte)] = np.uint8(encoded >> (np.uint64(8) * byte))
    return False
