"""YAML and --set into frozen dataclasses: every value means one thing or is refused with place and remedy."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.config_help import describe
from manifests.yaml_config import (
    ConfigError,
    as_plain,
    build,
    dotted,
    flatten,
    read_yaml,
    read_yaml_file,
    set_value,
    setting,
)

# ruff: noqa: RUF009 - setting() is dataclasses.field with a line of explanation


@dataclass(frozen=True, kw_only=True)
class Knife:
    blade: str = setting("what it is made of")
    length: float = setting("centimetres", 20.0)

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise ConfigError("length", f"is {self.length}, allowed: above 0")


@dataclass(frozen=True, kw_only=True)
class Oven:
    heat: Literal["gas", "electric"] = setting("what heats it", "gas")
    degrees: int | None = setting("null: as hot as it gets", None)


@dataclass(frozen=True, kw_only=True)
class Kitchen:
    name: str = setting("what it is called")
    oven: Oven = setting("where cakes go", Oven)
    knives: tuple[Knife, ...] = setting("sharp things", ())
    best: Knife | None = setting("the one for guests", None)
    dishes: tuple[str, ...] = setting("the menu", ())
    window: tuple[float, float] = setting("width and height, in metres", (1.5, 1.0))
    recipe: str | dict[str, Any] | None = setting("a file, or what it would hold", None)
    prices: dict[str, float] | None = setting("by dish", None)
    notes: Any = setting("anything", None)
    open: bool = setting("a sentence so long that it does not fit beside its key in a line of few columns", True)


def kitchen(text: str = "", *assignments: str) -> Kitchen:
    values = read_yaml(f"name: a\n{text}", "kitchen.yaml")
    for assignment in assignments:
        set_value(values, assignment)
    return build(Kitchen, values)


def refused(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_left_out_has_its_default() -> None:
    assert kitchen() == Kitchen(name="a")
    assert kitchen("oven:\n").oven == Oven()


def test_values_follow_yaml_1_2() -> None:
    text = (
        "[no, on, y, 12:30, 2024-01-01, 0x10, 1_000, 1e-3, .5, 1., +7, 010, ~, null, '', True, =, 0, -0, 1_0.5, 'no']"
    )
    assert read_yaml(text, "x") == [
        "no", "on", "y", "12:30", "2024-01-01", "0x10", 1000, 0.001, 0.5, 1.0, 7, 10.0, None, None, "", True, "=",
        0, 0, 10.5, "no",
    ]  # fmt: skip
    assert isinstance(read_yaml("010", "x"), float)  # no integer field takes it: 8 in YAML 1.1, 10 in 1.2


def test_merge_keys_and_anchors_work() -> None:
    assert read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n", "x") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [\n", "f: line 2, column 1: expected the node content, but found '<stream end>'"),
        ("a: 1\nb: 1\na: 2\n", 'f: line 3, column 1: the key "a" is already set in line 1: keep one'),
        ("- x: a,  y: b\n", "f: line 1, column 11: mapping values are not allowed here"),
        ("a: \x07\n", "f: line 1: the character U+0007 is not allowed in YAML"),
        ("1: x\n", "f: line 1, column 1: the key 1 is no text: quote it"),
        ("[" * 5000, "f: nested too deeply: a config has at most a few levels"),
        ("a: *b\n", "f: line 1, column 4: found undefined alias 'b'"),
        ("a: .nan\n", "f: line 1, column 4: .nan is not a finite number"),
        ("a: [-.inf]\n", "f: line 1, column 5: -.inf is not a finite number"),
        ("a: 1e999\n", "f: line 1, column 4: 1e999 is not a finite number"),
        ("a: !!int x\n", "f: line 1, column 4: x is no int"),
        ("a: !!int ''\n", "f: line 1, column 4:  is no int"),
        ("a: !!bool maybe\n", "f: line 1, column 4: maybe is no bool"),
        ("a: " + "9" * 5000, f"f: line 1, column 4: {'9' * 77}... is no int"),
        ("a: !!binary eA==\n",
         "f: line 1, column 4: could not determine a constructor for the tag 'tag:yaml.org,2002:binary'"),
        ("a: !!python/object:os.system x\n",
         "f: line 1, column 4: could not determine a constructor for the tag "
         "'tag:yaml.org,2002:python/object:os.system'"),
    ],
)  # fmt: skip
def test_what_is_not_plain_yaml_is_refused_with_its_place(text: str, expected: str) -> None:
    assert refused(read_yaml, text, "f") == expected


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    assert refused(read_yaml_file, path) == f"{path}: there is no such file: check the path"
    assert refused(read_yaml_file, tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    path.write_bytes("name: имя".encode("cp1251"))
    assert refused(read_yaml_file, path) == (
        f"{path}: byte 6 is not UTF-8 (invalid continuation byte): save the file as UTF-8"
    )
    path.write_text("- a\n- b\n")
    assert refused(read_yaml_file, path) == f"{path}: is a list ['a', 'b'], expected keys with values"


def test_an_empty_file_holds_no_keys_and_a_byte_order_mark_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("# nothing\n")
    assert read_yaml_file(path) == {}
    path.write_text("\ufeffname: a\n", encoding="utf-8")
    assert read_yaml_file(path) == {"name": "a"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nmae: b", 'nmae: there is no such key; did you mean "name"? known: best, dishes, knives, name, notes, open, '
         "oven, prices, recipe, window"),
        ("oven: {zzz: 1}", "oven.zzz: there is no such key; known: degrees, heat"),
        ('"a\\nb": 1', "a\\nb: there is no such key; known: best, dishes, knives, name, notes, open, oven, prices, "
         "recipe, window"),
        ("knives: [{length: 3}]", "knives.0.blade: is missing: what it is made of"),
        ("knives: [{blade: steel, length: 0}]", "knives.0.length: is 0.0, allowed: above 0"),
        ("best: {blade: steel, length: -1}", "best.length: is -1.0, allowed: above 0"),
        ("open: yes", "open: is the text 'yes', expected true or false"),
        ("open: 1", "open: is the number 1, expected true or false"),
        ("open:", "open: is empty (null), expected true or false"),
        ("oven: {degrees: true}", "oven.degrees: is the truth value true, expected a whole number or null"),
        ("oven: {degrees: 1.0}", "oven.degrees: is the number 1.0, expected a whole number or null"),
        ("oven: {heat: coal}", "oven.heat: is the text 'coal', expected one of gas, electric"),
        ("oven: hot", "oven: is the text 'hot', expected keys with values"),
        ("dishes: soup", "dishes: is the text 'soup', expected a list: write [soup]"),
        ("dishes: [1]", "dishes.0: is the number 1, expected text (quote it if it looks like a number)"),
        ("dishes: {a: 1}", "dishes: is keys with values {'a': 1}, expected a list"),
        ("window: [1]", "window: is a list [1], expected a list of 2 values"),
        ("window: [1, high]", "window.1: is the text 'high', expected a number"),
        ("recipe: 5", "recipe: is the number 5, expected text (quote it if it looks like a number) or keys with values "
         "or null"),
        ("prices: {soup: cheap}", "prices.soup: is the text 'cheap', expected a number"),
        ("window: [1, 1" + "0" * 400 + "]", f"window.1: is the number 1{'0' * 76}..., expected a finite number"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_named_with_what_was_expected(text: str, expected: str) -> None:
    assert refused(kitchen, text) == expected


def test_not_a_number_is_refused_in_plain_values_too() -> None:
    values = {"name": "a", "window": [1.0, float("nan")]}
    assert refused(build, Kitchen, values) == "window.1: is the number nan, expected a finite number"


def test_unions_take_each_of_their_kinds() -> None:
    assert kitchen("recipe: cake.txt").recipe == "cake.txt"
    assert kitchen("recipe: {eggs: 3, then: [stir]}").recipe == {"eggs": 3, "then": ["stir"]}
    assert kitchen("recipe: null").recipe is None
    assert kitchen("prices: {soup: 3}").prices == {"soup": 3.0}
    assert kitchen("best: {blade: steel}").best == Knife(blade="steel")
    assert kitchen("best:").best is None


def test_lists_become_tuples_and_whole_numbers_pass_for_numbers() -> None:
    made = kitchen("dishes: [soup, cake]\nwindow: [2, 1.5]\nnotes: [1]")
    assert (made.dishes, made.window, made.notes) == (("soup", "cake"), (2.0, 1.5), [1])
    assert type(made.window[0]) is float


def test_set_puts_one_value_in_place_as_yaml_and_the_last_wins() -> None:
    made = kitchen(
        "knives: [{blade: steel}, {blade: clay}]",
        "knives.1.length=7",
        "oven.degrees=200",
        "oven.degrees=220",
        "recipe.eggs=a=b",
        "dishes=[soup, 'a b']",
    )
    assert made.knives == (Knife(blade="steel"), Knife(blade="clay", length=7.0))
    assert (made.oven.degrees, made.recipe, made.dishes) == (220, {"eggs": "a=b"}, ("soup", "a b"))


def test_set_changes_one_place_where_an_anchor_stands_in_two() -> None:
    made = kitchen("knives: [&k {blade: steel}, *k]", "knives.0.blade=clay")
    assert [knife.blade for knife in made.knives] == ["clay", "steel"]


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("name", '--set: "name" is not of the form key=value: write, for example, seed=7'),
        ("=7", '--set: "=7" is not of the form key=value: write, for example, seed=7'),
        ("a..b=7", '--set: "a..b=7" is not of the form key=value: write, for example, seed=7'),
        ("dishes.2=x", 'dishes: holds 2 items and "2" is none of them: use 0 to 1'),
        ("dishes.-1=x", 'dishes: holds 2 items and "-1" is none of them: use 0 to 1'),
        ("dishes.x=x", 'dishes: holds 2 items and "x" is none of them: use 0 to 1'),
        ("knives.0=x", 'knives: holds 0 items and "0" is none of them: set knives as a whole'),
        ("name.x=2", "name: is 'a' and has no \"x\" inside: set name as a whole"),
        ("name=[", "--set name: line 1, column 2: expected the node content, but found '<stream end>'"),
    ],
)
def test_a_set_that_fits_nowhere_is_refused(assignment: str, expected: str) -> None:
    assert refused(kitchen, "dishes: [soup, cake]\nknives: []", assignment) == expected


def test_a_config_written_down_and_read_back_is_the_same() -> None:
    made = kitchen("best: {blade: steel}\ndishes: [soup]\nrecipe: {eggs: 3}")
    assert as_plain(made) == {
        "name": "a",
        "oven": {"heat": "gas", "degrees": None},
        "knives": [],
        "best": {"blade": "steel", "length": 20.0},
        "dishes": ["soup"],
        "window": [1.5, 1.0],
        "recipe": {"eggs": 3},
        "prices": None,
        "notes": None,
        "open": True,
    }
    assert build(Kitchen, as_plain(made)) == made


def test_flatten_gives_every_leaf_under_its_dotted_key() -> None:
    assert dict(flatten({"a": 1, "b": {"c": [2], "d": {}}})) == {"a": 1, "b.c": [2], "b.d": {}}


NAMES = st.text("abc", min_size=1, max_size=3)


@settings(max_examples=50, deadline=None)
@given(values=st.dictionaries(NAMES, st.recursive(st.integers(), lambda inner: st.dictionaries(NAMES, inner))))
def test_setting_every_leaf_of_a_mapping_makes_that_mapping(values: dict[str, Any]) -> None:
    made: dict[str, Any] = {}
    for key, value in flatten(values):
        set_value(made, f"{key}={value}")
    assert made == values


def test_help_has_a_line_a_key_aligned_and_wrapped() -> None:
    assert describe(Kitchen, 72) == (
        "  name (required)            what it is called\n"
        "  oven                       where cakes go\n"
        "  oven.heat = gas            what heats it (gas|electric)\n"
        "  oven.degrees = null        null: as hot as it gets\n"
        "  knives = []                sharp things\n"
        "  knives.N.blade (required)  what it is made of\n"
        "  knives.N.length = 20       centimetres\n"
        "  best = null                the one for guests\n"
        "  best.blade (required)      what it is made of\n"
        "  best.length = 20           centimetres\n"
        "  dishes = []                the menu\n"
        "  window = [1.5, 1]          width and height, in metres\n"
        "  recipe = null              a file, or what it would hold\n"
        "  prices = null              by dish\n"
        "  notes = null               anything\n"
        "  open = true                a sentence so long that it does not fit\n"
        "                             beside its key in a line of few columns"
    )


def test_an_error_travels_between_processes_and_knows_its_place() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("near.rows", "is wrong").under("dedup")))
    assert (str(error), error.field) == ("dedup.near.rows: is wrong", "dedup.near.rows")
    assert str(ConfigError("", "both are set").under("tokenizer")) == "tokenizer: both are set"
    assert (dotted("", "a"), dotted("a", 0), dotted("a", "")) == ("a", "a.0", "a")
