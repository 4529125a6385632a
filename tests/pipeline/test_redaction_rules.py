"""Redaction: each rule by its examples, all of them by their promises."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.redaction
from pipeline.config import RedactConfig
from pipeline.redaction import RULES, chosen_rules, redact, redact_text
from tests.pipeline.redaction_examples import examples, measure

CASES = [(rule, before, after) for rule in RULES for before, after in rule.examples]


@pytest.mark.parametrize(("rule", "before", "after"), CASES, ids=lambda value: getattr(value, "name", None))
def test_every_example_in_a_rules_page_holds(rule, before, after):
    assert redact_text(before) == after
    assert redact_text(after) == after


def test_every_file_in_the_folder_is_in_the_table_and_the_config():
    folder = Path(pipeline.redaction.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "rule", "scan"}
    assert files == {rule.find.__module__.rpartition(".")[2] for rule in RULES}
    assert {rule.name for rule in RULES} | {"all"} == set(vars(RedactConfig()))


def test_rules_are_off_unless_asked_for_one_by_one_or_all():
    assert chosen_rules(RedactConfig()) == ()
    assert [rule.name for rule in chosen_rules(RedactConfig(email=True))] == ["email"]
    names = [rule.name for rule in chosen_rules(RedactConfig(all=True, phone=False))]
    assert len(names) == len(RULES) - 1
    assert "phone" not in names


def test_a_placeholder_is_no_word_that_vouches_for_the_next_number():
    text = "10.1.12.3 и 2.4.1.0; ИНН 7707083893, заказ, и далее в следующих строках документа 7707083893"
    once = redact_text(text)
    assert once == "[IP_ADDRESS] и 2.4.1.0; ИНН [INN], заказ, и далее в следующих строках документа 7707083893"
    assert redact_text(once) == once


def test_replacements_are_counted_and_untouched_texts_pass_by_reference():
    texts = pa.array(["a@example.org, b@example.org", None, "", "nothing", "+7 000 000-01-23"], pa.large_string())
    result = redact(texts, RULES)
    assert result.text.to_pylist() == ["[EMAIL], [EMAIL]", None, "", "nothing", "[PHONE]"]
    assert result.counts == {"email": 2, "phone": 1}
    assert redact(texts.slice(3), RULES).text.to_pylist() == ["nothing", "[PHONE]"]
    assert redact(texts, ()).text is texts


def test_the_labelled_set_keeps_its_precision_and_recall():
    marked = examples()
    assert len(marked) >= 500
    right, wrong, missed = (
        sum(counts.total() for counts in column) for column in zip(*map(measure, marked), strict=True)
    )
    assert right / (right + wrong) >= 0.99
    assert right / (right + missed) >= 0.98


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("0123456789+-() .@:/=aAfF\u00a0п", max_size=80), max_size=5))
def test_any_text_is_redacted_without_a_fault_and_once_is_enough(texts):
    once = redact(pa.array(texts, pa.large_string()), RULES).text
    once.validate(full=True)
    assert redact(once, RULES).text.to_pylist() == once.to_pylist()
