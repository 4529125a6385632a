"""Deduplication on a real Ray, cut into hundreds of tasks. dedup_builds.py, by hand, does the same for all settings."""

import json
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


def test_the_newest_stays_and_documents_without_a_date_are_counted_on_terminal_and_report(tmp_path: Path) -> None:
    documents = mixed_corpus(0)
    # The later in the list the newer, so that the smallest id would often be the wrong one; every tenth has no date.
    dates = {(source, id_): None if n % 10 == 0 else -n * 86_400 for n, (source, id_, _) in enumerate(documents[::-1])}
    rules = {"dates": dates, "keep": "newest"}
    expected = run(config_for(tmp_path / "here", documents, near=SURE, **rules)).decisions
    config = write_config(tmp_path, documents, workers=2, **rules)
    ended = finish(config, start(config, small=False))
    assert ended.decisions == expected
    undated = {source: sum(date is None and key[0] == source for key, date in dates.items()) for source in "ab"}
    told = (
        f"{sum(undated.values())} of {len(documents)} documents have no date that can be read"
        f" (a {undated['a']}, b {undated['b']}): of duplicates they count as the oldest"
    )
    assert f"note: {told}\n" in config.with_suffix(".log").read_text()
    assert told in (tmp_path / "out" / "reports" / "v1.html").read_text()

    values = json.loads(config.read_text())
    for source in values["sources"]:
        source["date"] = None
    config.write_text(json.dumps(values))
    assert start(config, small=False).wait() == 2
    [line] = config.with_suffix(".log").read_text().splitlines()
    assert line.startswith("error: dedup.keep is newest, but no source has dates: ")
