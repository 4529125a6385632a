"""Compile every kernel, or load it from the cache, before the first batch: once a worker, 0.4 s when cached."""

import numpy as np
import pyarrow as pa

from pipeline.dedup.bands import band_hashes
from pipeline.dedup.components import empty_edges, settle
from pipeline.dedup.exact import content_hashes, text_hashes
from pipeline.dedup.minhash import shingle_sets, signatures
from pipeline.dedup.templates import core_words, find_lines, line_hashes
from pipeline.dedup.verify import jaccard_pairs
from pipeline.kernels.json_strings import text_array
from pipeline.kernels.text import analyse
from pipeline.kernels.words import words_of


def warm_up() -> None:
    """Call each kernel once on two small documents, with the types that every caller's arrays are turned into."""
    text_array([b'"one"'], scalars=False)
    text = pa.array(["one document of six words", "another document of six words"], pa.large_string())
    statistics, words = analyse(text)
    _ = statistics.languages
    content_hashes(text)
    text_hashes(text)
    core_words(text, lines := line_hashes(text)[0])
    find_lines(text, lines)
    words_of(text)
    band_hashes(signatures(words)[0])
    pairs = np.array([[1, 0]], dtype=np.int64)
    jaccard_pairs(*shingle_sets(words), pairs)
    settle(empty_edges(), np.empty(0, np.uint8), 0, len(text))
