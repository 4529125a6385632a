import io
import subprocess
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests import ExampleFormat, ShardError, view_examples, write_shard
from manifests.shard import npy_header, num_examples_in

SMALL = ExampleFormat(seq_len=5, dtype="uint32", packing="concat")


def written(examples: np.ndarray, format: ExampleFormat = SMALL, version: str = "v1", shard: int = 0) -> bytes:
    stream = io.BytesIO()
    write_shard(stream, [examples], version=version, shard=shard, num_examples=len(examples), format=format)
    return stream.getvalue()


def test_the_stride_of_the_contract():
    assert ExampleFormat(seq_len=4096, dtype="uint32", packing="concat").stride == 17408
    assert ExampleFormat(seq_len=2048, dtype="uint16", packing="concat").stride == 512 + 4608


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_534, "uint16"), (65_535, "uint16"), (65_536, "uint32"), (65_537, "uint32")]
)
def test_the_dtype_leaves_its_largest_value_for_padding(vocab_size, dtype):
    assert ExampleFormat.dtype_for(vocab_size) == dtype
    assert vocab_size - 1 < ExampleFormat(seq_len=1, dtype=dtype, packing="concat").padding_id


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 700), st.sampled_from(["uint16", "uint32"]), st.integers(1, 9), st.data())
def test_examples_come_back_from_the_bytes_by_view_and_by_tarfile(seq_len, dtype, num_examples, data):
    format = ExampleFormat(seq_len=seq_len, dtype=dtype, packing="best_fit")
    seed = data.draw(st.integers(0, 99))
    examples = (
        np.random.default_rng(seed)
        .integers(0, format.padding_id + 1, (num_examples, seq_len))
        .astype(format.numpy_dtype)
    )
    content = written(examples, format)
    assert len(content) == format.shard_num_bytes(num_examples)
    assert format.max_examples(len(content)) == num_examples
    assert format.max_examples(len(content) - 1) == num_examples - 1
    np.testing.assert_array_equal(view_examples(content, format), examples)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == [f"v1-000000-{i:08d}.tokens.npy" for i in range(num_examples)]
        for member, example in zip(members, examples, strict=True):
            loaded = np.load(io.BytesIO(archive.extractfile(member).read()))
            assert loaded.dtype == format.numpy_dtype
            np.testing.assert_array_equal(loaded, example)


def test_blocks_of_any_size_make_the_same_bytes():
    format = ExampleFormat(seq_len=4096, dtype="uint32", packing="concat")
    # 150 rows of 17 kB go past the writer's own block of 1 MiB more than once.
    examples = np.random.default_rng(0).integers(0, 1000, (150, 4096), dtype=np.uint32)
    streams = [io.BytesIO(), io.BytesIO(), io.BytesIO()]
    for stream, size in zip(streams, (150, 7, 1), strict=True):
        blocks = (examples[start : start + size] for start in range(0, 150, size))
        digest = write_shard(stream, blocks, version="v1", shard=0, num_examples=150, format=format)
    assert streams[0].getvalue() == streams[1].getvalue() == streams[2].getvalue()
    assert digest.num_bytes == len(streams[0].getvalue())
    np.testing.assert_array_equal(view_examples(streams[0].getvalue(), format), examples)


def test_gnu_tar_makes_the_same_file_byte_for_byte(tmp_path):
    examples = np.arange(60, dtype="<u4").reshape(12, 5)
    names = []
    for index, example in enumerate(examples):
        names.append(f"v1-000003-{index:08d}.tokens.npy")
        np.save(tmp_path / names[-1], example)
    options = [
        "--format=ustar",
        "--mode=0644",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--blocking-factor=1",
    ]
    subprocess.run(["tar", *options, "-cf", "made.tar", *names], cwd=tmp_path, check=True)
    assert (tmp_path / "made.tar").read_bytes() == written(examples, shard=3)


