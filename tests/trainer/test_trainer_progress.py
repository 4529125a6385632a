"""How progress counts: skipped steps, and the scale of an fp16 loss."""

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from trainer.loss_scale import GROWTH_INTERVAL, LARGEST, LossScale
from trainer.progress import Progress


def test_skipped_steps_consume_their_data_and_are_counted() -> None:
    progress = Progress().after(num_examples=8, applied=True)
    progress = progress.after(num_examples=8, applied=False).after(num_examples=8, applied=False)
    assert progress == Progress(step=3, examples_consumed=24, num_skipped=2, num_skipped_in_a_row=2)
    assert progress.after(num_examples=8, applied=True).num_skipped_in_a_row == 0


def test_an_overflow_in_fp16_halves_the_scale_and_ends_no_run_until_the_scale_is_1() -> None:
    progress = Progress().in_precision("fp16")
    for _ in range(16):
        progress = progress.after(num_examples=1, applied=False)
    assert progress.loss_scale == LossScale(factor=1.0)
    assert (progress.num_skipped, progress.num_skipped_in_a_row) == (16, 0)
    assert progress.after(num_examples=1, applied=False).num_skipped_in_a_row == 1


def test_2000_good_steps_double_the_scale() -> None:
    scale = LossScale(factor=4.0)
    for _ in range(GROWTH_INTERVAL - 1):
        scale = scale.after(finite=True)
    assert scale.factor == 4.0
    assert scale.after(finite=True) == LossScale(factor=8.0)
    full = LossScale(factor=LARGEST, good_steps=GROWTH_INTERVAL - 1)
    assert full.after(finite=True).factor == LARGEST


@given(st.lists(st.booleans(), max_size=60))
def test_the_scale_stays_a_power_of_two_within_its_bounds(outcomes: list[bool]) -> None:
    scale = LossScale()
    for finite in outcomes:
        scale = scale.after(finite=finite)
    assert 1.0 <= scale.factor <= LARGEST
    assert scale.factor.is_integer()
    assert int(scale.factor).bit_count() == 1


def test_precision_decides_whether_there_is_a_scale_and_a_saved_one_goes_on() -> None:
    saved = Progress(step=5, loss_scale=LossScale(factor=256.0, good_steps=3))
    assert Progress.from_json(asdict(saved)) == saved
    assert saved.in_precision("fp16") is saved
    assert saved.in_precision("bf16").loss_scale is None
    assert Progress(step=5).in_precision("fp16").loss_scale == LossScale()
    assert Progress.from_json({"step": 5, "examples_consumed": 40, "num_skipped": 0, "num_skipped_in_a_row": 0}) == (
        Progress(step=5, examples_consumed=40)
    )
