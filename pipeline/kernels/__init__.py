"""Kernels: numba loops over the UTF-8 bytes of a whole batch of documents, and nothing else in the package is hot.

1. arrow.py         an Arrow array as bytes and offsets, without a copy
2. unicode.py       what each character is: one table, of one pinned Unicode version (unicode_ranges.py)
3. bits.py          eight and sixty-four bytes at once;  hashing.py  the hashes that are stored for ever
4. text_pass.py     the loop over documents: scratch.py, blocks.py, lines.py with prose.py, ngrams.py;
                    text.py  its door: analyse -> Statistics, Words;  words.py  the words alone
5. language.py      fastText's arithmetic;  language_model.py  its model, read from the file as it is published
6. json_strings.py  JSON strings as they are spelled -> text, for the reader of JSON lines
7. compiled.py      how kernels are compiled and cached;  warm.py  compiles all of them before the first batch
"""
