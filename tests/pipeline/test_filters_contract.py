"""Every file of pipeline/filters is a filter, stands in the table, and keeps to one contract."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.filters
from manifests.errors import UserError
from pipeline.filters import FILTERS, judge_all
from pipeline.filters.rules import Example, first_failing, judge, share
from pipeline.kernels.text import Statistics, analyse

NOT_FILTERS = {"__init__", "presets", "rules"}
EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{number}")
    for name, one in FILTERS.items()
    for number, example in enumerate(one.EXAMPLES)
]


def statistics_of(*texts: str) -> Statistics:
    return analyse(pa.array(texts, pa.large_string()))[0]


def test_every_file_of_the_folder_stands_in_the_table() -> None:
    files = {path.stem for path in Path(pipeline.filters.__file__).parent.glob("*.py")} - NOT_FILTERS
    assert files == set(FILTERS), f"add a line to FILTERS for {files - set(FILTERS)}"


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_an_example_gets_the_verdict_it_states(name: str, example: Example) -> None:
    one = FILTERS[name]
    verdict = int(judge(one.RULES, statistics_of(example.text), example.settings or one.Settings())[0])
    assert (one.RULES[verdict - 1].reason if verdict else None) == example.reason


@pytest.mark.parametrize("name", FILTERS)
class TestEveryFilter:
    def test_says_what_it_drops_why_by_which_source_and_what_it_misses(self, name: str) -> None:
        text = FILTERS[name].__doc__ or ""
        assert text.startswith("Drop documents")
        assert re.findall(r"^(Drops|Why|Source|Misses) ", text, flags=re.MULTILINE) == [
            "Drops",
            "Why",
            "Source",
            "Misses",
        ]

    def test_has_an_example_for_each_reason_and_one_it_keeps(self, name: str) -> None:
        assert {example.reason for example in FILTERS[name].EXAMPLES} == {
            *(rule.reason for rule in FILTERS[name].RULES),
            None,
        }

    def test_has_frozen_settings_with_defaults(self, name: str) -> None:
        settings_ = FILTERS[name].Settings()
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(settings_, dataclasses.fields(settings_)[0].name, 1)

    def test_refuses_words_for_every_setting(self, name: str) -> None:
        for field in dataclasses.fields(FILTERS[name].Settings):
            with pytest.raises(UserError, match=field.name):
                FILTERS[name].Settings(**{field.name: "many"})

    def test_judges_no_documents_to_no_verdicts(self, name: str) -> None:
        verdict = judge(FILTERS[name].RULES, statistics_of(), FILTERS[name].Settings())
        assert verdict.dtype == np.int16
        assert verdict.shape == (0,)

    def test_drops_nothing_when_no_rule_has_a_limit(self, name: str) -> None:
        kind = FILTERS[name].Settings
        limits = [field.name for field in dataclasses.fields(kind) if "None" in str(field.type)]
        off = kind(**dict.fromkeys(limits))
        texts = [example.text for example in FILTERS[name].EXAMPLES]
        assert judge(FILTERS[name].RULES, statistics_of(*texts), off).tolist() == [0] * len(texts)

    @pytest.mark.filterwarnings("error")
    def test_judges_texts_without_words_lines_or_letters_without_a_warning(self, name: str) -> None:
        one = FILTERS[name]
        without_lower_limits = {
            field.name: None for field in dataclasses.fields(one.Settings) if field.name.startswith("min_")
        }
        verdict = judge(one.RULES, statistics_of("", " ", "\n\n", "\n"), one.Settings(**without_lower_limits))
        assert verdict.tolist() == [0, 0, 0, 0]

    def test_judges_a_document_alike_alone_and_in_a_batch(self, name: str) -> None:
        one = FILTERS[name]
        texts = [example.text for example in one.EXAMPLES]
        together = judge(one.RULES, statistics_of(*texts), one.Settings())
        alone = [int(judge(one.RULES, statistics_of(text), one.Settings())[0]) for text in texts]
        assert together.tolist() == alone


def test_the_first_filter_that_fails_names_the_reason() -> None:
    filters: list[tuple[str, Any]] = [
        ("length", FILTERS["length"].Settings(min_words=2)),
        ("gopher_quality", FILTERS["gopher_quality"].Settings(min_words=3)),
    ]
    verdict, reasons = judge_all(filters, statistics_of("one", "one two", "the three of them"))
    assert [reasons[number - 1] if number else None for number in verdict.tolist()] == [
        "length.too_few_words",
        "gopher_quality.too_few_words",
        None,
    ]


def test_no_filters_keep_everything() -> None:
    verdict, reasons = judge_all([], statistics_of("", "a"))
    assert verdict.tolist() == [0, 0]
    assert reasons == ()


def test_limits_are_included_in_what_is_kept() -> None:
    ten_words = statistics_of("one two three four five six seven eight nine 10")
    quality, kind = FILTERS["gopher_quality"], FILTERS["gopher_quality"].Settings
    off = dict.fromkeys(("min_words", "max_words", "min_stop_words"))
    assert judge(quality.RULES, ten_words, kind(**off, min_alphabetic_word_fraction=0.9)).tolist() == [0]
    assert judge(quality.RULES, ten_words, kind(**off, min_alphabetic_word_fraction=0.91)).tolist() == [9]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=5))
def test_first_failing_is_the_first_true_mask(masks: list[list[bool]]) -> None:
    columns = zip(*masks, strict=True)
    expected = [next((number + 1 for number, failed in enumerate(column) if failed), 0) for column in columns]
    assert first_failing(*map(np.array, masks)).tolist() == expected


def test_a_share_of_nothing_is_nothing() -> None:
    assert share(np.array([0, 1, 3]), np.array([0, 0, 4])).tolist() == [0.0, 0.0, 0.75]