def test_gnu_tar_lists_a_shard(tmp_path):
    (tmp_path / "shard.tar").write_bytes(written(np.zeros((2, 5), "<u4"), version="v-1_b", shard=12))
    listed = subprocess.run(
        ["tar", "-tvf", "shard.tar"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env={"TZ": "UTC", "LC_ALL": "C"},
    )
    assert listed.stderr == ""
    assert listed.stdout.splitlines() == [
        "-rw-r--r-- 0/0             148 1970-01-01 00:00 v-1_b-000012-00000000.tokens.npy",
        "-rw-r--r-- 0/0             148 1970-01-01 00:00 v-1_b-000012-00000001.tokens.npy",
    ]


def test_stock_webdataset_reads_the_same_tokens(tmp_path):
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
    examples = np.random.default_rng(1).integers(0, 60_000, (9, 33)).astype("<u2")
    path = tmp_path / "v1-000000.tar"
    path.write_bytes(written(examples, ExampleFormat(seq_len=33, dtype="uint16", packing="concat")))
    samples = list(webdataset.WebDataset(str(path), shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == [f"v1-000000-{i:08d}" for i in range(9)]
    np.testing.assert_array_equal(np.stack([sample["tokens.npy"] for sample in samples]), examples)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("seq_len", [1, 7, 4096, 1_048_576])
def test_the_npy_header_is_the_one_numpy_writes(seq_len, dtype):
    format = ExampleFormat(seq_len=seq_len, dtype=dtype, packing="concat")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.zeros(seq_len, format.numpy_dtype), version=(1, 0))
    assert npy_header(format) == stream.getvalue()[:128]
    assert len(stream.getvalue()) == 128 + seq_len * format.itemsize


def test_a_view_is_read_only_and_copies_nothing():
    content = bytearray(written(np.zeros((2, 5), "<u4")))
    view = view_examples(content, SMALL)
    content[640:644] = (77).to_bytes(4, "little")
    assert view[0, 0] == 77
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1


@pytest.mark.parametrize("num_bytes", [0, 1024, 2047, 2049, 1024 + 1024 - 512])
def test_a_file_of_another_size_is_no_shard(num_bytes):
    with pytest.raises(ShardError, match=f"{num_bytes} bytes are not a shard of examples with stride 1024"):
        num_examples_in(num_bytes, SMALL)


@pytest.mark.parametrize(
    ("rows", "said"), [(2, "hold 2 examples, the plan says 3"), (4, "hold 4"), (200_000, "or more examples")]
)
def test_another_number_of_examples_than_planned_is_refused(rows, said):
    blocks = [np.zeros((rows, 5), "<u4")]
    with pytest.raises(ShardError, match=said):
        write_shard(io.BytesIO(), blocks, version="v1", shard=0, num_examples=3, format=SMALL)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (np.zeros((3, 5), np.int64), "a block of int64 for a shard of uint32"),
        (np.zeros((3, 5), ">u4"), "a block of >u4"),
        (np.zeros((3, 6), "<u4"), r"shape \(3, 6\) is not \(k, 5\)"),
        (np.zeros(5, "<u4"), r"shape \(5,\)"),
    ],
)
def test_a_block_of_another_dtype_or_shape_is_refused(block, said):
    with pytest.raises(ShardError, match=said):
        write_shard(io.BytesIO(), [block], version="v1", shard=0, num_examples=3, format=SMALL)


@pytest.mark.parametrize("version", ["", "v1.0", "v/1", "вер1", "v" * 41, "v1\n"])
def test_a_version_name_that_webdataset_or_tar_would_cut_is_refused(version):
    with pytest.raises(ShardError, match="is not a version name"):
        written(np.zeros((1, 5), "<u4"), version=version)


def test_the_longest_names_fit_a_tar_header():
    content = written(np.zeros((1, 5), "<u4"), version="v" * 40, shard=999_999)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["v" * 40 + "-999999-00000000.tokens.npy"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seq_len": 0}, "seq_len is 0"),
        ({"seq_len": True}, "seq_len is True"),
        ({"dtype": "int32"}, "dtype is 'int32'"),
        ({"packing": "greedy"}, "packing is 'greedy'"),
        ({"seq_len": 2**32}, "a tar member holds 8589934591 bytes"),
    ],
)
def test_an_impossible_format_is_refused(fields, said):
    with pytest.raises(ShardError, match=said):
        ExampleFormat(**{"seq_len": 8, "dtype": "uint32", "packing": "concat"} | fields)


def test_a_format_whose_stride_contradicts_it_is_refused():
    value = SMALL.to_json()
    assert ExampleFormat.from_json(value) == SMALL
    with pytest.raises(ShardError, match="stride is 1536, but 5 tokens of uint32 need 1024"):
        ExampleFormat.from_json(value | {"stride": 1536})
    with pytest.raises(ShardError, match="it needs exactly the keys"):
        ExampleFormat.from_json(value | {"order": "C"})
