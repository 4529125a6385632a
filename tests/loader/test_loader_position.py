"""The saved position: what it is, and what it says when it does not fit."""

import json
from pathlib import Path

import pytest

from loader import Loader
from loader.position import PositionError
from manifests.errors import UserError
from tests.loader.loader_datasets import numbered_dataset, numbered_rows, write_dataset


def test_the_state_is_this_small_json_object(unequal: str) -> None:
    loader = Loader(unequal, global_batch=4, lanes=2, seed=3, window_shards=2, micro_batch=2)
    loader.advance()
    state = loader.state_dict()
    # Checkpoints hold this. A program that reads it must go on being able to.
    assert {key: value for key, value in state.items() if key not in ("manifest", "shards")} == {
        "format": "shardmill-position/1",
        "split": "train",
        "seed": 3,
        "epoch": 0,
        "examples_consumed": 4,
        "lanes": 2,
        "window_shards": 2,
        "global_batch": 4,
    }
    assert state["manifest"].startswith("sha256:")
    assert state["shards"].startswith("sha256:")
    assert len(json.dumps(state)) < 500


def test_the_state_is_equal_on_all_ranks(unequal: str) -> None:
    states = []
    for rank in range(3):
        loader = Loader(unequal, global_batch=4, rank=rank, world_size=3)
        loader.advance()
        states.append(loader.state_dict())
    assert states[0] == states[1] == states[2]


def test_the_end_of_an_epoch_is_the_head_of_the_next(unequal: str) -> None:
    loader = Loader(unequal, global_batch=8)
    assert loader.steps_per_epoch == 9  # 78 examples, 8 lanes of 9
    places = []
    for _ in range(10):
        loader.advance()
        places.append((loader.epoch, loader.examples_consumed))
    assert places == [*((0, 8 * step) for step in range(1, 9)), (1, 0), (1, 8)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed is 1 in the saved state and 0 here"),
        ({"window_shards": 2}, "window_shards is 2 in the saved state and 1 here"),
        ({"split": "validation"}, "split is 'validation' in the saved state and 'train' here"),
        ({"lanes": 2}, "lanes is 2 in the saved state and 4 here; the lanes are fixed for a run, so give lanes=2"),
        ({"examples_consumed": 3}, "examples_consumed is 3, not a multiple of the 4 lanes"),
        ({"epoch": -1}, "epoch is -1, below 0"),
        (
            {"examples_consumed": 4_000_000_000},
            "examples_consumed is 4000000000 in the saved state, but 4 lanes of this split hold 76 examples an epoch",
        ),
        ({"examples_consumed": 4e9}, "examples_consumed is 4000000000.0"),
        (
            {"format": "shardmill-position/2"},
            "format 'shardmill-position/2', this program reads 'shardmill-position/1'",
        ),
        ({"rank": 0}, "unknown keys .'rank'"),
        ({"seed": "0"}, "seed is '0'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_with_both_values(
    unequal: str, changed: dict[str, object], message: str
) -> None:
    loader = Loader(unequal, global_batch=4, lanes=4)
    before = loader.state_dict()
    with pytest.raises(UserError, match=message) as refusal:
        loader.load_state_dict(before | changed)
    assert "\n" not in str(refusal.value)
    assert loader.state_dict() == before


def test_the_global_batch_may_become_another_multiple_of_the_lanes_at_any_step(unequal: str) -> None:
    small = Loader(unequal, global_batch=4)
    small.advance()
    large = Loader(unequal, global_batch=12)
    large.load_state_dict(small.state_dict())
    assert (large.state_dict()["lanes"], large.state_dict()["global_batch"]) == (4, 12)
    following = []
    for _ in range(3):
        following.append(small.global_batch_examples())
        small.advance()
    # Lane by lane: the large batch takes from each lane what the three small ones took, and goes on after them.
    assert large.global_batch_examples() == [batch[lane] for lane in range(4) for batch in following]
    large.advance()
    assert large.examples_consumed == small.examples_consumed == 16


def test_a_global_batch_that_is_no_multiple_is_refused_with_both_numbers(unequal: str) -> None:
    state = Loader(unequal, global_batch=4).state_dict()
    with pytest.raises(
        PositionError, match=r"global_batch is 6 here, not a multiple of the 4 lanes .* give a multiple of 4"
    ):
        Loader(unequal, global_batch=6).load_state_dict(state)


def test_a_larger_batch_that_no_longer_fits_into_the_epoch_begins_the_next(unequal: str) -> None:
    small = Loader(unequal, global_batch=8)
    for _ in range(8):
        small.advance()
    large = Loader(unequal, global_batch=16)
    large.load_state_dict(small.state_dict())
    assert (large.epoch, large.examples_consumed) == (1, 0)


def test_equal_shards_under_another_name_and_place_are_accepted(unequal: str, tmp_path: Path) -> None:
    loader = Loader(numbered_dataset(tmp_path / "a", (5, 6)), global_batch=2)
    loader.advance()
    elsewhere = Loader(numbered_dataset(tmp_path / "b", (5, 6), folder="other/place"), global_batch=2)
    assert elsewhere.state_dict()["manifest"] != loader.state_dict()["manifest"]
    elsewhere.load_state_dict(loader.state_dict())
    assert elsewhere.examples_consumed == 2


def test_a_changed_shard_is_named(tmp_path: Path) -> None:
    old = Loader(numbered_dataset(tmp_path, (5, 6, 7)), global_batch=2)
    rows = [numbered_rows(number, size) for number, size in enumerate((5, 6, 7))]
    rows[1] = rows[1] + 1 - (rows[1] == 1)
    new = Loader(write_dataset(str(tmp_path), rows, version="v2"), global_batch=2)
    with pytest.raises(
        PositionError, match=r"first at shard 0: shards/train/v1-000000.tar .* became shards/train/v2-000000"
    ):
        new.load_state_dict(old.state_dict())


def test_an_added_shard_is_named_and_a_lost_manifest_leaves_the_digests(tmp_path: Path) -> None:
    old = Loader(numbered_dataset(tmp_path / "old", (5, 6)), global_batch=2)
    new = Loader(numbered_dataset(tmp_path / "new", (5, 6, 7)), global_batch=2)
    with pytest.raises(
        PositionError, match=r"this loader's is sha256:\w+ with shards sha256:\w+: the data differ; train on"
    ):
        new.load_state_dict(old.state_dict())
    kept = tmp_path / "old" / "manifests" / "v1.json"
    kept.rename(tmp_path / "new" / "manifests" / "v0.json")
    with pytest.raises(PositionError, match=r"first at shard 2: shards/train/v1-000002.tar is new here"):
        new.load_state_dict(old.state_dict())
