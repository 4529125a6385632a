"""Deduplication: pure functions from columns to columns; where the columns come from and go to is not known here.

1. exact.py       texts -> a 128-bit content hash each: equal hash, equal normalised text
2. minhash.py     words -> signatures, and the shingle sets that decide
3. bands.py       signatures -> band hashes -> candidate pairs, at most n - 1 from a bucket of n
4. verify.py      shingle sets, pairs -> exact Jaccard similarity
5. components.py  verified pairs -> which document each dropped one is dropped for

LSH only proposes (3); a document is dropped only for one that is kept and that it was compared with (4, 5).
"""
