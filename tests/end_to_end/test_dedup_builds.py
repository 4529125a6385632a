"""Deduplication on a real Ray, cut into hundreds of tasks. dedup_builds.py, by hand, does the same for all settings."""

import signal
from pathlib import Path

from tests.end_to_end.dedup_builds import finish, start, wait_for_stage, write_config
from tests.pipeline.dedup_corpus import SURE, config_for, mixed_corpus, run


def test_four_workers_small_tasks_reversed_records_and_kills_change_no_keeper(tmp_path: Path) -> None:
    """The driver is killed, with its Ray, at the stages that tests/end_to_end/test_build.py leaves out."""
    documents = mixed_corpus(0)
    expected = run(config_for(tmp_path / "here", documents, near=SURE)).decisions
    config = write_config(tmp_path / "ray", documents[::-1], workers=4, files=7)
    for stage in ("templates", "pair", "outcome"):
        driver = start(config, small=True, hash_seed=3)
        wait_for_stage(config, stage, driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    ended = finish(config, start(config, small=True, hash_seed=4))
    assert ended.num_units > 200
    assert ended.decisions == expected
