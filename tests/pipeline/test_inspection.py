"""What `python -m pipeline inspect` says: the panels, and the command as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config import parse
from pipeline.filters.presets import resolve
from pipeline.inspection.page import page
from pipeline.inspection.panels import NUM_BINS, Inspection, bin_edges, inspect, place_of
from pipeline.inspection.sample import read_sample
from pipeline.inspection.terminal import draw, number
from pipeline.kernels.text import analyse

TEXTS = [*(f"{'word ' * count}".strip() for count in (1, 2, 3, 5, 8, 13)), "Привет, мир: <b>"]


def inspection(spec: object = ({"length": {"min_words": 3}},), texts: list[str] = TEXTS) -> Inspection:
    text = pa.array(texts, pa.large_string())
    names = pa.array([f"doc-{place}" for place in range(len(texts))], pa.large_string())
    return inspect(resolve(list(spec)), analyse(text)[0], text, names)  # type: ignore[call-overload]  # a list of filters


def test_a_panel_counts_what_fails_and_shows_the_nearest_on_both_sides() -> None:
    found = inspection()
    panel = found.panels[0]
    assert (panel.entry, panel.reason, panel.setting, panel.limit) == ("length", "too_few_words", "min_words", 3)
    assert (panel.num_judged, panel.num_failed, panel.num_first) == (7, 2, 2)
    assert [(one.name, one.value) for one in panel.dropped] == [("doc-1", 2), ("doc-0", 1)]
    assert [(one.name, one.value) for one in panel.kept] == [("doc-2", 3), ("doc-6", 3), ("doc-3", 5)]
    assert panel.counts.sum() == 7
    assert panel.num_dropped_in_bin.sum() == 2
    assert found.reasons == (("length.too_few_words", 2),)


def test_rules_without_a_limit_come_last_and_have_no_neighbours() -> None:
    panels = inspection().panels
    assert [panel.limit is None for panel in panels] == [False, True, True, True]
    assert panels[-1].dropped == panels[-1].kept == ()


def test_a_filter_of_one_language_shows_its_documents_alone() -> None:
    panels = inspection([{"length@ru": {"min_words": 9}}, {"length": {"min_words": 3}}]).panels
    judged = {panel.entry: panel.num_judged for panel in panels}
    assert judged == {"length@ru": 1, "length": 6}


def test_no_documents_are_shown_as_none() -> None:
    found = inspection(texts=[])
    assert found.num_documents == 0
    assert "0 documents" in draw(found, width=80, colour=False, every_rule=True)


@pytest.mark.parametrize(
    ("values", "limit", "is_log"),
    [([0.1, 0.2, 0.9], 0.5, False), ([1, 10, 5000], 50, True), ([], 3, False), ([4, 4, 4], None, False)],
)
def test_the_scale_holds_the_limit(values: list[float], limit: float | None, is_log: bool) -> None:
    edges, logarithmic = bin_edges(np.array(values, np.float64), limit)
    assert logarithmic is is_log
    assert len(edges) == NUM_BINS + 1
    assert np.all(np.diff(edges) > 0)
    assert limit is None or edges[0] <= limit <= edges[-1]


def test_the_terminal_shows_the_limit_in_the_bars_and_no_control_characters() -> None:
    shown = draw(inspection(texts=[*TEXTS, "a b c \x1b[31m d"]), width=80, colour=False, every_rule=False)
    assert shown.count("│") == 2  # one in the legend
    assert "\x1b" not in shown
    assert "dropped          2  doc-1  word word" in shown


def test_the_page_escapes_texts_and_marks_the_limit() -> None:
    html = page(inspection(), title="t: <s>", described="all.")
    assert "t: &lt;s&gt;" in html
    assert "Привет, мир: &lt;b&gt;" in html
    assert html.count("stroke-dasharray") == 1
    assert place_of(inspection().panels[0]) is not None


def test_numbers_have_four_digits_that_matter() -> None:
    assert [number(value) for value in (3, 12345.0, 0.123456, 1234.56, 0)] == ["3", "12,345", "0.1235", "1,234.6", "0"]


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "inspect", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    lines = [json.dumps({"id": f"doc-{place}", "text": text}) for place, text in enumerate([*TEXTS, ""])]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    path = tmp_path / "corpus.yaml"
    path.write_text(
        "name: t\noutput: out\ntokenizer: {train: {vocab_size: 300}}\nfilters: [{length: {min_words: 3}}]\n"
        "sources:\n  - {name: a, paths: [texts.jsonl]}\n  - {name: b, paths: [texts.jsonl], preset: none}\n"
    )
    return path


def test_the_command_prints_a_source_and_writes_nothing(config: Path, tmp_path: Path) -> None:
    done = command("corpus.yaml", "--source", "a", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the whole source." in done.stdout
    assert "length.too_few_words   min_words 3" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.yaml", "texts.jsonl"]


def test_a_source_is_shown_as_a_build_cleans_and_redacts_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "Works, see someone@example.org\n> quoted line"}))
    config = parse(
        {
            "name": "t",
            "output": "out",
            "tokenizer": {"train": {"vocab_size": 300}},
            "redact": {"all": True},
            "sources": [{"name": "a", "paths": [str(tmp_path / "a.jsonl")], "clean": {"quoted_replies": "remove"}}],
        }
    )
    sample = read_sample(config, config.sources[0], 1000)
    assert sample.text.to_pylist() == ["Works, see [EMAIL]"]
    assert sample.names.to_pylist() == ["a.jsonl#1"]


def test_the_command_tries_another_threshold_and_writes_a_page(config: Path, tmp_path: Path) -> None:
    done = command(
        "corpus.yaml",
        "--source",
        "a",
        "--set",
        "filters=[{length: {min_words: 6}}]",
        "--html",
        "a.html",
        folder=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a.html\n", "")
    assert "min_words: 6" in (tmp_path / "a.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corpus.yaml"], "--source: the config has 2 sources: name one of a, b"),
        (["corpus.yaml", "--source", "c"], "no source is called 'c' (there are a, b)"),
        (["corpus.yaml", "--source", "b"], "source b has no filters"),
        (["missing.yaml", "--source", "a"], "missing.yaml"),
        (["corpus.yaml", "--source", "a", "--max-mb", "0"], "--max-mb is 0"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    config: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = command(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
