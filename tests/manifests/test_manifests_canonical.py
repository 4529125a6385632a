import enum
import hashlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests import CanonicalError, canonical_json, derived_seed, fingerprint

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Lone surrogates are the one text UTF-8 does not have.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_keys_are_sorted_and_non_ascii_stands_unescaped():
    assert canonical_json({"б": [1, 2.5, True, None], "a": "щ\n"}) == '{"a":"щ\\n","б":[1,2.5,true,null]}'.encode()


def test_a_fingerprint_is_the_sha256_of_the_canonical_bytes():
    assert fingerprint({}) == "sha256:" + hashlib.sha256(b"{}").hexdigest()


def test_a_derived_seed_reads_the_digest_little_endian():
    digest = hashlib.sha256(b'["window",42,1]').digest()
    assert derived_seed("window", 42, 1) == int.from_bytes(digest[:8], "little")


def test_seeds_of_neighbouring_parts_differ():
    assert derived_seed(42, 1) != derived_seed(43, 0)
    assert derived_seed("4", 2) != derived_seed(4, "2")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"dedup": {"threshold": math.nan}}, "value.dedup.threshold is nan"),
        ([1, math.inf], r"value\[1\] is inf"),
        ({"a": {1: "x"}}, "value.a has the key 1 of type int"),
        ({"a": {1, 2}}, "value.a is of type builtins.set"),
        ({"a": b"x"}, "value.a is of type builtins.bytes"),
        ([np.int64(3)], r"value\[0\] is of type numpy.int64"),
        (enum.IntEnum("Kind", "A").A, "value is of type .*Kind"),
        ("\ud83d", "lone surrogate"),
    ],
)
def test_what_has_no_one_spelling_is_refused_with_its_place(value, message):
    with pytest.raises(CanonicalError, match=message):
        canonical_json(value)


@settings(max_examples=200, deadline=None)
@given(JSON_VALUES)
def test_canonical_json_reads_back_to_the_same_value_and_bytes(value):
    written = canonical_json(value)
    assert canonical_json(json.loads(written)) == written
    assert json.loads(written) == value
