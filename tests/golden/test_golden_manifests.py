"""Bytes that data sets already written depend on. A change here means no older shard or digest is recognised any more:
such a change needs a new "format" in the manifest, not a new literal."""

import hashlib
import io

import numpy as np

from manifests import ExampleFormat, canonical_json, derived_seed, fingerprint, write_shard


def test_the_bytes_of_a_small_shard():
    """Relied on by every manifest's shard sha256, and by builds that find finished shards again."""
    stream = io.BytesIO()
    digest = write_shard(
        stream,
        [np.arange(15, dtype="<u4").reshape(3, 5)],
        version="v1",
        shard=7,
        num_examples=3,
        format=ExampleFormat(seq_len=5, dtype="uint32", packing="concat"),
    )
    assert hashlib.sha256(stream.getvalue()).hexdigest() == digest.sha256
    assert (digest.num_bytes, digest.sha256) == (
        4096,
        "d17afb725b6e3d6060700ab0bdec1176047b1ab5627c82b850e36d92883fcb1f",
    )


def test_the_spelling_of_canonical_json():
    """Relied on by every digest."""
    assert (
        canonical_json({"ё": 1e-7, "a": [1.0, -0.0, 10**20]})
        == '{"a":[1.0,-0.0,100000000000000000000],"ё":1e-07}'.encode()
    )
    assert fingerprint({"seed": 0}) == "sha256:bd0488843468e63c62bb6d1df790f0a83de90616c0906e9dbd3275d3b4100d97"


def test_derived_seeds():
    """Relied on by the loader's order and the pipeline's order of documents: another seed is another data set."""
    assert derived_seed("shards", 0, 0) == 8_201_702_638_499_183_436
    assert derived_seed("window", 42, 1, 3, 0) == 4_370_076_588_148_271_872
