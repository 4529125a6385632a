"""Saves beside the training: what they hold, when the next is skipped, and that a failed one takes nothing away."""

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests import storage
from tests.trainer.checkpoint_trial import Trial, values_of
from tests.trainer.forked_ranks import ForkedRanks
from trainer import checkpoint, checkpoint_write, remote
from trainer import checkpoint_files as files
from trainer.parallel import Ranks, process_group


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with process_group() as joined:
        yield joined


class Held:
    """Holds a save just before its rename, until `release`."""

    def __init__(self) -> None:
        self._reached, self._released = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._released.wait(60)

    def reached(self) -> None:
        assert self._reached.wait(60)

    def release(self) -> None:
        self._released.set()


def test_what_is_trained_on_after_staging_does_not_reach_the_file(tmp_path: Path, ranks: Ranks) -> None:
    trial, held = Trial(tmp_path, ranks), Held()
    trial.save(10, before_rename=held)
    trial.set_all(-5.0)
    held.release()
    assert trial.finish()
    expected = {name: [10.0] for name in ("weights", "exp_avg", "exp_avg_sq")}
    assert values_of(trial.root / "step-10") == expected
    # The same host memory is used again, and again holds what it should.
    trial.save(20)
    trial.set_all(-5.0)
    assert trial.finish()
    assert values_of(trial.root / "step-20") == {name: [20.0] for name in expected}
    assert values_of(trial.root / "step-10") == expected


def test_while_a_save_is_in_flight_the_next_is_skipped_and_counted_and_one_that_must_be_waits(
    tmp_path: Path, ranks: Ranks
) -> None:
    trial, held = Trial(tmp_path, ranks), Held()
    trial.save(10)
    assert trial.finish()
    trial.save(20, before_rename=held)
    held.reached()
    for step in (30, 40):
        trial.save(step, must=False)
        assert files.steps_in(trial.root) == [10], "never fewer than one complete copy"
    assert trial.said[1:] == [
        "checkpoint step-30 skipped: step-20 is still being written (1 skipped so far)",
        "checkpoint step-40 skipped: step-20 is still being written (2 skipped so far)",
    ]
    assert not trial.checkpoints.is_due_by_time
    threading.Timer(0.2, held.release).start()
    trial.save(50, must=True)
    assert trial.finish()
    assert files.steps_in(trial.root) == [20, 50]
    assert values_of(trial.root / "step-50")["weights"] == [50.0]


def test_a_failed_save_leaves_the_earlier_ones_says_so_and_is_made_up_for(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path, ranks)
    for step in (10, 20):
        trial.save(step)
        assert trial.finish()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for owner, name in ((checkpoint_write, "_write_rng"), (files, "write_list"), (files, "publish")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, full_disk)
            trial.said.clear()
            trial.save(30)
            assert not trial.finish()
        assert trial.said == [
            "warning: step-30 was not saved: rank 0: OSError: [Errno 28] No space left on device;"
            " earlier checkpoints stand"
        ]
        assert {path.name for path in trial.root.iterdir()} == {"step-10", "step-20"}
    # The same step again, as when a signal comes right after.
    trial.save(30)
    assert trial.finish()
    assert files.steps_in(trial.root) == [20, 30]


def test_a_failure_inside_torchs_writer_names_its_rank_too(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.checkpoint import FileSystemWriter

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystemWriter, "finish", full_disk)
    trial = Trial(tmp_path, ranks)
    trial.save(10)
    assert not trial.finish()
    assert trial.said == [
        "warning: step-10 was not saved: rank 0: OSError: [Errno 28] No space left on device; earlier checkpoints stand"
    ]
    assert list(trial.root.iterdir()) == []


