"""From paths to files: what is found, what it is called, and how it is cut into work."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.yaml_config import ConfigError
from pipeline.config import SourceConfig
from pipeline.inputs import InputFile, find_inputs, group_inputs
from pipeline.readers import FORMAT_OF_NAME
from pipeline.readers.names import NO_TEXT


def source(*paths: object, name: str = "docs") -> SourceConfig:
    return SourceConfig(name=name, paths=tuple(map(str, paths)))


def names(*paths: object) -> list[str]:
    return [file.name for file in find_inputs(source(*paths)).files]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ["a.jsonl", "b.txt", "sub/c.jsonl", "sub/deep/d.jsonl", "other/e.jsonl"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_folder_gives_all_files_below_it_by_their_paths_inside(tree):
    assert names(tree) == ["a.jsonl", "b.txt", "other/e.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"]


def test_a_file_is_known_by_its_name_alone(tree):
    assert names(tree / "sub" / "deep" / "d.jsonl") == ["d.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jsonl", ["a.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "other/e.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"]),
        ("**", ["a.jsonl", "b.txt", "other/e.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"]),
        ("?.txt", ["b.txt"]),
        ("[ab].*", ["a.jsonl", "b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("sub/**/*.jsonl", ["c.jsonl", "deep/d.jsonl"]),
        ("s*", ["sub/c.jsonl", "sub/deep/d.jsonl"]),  # the folder fits, and is read like a folder
        ("*/deep", ["sub/deep/d.jsonl"]),
        ("**/deep/*", ["sub/deep/d.jsonl"]),
    ],
)
def test_patterns(tree, pattern, expected):
    assert names(f"{tree}/{pattern}") == expected


def test_relative_paths_start_where_the_command_runs(tree, monkeypatch):
    monkeypatch.chdir(tree / "sub")
    found = find_inputs(source("c.jsonl", "../other")).files
    assert [file.url for file in found] == [str(tree / "other" / "e.jsonl"), str(tree / "sub" / "c.jsonl")]
    assert [file.name for file in found] == ["other/e.jsonl", "sub/c.jsonl"]


def test_names_do_not_depend_on_the_order_of_paths_or_on_where_the_corpus_lies(tree, tmp_path_factory):
    paths = ["sub", "other/e.jsonl", "sub/c.jsonl"]
    forwards = find_inputs(source(*(tree / path for path in paths)))
    backwards = find_inputs(source(*(tree / path for path in reversed(paths))))
    assert forwards == backwards
    assert [file.name for file in forwards.files] == ["other/e.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"]
    moved = tmp_path_factory.mktemp("moved") / "corpus"
    tree.rename(moved)
    assert names(*(moved / path for path in paths)) == [file.name for file in forwards.files]


def test_a_file_reached_twice_counts_once(tree):
    assert (
        names(tree, tree / "a.jsonl", f"{tree}/*.jsonl", f"{tree}/./sub/../a.jsonl", f"{tree}//b.txt").count("a.jsonl")
        == 1
    )


def test_neighbours_with_a_common_beginning_share_no_folder(tmp_path):
    for folder in ("data", "data2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("x")
    assert names(tmp_path / "data", tmp_path / "data2") == ["data/x.txt", "data2/x.txt"]


def test_a_name_that_looks_like_a_pattern_is_a_name_where_it_exists(tmp_path):
    for name in ["part[1].jsonl", "part1.jsonl", "star*.txt", "star.txt", "why?"]:
        (tmp_path / name).write_text("x")
    assert names(tmp_path / "part[1].jsonl") == ["part[1].jsonl"]
    assert names(tmp_path / "star*.txt") == ["star*.txt"]
    assert names(tmp_path / "part[12].jsonl") == ["part1.jsonl"]
    assert names(tmp_path) == ["part1.jsonl", "part[1].jsonl", "star*.txt", "star.txt", "why?"]


ODD_NAMES = [
    *["with space.jsonl", "отчёт за март.jsonl", "year=2024/month=03/part.jsonl", "a+b.jsonl", "percent%20name.jsonl"],
    *[
        "hash#1.jsonl",
        "query?x=1&y=2.jsonl",
        "brackets[1].jsonl",
        "{curly}.jsonl",
        "quote'\".jsonl",
        "-dash-first.jsonl",
    ],
    *[
        "тест-" + unicodedata.normalize("NFD", "йё") + ".jsonl",
        "x" * 180 + ".jsonl",
        "deep/" * 12 + "leaf.jsonl",
        "new\nline",
    ],
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_found_and_reported_as_they_are(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert names(tmp_path) == names(f"{tmp_path}/**") == [name]
    assert names(path) == [path.name]


def test_a_name_that_is_not_utf8_is_found_and_written_out(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    (file,) = find_inputs(source(tmp_path)).files
    assert file.name == "caf\\xe9.txt"
    assert Path(file.url).read_text() == "x"


def test_files_that_are_no_data_are_left_out_with_a_reason(tmp_path):
    for name in ["a.jsonl", "_SUCCESS", ".a.jsonl.crc", "b.crc", ".DS_Store", "_temporary/x.jsonl", ".git/config"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    inputs = find_inputs(source(tmp_path))
    assert [file.name for file in inputs.files] == ["a.jsonl"]
    assert {Path(one.url).relative_to(tmp_path).as_posix(): one.reason for one in inputs.skipped} == {
        "_SUCCESS": "a marker of a tool",
        ".a.jsonl.crc": "a hidden file or folder",
        "b.crc": "a checksum file",
        ".DS_Store": "a hidden file or folder",
        "_temporary/x.jsonl": "a marker of a tool",
        ".git/config": "a hidden file or folder",
    }


def test_files_that_are_no_text_by_their_ending_are_left_out_unless_a_format_is_named(tmp_path):
    for name in ["a.md", "a.PNG", "b.svg", "site.css", "x/app.js", "lib.so", "program.py", "dump.xml", ".md", "png"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    inputs = find_inputs(source(tmp_path))
    assert [file.name for file in inputs.files] == ["a.md", "dump.xml", "png", "program.py"]
    assert {Path(one.url).relative_to(tmp_path).as_posix(): one.reason for one in inputs.skipped} == {
        "a.PNG": "a picture",
        "b.svg": "a picture",
        "site.css": "a style sheet or script of pages",
        "x/app.js": "a style sheet or script of pages",
        "lib.so": "compiled code",
        ".md": "a hidden file or folder",
    }
    assert [file.name for file in find_inputs(source(tmp_path / "a.PNG")).files] == ["a.PNG"]
    named = find_inputs(SourceConfig(name="s", paths=(str(tmp_path),), format="text"))
    assert "x/app.js" in [file.name for file in named.files]


def test_no_ending_of_a_format_is_one_of_no_text():
    endings = {ending for endings in NO_TEXT.values() for ending in endings.split()}
    assert endings.isdisjoint(name.removeprefix(".") for name in FORMAT_OF_NAME)


def test_a_hidden_file_named_in_full_is_read(tmp_path):
    (tmp_path / "_a.jsonl").write_text("x")
    inputs = find_inputs(source(tmp_path, tmp_path / "_a.jsonl"))
    assert [file.name for file in inputs.files] == ["_a.jsonl"]
    assert inputs.skipped == ()


def test_a_corpus_below_a_hidden_folder_is_a_corpus(tmp_path):
    (tmp_path / ".cache" / "_corpus").mkdir(parents=True)
    (tmp_path / ".cache" / "_corpus" / "a.jsonl").write_text("x")
    assert names(tmp_path / ".cache" / "_corpus") == names(tmp_path / ".cache" / "_corpus" / "*") == ["a.jsonl"]


def test_a_link_to_nothing_is_reported_and_one_to_a_folder_is_followed(tree):
    (tree / "sub" / "gone.jsonl").symlink_to(tree / "no such file")
    (tree / "linked").symlink_to(tree / "other")
    (tree / "sub" / "loop").symlink_to(tree / "sub")
    for path in (tree, f"{tree}/**", f"{tree}/*", f"{tree}/*/*.jsonl"):
        inputs = find_inputs(source(path))
        assert "linked/e.jsonl" in [file.name for file in inputs.files]
        assert [one.reason for one in inputs.skipped] == ["a link to nothing"]


def test_a_pattern_enters_no_folder_that_it_does_not_lead_to(tree, monkeypatch):
    entered = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(str(path)) or scandir(path))
    assert names(f"{tree}/*.jsonl") == ["a.jsonl"]
    assert entered == []
    assert names(f"{tree}/s*/**/*.jsonl") == ["sub/c.jsonl", "sub/deep/d.jsonl"]
    assert entered == [f"{tree}/sub", f"{tree}/sub/deep"]


def test_pipes_are_no_files(tree):
    os.mkfifo(tree / "pipe.jsonl")
    assert names(f"{tree}/*.jsonl") == ["a.jsonl"]


def test_an_empty_folder_holds_no_files_and_is_no_error(tmp_path):
    assert find_inputs(source(tmp_path)).files == ()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.jsonl", "sources.docs.paths.0: there is no file or folder {}/none.jsonl: check the path"),
        ("no/*.jsonl", "sources.docs.paths.0: nothing matches {}/no/*.jsonl: there is no folder {}/no"),
        ("*.csv", "sources.docs.paths.0: nothing matches {}/*.csv: the folder {} is there, no file in it fits"),
        (
            "a.jsonl/*",
            "sources.docs.paths.0: nothing matches {}/a.jsonl/*: the folder {}/a.jsonl is there, no file in it fits",
        ),
    ],
)
def test_a_path_that_leads_to_nothing_is_named(tree, path, message):
    with pytest.raises(ConfigError) as error:
        find_inputs(source(tree / path))
    assert str(error.value) == message.replace("{}", str(tree))


@pytest.fixture(scope="module")
def bucket():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for key, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "us-east-1"}.items():
            patch.setenv(f"AWS_{key}", value)
        import boto3

        client = boto3.client("s3")
        client.create_bucket(Bucket="corpus")
        yield client
    server.stop()


def test_s3_keys_are_found_like_files(bucket):
    keys = [name for name in ODD_NAMES if "\n" not in name]  # moto's server finds no key with a line feed
    for name in [*keys, "_SUCCESS"]:
        bucket.put_object(Bucket="corpus", Key=f"odd/{name}", Body=b"x")
    bucket.put_object(Bucket="corpus", Key="odd2/not-below-odd.jsonl", Body=b"x")
    inputs = find_inputs(source("s3://corpus/odd"))
    assert [file.name for file in inputs.files] == sorted(keys)
    assert [one.url for one in inputs.skipped] == ["s3://corpus/odd/_SUCCESS"]
    assert names("s3://corpus/odd/*+*.jsonl") == ["a+b.jsonl"]
    assert names("s3://corpus/odd/**/part.jsonl") == ["year=2024/month=03/part.jsonl"]
    assert names("s3://corpus/odd/brackets[1].jsonl") == ["brackets[1].jsonl"]
    assert names("s3://corpus/odd2", "s3://corpus/odd/a+b.jsonl") == ["odd/a+b.jsonl", "odd2/not-below-odd.jsonl"]
    with pytest.raises(ConfigError, match="nothing matches s3://corpus/none"):
        find_inputs(source("s3://corpus/none/*.jsonl"))


def test_s3_objects_are_read_like_files(bucket, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.readers import read_file

    pq.write_table(pa.table({"text": ["из Parquet"]}), tmp_path / "a.parquet")
    bucket.upload_file(str(tmp_path / "a.parquet"), "corpus", "read/a b+c%20.parquet")
    bucket.put_object(Bucket="corpus", Key="read/b.jsonl", Body='{"text": "из строки"}\n'.encode())
    files = find_inputs(source("s3://corpus/read")).files
    texts = [text for file in files for records in read_file(file.url) for text in records.text.to_pylist()]
    assert texts == ["из Parquet", "из строки"]


FILES = st.lists(
    st.builds(
        lambda source, name, size: InputFile(source=source, name=name, url=name, num_bytes=size, identity="i"),
        source=st.sampled_from(["a", "b"]),
        name=st.text("xyz", min_size=1, max_size=4),
        size=st.integers(0, 100),
    ),
    unique_by=lambda file: (file.source, file.name),
)


@settings(max_examples=100, deadline=None)
@given(files=FILES, target=st.integers(1, 200), data=st.data())
def test_groups_hold_every_file_once_in_order_and_never_mix_sources(files, target, data):
    groups = group_inputs(files, target)
    flat = [file for group in groups for file in group]
    assert flat == sorted(files, key=lambda file: (file.source, file.name))
    assert all(len({file.source for file in group}) == 1 for group in groups)
    assert all(sum(file.num_bytes for file in group[:-1]) < target for group in groups)
    assert group_inputs(data.draw(st.permutations(files)), target) == groups


def test_groups_close_when_they_reach_their_size():
    files = [InputFile(source="s", name=f"{n}", url="u", num_bytes=40, identity="i") for n in range(5)]
    assert [len(group) for group in group_inputs(files, 100)] == [3, 2]
    assert group_inputs([], 100) == ()
