"""A run asked to stop saves one step that all ranks agree on; and goes on from it on any number of ranks."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import write_dataset
from tests.trainer.trainer_processes import figures, train_arguments
from trainer import checkpoint_files as files
from trainer.signals import EXIT_RESUME_ME

SETTINGS = (
    "global_batch=8",
    "micro_batch=2",
    "steps=20",
    "lr=1e-3",
    "validation.every_steps=4",
    "checkpoint.minutes=null",
)
DROPOUT = ("model.config.attention_dropout=0.2", "loader.num_workers=2")
STEP, EVALUATION = "trainer.train:train_step", "trainer.run:evaluate"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data"))


def test_sigterm_on_one_rank_in_a_first_step_a_step_or_an_evaluation_saves_and_the_run_ends_as_an_unbroken_one(
    forked: ForkedRanks, manifest: str, tmp_path: Path
) -> None:
    """Rank 1 and its loader workers get the signal; rank 0 does not. Dropout is on: the random state matters."""
    unbroken, output, log = tmp_path / "unbroken", tmp_path / "stopped", tmp_path / "log"
    codes, lines = forked.run(train_arguments(manifest, unbroken, *SETTINGS, *DROPOUT), log, ranks=2)
    assert codes == [0, 0], lines
    arguments = train_arguments(manifest, output, *SETTINGS, *DROPOUT)
    for call, nth, saved in ((STEP, 1, 1), (STEP, 2, 3), (EVALUATION, 1, 4), (EVALUATION, 2, 8), (STEP, 1, 9)):
        stop = {"call": call, "nth": nth, "rank": 1}
        codes, lines = forked.run(arguments, log, ranks=2, stop=stop)
        assert codes == [EXIT_RESUME_ME, EXIT_RESUME_ME], (call, nth, lines)
        assert lines[-1] == f"stopped by a signal after step {saved}; the same command resumes there"
        assert files.fault(output / "checkpoints" / f"step-{saved}", thorough=True) is None
    assert files.steps_in(output / "checkpoints") == [4, 8, 9]
    codes, lines = forked.run(arguments, log, ranks=2)
    assert codes == [0, 0], lines
    assert figures(output) == figures(unbroken)
    assert final_weights(output) == final_weights(unbroken)


def test_four_ranks_then_two_then_three_then_four_see_the_same_data_and_nearly_the_same_loss(
    forked: ForkedRanks, manifest: str, tmp_path: Path
) -> None:
    """8 examples do not divide by 3 ranks, nor 101 rows of the embedding; a new rank has no random state of its own."""
    unbroken, output, log = tmp_path / "unbroken", tmp_path / "elastic", tmp_path / "log"
    codes, lines = forked.run(train_arguments(manifest, unbroken, *SETTINGS), log, ranks=4)
    assert codes == [0] * 4, lines
    arguments = train_arguments(manifest, output, *SETTINGS)
    for ranks, note in ((4, None), (2, "4, is 2"), (3, "2, is 3"), (4, "3, is 4")):
        is_last = note == "3, is 4"
        stop: dict[str, Any] | None = None if is_last else {"call": STEP, "nth": 5, "rank": ranks - 1}
        codes, lines = forked.run(arguments, log, ranks=ranks, stop=stop)
        assert codes == [0 if is_last else EXIT_RESUME_ME] * ranks, lines
        assert note is None or f"note: number of ranks was {note}" in lines
    same = ("step", "lr", "num_tokens", "examples_consumed", "batch_digest")
    assert figures(output, same) == figures(unbroken, same)
    for here, there in zip(figures(output), figures(unbroken), strict=True):
        for name in ("loss", "validation_loss"):
            assert here[name] == pytest.approx(there[name], abs=1e-5), here["step"]


def final_weights(output: Path) -> bytes:
    return (output / "final" / "model.safetensors").read_bytes()
