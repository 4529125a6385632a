"""The numbers the text pass leaves of a document, by column of its `counts`. text.py says what each is."""

COUNTED = (
    "num_bytes",
    "num_chars",
    "num_letters",
    "num_cyrillic_letters",
    "num_digits",
    "num_words",
    "num_word_chars",
    "num_symbol_words",
    "num_symbol_word_chars",
    "num_alphabetic_words",
    "num_hash_signs",
    "num_ellipses",
    "num_curly_brackets",
    "num_lines",
    "num_bullet_lines",
    "num_ellipsis_lines",
    "num_nonempty_lines",
    "num_duplicate_lines",
    "num_duplicate_line_chars",
    "num_filled_lines",
    "num_terminal_lines",
    "num_short_lines",
    "num_duplicate_filled_line_chars",
    "num_newlines",
    "num_paragraphs",
    "num_duplicate_paragraphs",
    "num_duplicate_paragraph_chars",
    "num_prose_lines",
    "num_prose_sentences",
    "num_curly_bracket_lines",
    "num_lorem_ipsum_lines",
    "num_top_2gram_repeats",
    "num_top_2gram_chars",
    "num_top_3gram_repeats",
    "num_top_3gram_chars",
    "num_top_4gram_repeats",
    "num_top_4gram_chars",
    "num_duplicate_5gram_chars",
    "num_duplicate_6gram_chars",
    "num_duplicate_7gram_chars",
    "num_duplicate_8gram_chars",
    "num_duplicate_9gram_chars",
    "num_duplicate_10gram_chars",
)
NUM_BYTES, NUM_CHARS, NUM_LETTERS, NUM_CYRILLIC_LETTERS, NUM_DIGITS = range(5)
NUM_WORDS, NUM_WORD_CHARS, NUM_SYMBOL_WORDS, NUM_SYMBOL_WORD_CHARS, NUM_ALPHABETIC_WORDS = range(5, 10)
NUM_HASH_SIGNS, NUM_ELLIPSES, NUM_CURLY_BRACKETS = range(10, 13)
NUM_LINES, NUM_BULLET_LINES, NUM_ELLIPSIS_LINES = range(13, 16)
NUM_NONEMPTY_LINES, NUM_DUPLICATE_LINES, NUM_DUPLICATE_LINE_CHARS = range(16, 19)
NUM_FILLED_LINES, NUM_TERMINAL_LINES, NUM_SHORT_LINES, NUM_DUPLICATE_FILLED_LINE_CHARS, NUM_NEWLINES = range(19, 24)
NUM_PARAGRAPHS, NUM_DUPLICATE_PARAGRAPHS, NUM_DUPLICATE_PARAGRAPH_CHARS = range(24, 27)
NUM_PROSE_LINES, NUM_PROSE_SENTENCES, NUM_CURLY_BRACKET_LINES, NUM_LOREM_IPSUM_LINES = range(27, 31)
FIRST_TOP_NGRAM = 31
"""Repeats and characters of the top 2-, 3- and 4-gram: two columns each."""
FIRST_DUPLICATE_NGRAM = 37
"""Characters of duplicate 5- to 10-grams."""