def test_a_rank_that_cannot_write_makes_all_ranks_give_the_save_up_and_go_on(
    forked: ForkedRanks, tmp_path: Path
) -> None:
    call = "tests.trainer.checkpoint_trial:save_where_rank_1_fails_once"
    codes, lines = forked.run([str(tmp_path)], tmp_path / "log", ranks=2, call=call)
    assert codes == [0, 0], lines
    root = tmp_path / "checkpoints"
    assert {path.name for path in root.iterdir()} == {"step-10", "step-30"}
    assert values_of(root / "step-30")["exp_avg"] == [30.0]


def test_host_memory_stays_where_it_is_over_twenty_saves(forked: ForkedRanks, tmp_path: Path) -> None:
    """torch's own asynchronous saves grew by the state's size each (pytorch#170163)."""
    codes, lines = forked.run([str(tmp_path)], tmp_path / "log", call="tests.trainer.checkpoint_trial:save_many")
    assert codes == [0], lines
    early, late = map(int, lines)
    assert late < 1.05 * early


def test_a_store_out_of_reach_costs_the_copy_and_nothing_else(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "remote"
    trial = Trial(tmp_path, ranks, remote=there)
    trial.save(10)
    assert trial.finish()
    with monkeypatch.context() as patched:

        def out_of_reach(*_: object) -> None:
            raise storage.StorageError("connection refused")

        patched.setattr(remote, "_copy_out", out_of_reach)
        trial.save(20)
        assert trial.finish()
    assert trial.said[-1] == (
        f"warning: step-20 was not copied to {there}: connection refused; the next save tries again"
    )
    assert (remote.pointer(str(there)), files.steps_in(trial.root)) == (10, [10, 20])
    trial.save(30)
    assert trial.finish()
    assert (remote.pointer(str(there)), remote.steps_in(str(there))) == (30, [10, 30])


def test_rotation_leaves_what_is_being_copied_and_the_newest_is_copied_next(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, held, copy_out = tmp_path / "remote", Held(), remote._copy_out
    with monkeypatch.context() as patched:

        def slow(*arguments: object) -> None:
            held()
            copy_out(*arguments)

        patched.setattr(remote, "_copy_out", slow)
        trial = Trial(tmp_path, ranks, remote=there, keep=1)
        trial.save(10)
        assert trial.checkpoints.finish()
        held.reached()
        for step in (20, 30, 40):
            trial.save(step)
            assert trial.checkpoints.finish()
            assert files.steps_in(trial.root) == [10, step]
        held.release()
        assert trial.finish()
    assert (remote.pointer(str(there)), remote.steps_in(str(there))) == (40, [40])


def test_the_newest_valid_one_is_taken_wherever_it_lies(tmp_path: Path, ranks: Ranks) -> None:
    there = tmp_path / "remote"
    trial = Trial(tmp_path, ranks, remote=there, keep=3)
    for step in (10, 20, 30):
        trial.save(step)
        assert trial.finish()
    damaged, damaged_there = trial.root / "step-30" / "rng-0.pt", there / "step-20" / "rng-0.pt"
    damaged.write_bytes(damaged.read_bytes()[::-1])
    damaged_there.write_bytes(damaged_there.read_bytes()[::-1])
    again = Trial(tmp_path, ranks, remote=there, keep=3)
    assert again.resume() == 30, "the copy of 30 is whole"
    assert again.said == [
        f"looking for checkpoints at {there}",
        "checkpoint step-30 is not valid: rng-0.pt has other content than its list says; looking at older ones",
        f"fetching checkpoint step-30 from {there}",
    ]
    for path in (trial.root / "step-30" / "rng-0.pt", there / "step-30" / "rng-0.pt"):
        path.unlink()
    assert Trial(tmp_path, ranks, remote=there, keep=3).resume() == 20, "20 is whole here"


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 endpoint that accepts connections and never answers: the kernel completes them, nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nobody")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setattr(checkpoint, "_REMOTE_LOOK_S", 0.5)
        yield "s3://bucket/copies"


@pytest.fixture
def closed_store(monkeypatch: pytest.MonkeyPatch) -> str:
    """An S3 endpoint where nothing listens."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nobody")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return "s3://bucket/copies"


@pytest.mark.parametrize(
    ("store", "why"), [("silent_store", "no answer within 0.5 s"), ("closed_store", "cannot reach http://127.0.0.1:1")]
)
def test_a_store_out_of_reach_at_the_start_costs_one_line_where_a_checkpoint_is_here_and_is_an_error_where_none_is(
    tmp_path: Path, ranks: Ranks, request: pytest.FixtureRequest, store: str, why: str
) -> None:
    where = request.getfixturevalue(store)
    trial = Trial(tmp_path, ranks)
    trial.save(10)
    assert trial.finish()
    again = Trial(tmp_path, ranks, remote=where)
    assert again.resume() == 10
    assert again.said[0] == f"looking for checkpoints at {where}"
    assert again.said[1].startswith(f"warning: {where} was not looked at: ")
    assert why in again.said[1]
    with pytest.raises(checkpoint.OutOfReachError, match=rf"was not looked at: .*{re.escape(why)}"):
        Trial(tmp_path / "new", ranks, remote=where).resume()


def test_where_no_checkpoint_is_valid_the_run_does_not_quietly_begin_again(tmp_path: Path, ranks: Ranks) -> None:
    trial = Trial(tmp_path, ranks)
    trial.save(10)
    assert trial.finish()
    (trial.root / "step-10" / ".metadata").unlink()
    with pytest.raises(ValueError, match=r"no checkpoint of step-10 .* is valid; move the folder away"):
        Trial(tmp_path, ranks).resume()


def test_a_newer_damaged_one_does_not_count_as_kept(tmp_path: Path, ranks: Ranks) -> None:
    """Its sizes fit, so that only the start, which hashes, knows; rotation must not trust it afterwards."""
    there = tmp_path / "remote"
    trial = Trial(tmp_path, ranks, remote=there, keep=2)
    for step in (20, 30):
        trial.save(step)
        assert trial.finish()
    for path in (trial.root / "step-30" / "rng-0.pt", there / "step-30" / "rng-0.pt"):
        path.write_bytes(path.read_bytes()[::-1])
    again = Trial(tmp_path, ranks, remote=there, keep=1)
    assert again.resume() == 20
    again.save(25)
    assert again.finish()
    assert files.steps_in(again.root) == [25, 30]
    assert remote.pointer(str(there)) == 25
    assert remote.fault(str(there), 25, thorough=True) is None
    assert Trial(tmp_path, ranks, remote=there, keep=1).resume() == 25


def test_a_pointer_that_is_no_pointer_and_errors_of_any_kind_do_not_end_the_copies(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "remote"
    trial = Trial(tmp_path, ranks, remote=there)
    trial.save(10)
    assert trial.finish()
    (there / "latest.json").write_bytes(b"")
    trial.save(20)
    assert trial.finish()
    assert (remote.pointer(str(there)), remote.steps_in(str(there))) == (20, [10, 20])

    def odd(*_: object) -> None:
        raise KeyError("of a library")

    with monkeypatch.context() as patched:
        patched.setattr(remote, "_copy_out", odd)
        trial.save(30)
        assert trial.finish()
    assert trial.said[-1].startswith(f"warning: step-30 was not copied to {there}: ")
    trial.save(40)
    assert trial.finish()
    assert remote.pointer(str(there)) == 40


def test_a_save_whose_files_another_rank_wrote_elsewhere_is_not_called_saved(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, listed = Trial(tmp_path, ranks), checkpoint_write._list

    def with_one_of_another_folder(*arguments: object) -> list[files.FileEntry]:
        return [*listed(*arguments), files.FileEntry(path="__1_0.distcp", num_bytes=1, sha256="0" * 64)]

    monkeypatch.setattr(checkpoint_write, "_list", with_one_of_another_folder)
    trial.save(10)
    assert not trial.finish()
    assert "__1_0.distcp is missing; is " in trial.said[-1]
    assert list(trial.root.iterdir()) == []
