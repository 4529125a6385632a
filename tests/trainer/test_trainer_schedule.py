"""The learning rate is a closed form of consumed examples."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.schedule import Schedule, scaled_rate, warmup_examples


def schedule(**changes: object) -> Schedule:
    values = {"peak": 1.0, "total": 100, "warmup": 20, "shape": "cosine", "floor_fraction": 0.1} | changes
    return Schedule(**values)


def test_warm_up_is_a_straight_line_whose_first_step_moves() -> None:
    assert [schedule(warmup=32).rate(consumed) for consumed in (8, 16, 24, 32)] == [0.25, 0.5, 0.75, 1.0]


def test_cosine_is_half_way_down_in_the_middle_and_at_the_floor_at_the_end() -> None:
    assert schedule().rate(60) == pytest.approx(0.55)
    assert schedule().rate(100) == pytest.approx(0.1)


def test_linear_falls_by_equal_amounts() -> None:
    rates = [schedule(shape="linear", floor_fraction=0.0).rate(consumed) for consumed in (20, 40, 60, 80, 100)]
    assert rates == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])


def test_constant_holds_and_falls_only_in_its_last_part() -> None:
    held = schedule(shape="constant")
    assert [held.rate(consumed) for consumed in (20, 60, 100)] == [1.0, 1.0, 1.0]
    falling = schedule(shape="constant", decay_fraction=0.2, floor_fraction=0.0)
    assert [falling.rate(consumed) for consumed in (20, 80, 90, 100)] == pytest.approx([1.0, 1.0, 0.5, 0.0])


def test_past_the_end_the_rate_stays_at_the_floor() -> None:
    assert schedule().rate(1000) == pytest.approx(0.1)


@settings(max_examples=200, deadline=None)
@given(
    shape=st.sampled_from(["cosine", "linear", "constant"]),
    total=st.integers(1, 10**12),
    warmup_fraction=st.floats(0, 1),
    consumed_fraction=st.floats(0, 1),
    floor=st.floats(0, 1),
)
def test_the_rate_is_never_negative_nor_above_the_peak(
    shape: str, total: int, warmup_fraction: float, consumed_fraction: float, floor: float
) -> None:
    warmup = warmup_examples(total=total, examples=None, fraction=warmup_fraction)
    rate = schedule(shape=shape, total=total, warmup=warmup, floor_fraction=floor).rate(
        round(consumed_fraction * total)
    )
    assert 0.0 <= rate <= 1.0 + 1e-12


def test_warm_up_never_outlasts_the_run() -> None:
    assert warmup_examples(total=50, examples=80, fraction=0.0) == 50
    assert warmup_examples(total=50, examples=None, fraction=0.1) == 5
    assert warmup_examples(total=50, examples=7, fraction=0.1) == 7


def test_the_rate_follows_the_batch_by_the_chosen_rule() -> None:
    assert scaled_rate(1e-3, batch=64, reference=16, rule="linear") == 4e-3
    assert scaled_rate(1e-3, batch=64, reference=16, rule="sqrt") == pytest.approx(2e-3)
    assert scaled_rate(1e-3, batch=64, reference=16, rule="none") == 1e-3
    assert scaled_rate(1e-3, batch=64, reference=None, rule="none") == 1e-3
    assert math.isclose(scaled_rate(1e-3, batch=16, reference=16, rule="linear"), 1e-3)
