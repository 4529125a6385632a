"""A document's identity decides its place, split and repeats."""

import numpy as np

from pipeline.identity import identities, num_copies

HASH = bytes(range(16))


GOLDEN = "1f5f6162846aaebc091cb9219176452db4fc2edbe36560a3c808f3b0982d8a63"


def test_the_key_of_a_known_document_is_pinned() -> None:
    # Data sets depend on it: another value puts every document elsewhere.
    assert identities(0, "docs", ["a"], [HASH]).digests.tobytes().hex() == GOLDEN


def test_seed_source_id_content_and_copy_each_give_another_key() -> None:
    keys = [
        identities(0, "docs", ["a"], [HASH]).keys,
        identities(1, "docs", ["a"], [HASH]).keys,
        identities(0, "mail", ["a"], [HASH]).keys,
        identities(0, "docs", ["b"], [HASH]).keys,
        identities(0, "docs", ["a"], [HASH[::-1]]).keys,
        identities(0, "docs", ["a"], [HASH], repeat=1).keys,
    ]
    assert len({key.tobytes() for key in keys}) == 6


def test_keys_compare_as_their_bytes_do() -> None:
    many = identities(0, "docs", [str(i) for i in range(500)], [HASH] * 500)
    by_number = sorted(range(500), key=lambda i: tuple(many.keys[i]))
    by_bytes = sorted(range(500), key=lambda i: many.digests[i, :16].tobytes())
    assert by_number == by_bytes


def test_draws_are_even_and_independent_of_the_key() -> None:
    many = identities(7, "docs", [str(i) for i in range(20_000)], [HASH] * 20_000)
    for draws in (many.validation_draws, many.repeat_draws):
        assert draws.min() >= 0
        assert draws.max() < 1
        # The mean of 20,000 even draws has a standard deviation of 0.002.
        assert abs(draws.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(many.validation_draws, many.repeat_draws)[0, 1]) < 0.03


def test_a_weight_repeats_whole_and_the_rest_by_draw() -> None:
    draws = np.array([0.0, 0.49, 0.5, 0.99])
    assert num_copies(2.5, draws).tolist() == [3, 3, 2, 2]
    assert num_copies(1.0, draws).tolist() == [1, 1, 1, 1]
    assert num_copies(0.5, draws).tolist() == [1, 1, 0, 0]
