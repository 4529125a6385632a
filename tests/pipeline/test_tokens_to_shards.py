"""Texts to shards and back: not one token unaccounted, whatever the lengths, the packing and the cutting into tasks."""

import json
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset

from loader import Loader
from manifests.manifest import Dataset
from pipeline import packing
from pipeline.inputs import group_inputs
from pipeline.stages import encode, write
from pipeline.tokenization import read_tokenizer
from tests.pipeline.inline_builds import (
    InlineRuntime,
    a_token_a_byte,
    build_texts,
    examples_of,
    lineage_of,
    problems_of,
)

SEQ_LEN = 16
PACKINGS = ("concat", "best_fit")


def letters(num: int, seed: int) -> str:
    """A text of `num` letters, so of num + 1 tokens."""
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=num))


def records_of_lengths(tokens: list[int]) -> list[tuple[str, str]]:
    return [(f"d{number:04d}", letters(num - 1, number)) for number, num in enumerate(tokens)]


def decoded(dataset: Dataset, split: str = "train") -> Counter[tuple[str, int, str]]:
    """Every document as its lineage puts it together: (id, repeat, text up to EOS); cut ones end in "…"."""
    vocabulary = {number: token for token, number in _vocabulary(dataset).items()}
    tokens = examples_of(dataset, split).ravel()
    seq_len = dataset.manifest.example.seq_len
    parts: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for row in lineage_of(dataset, split).to_pylist():
        start = row["first_example"] * seq_len + row["first_token"]
        ids = tokens[start : start + row["num_tokens"]].tolist()
        assert (ids[-1] == 0) == row["ends"]
        text = "".join("" if number == 0 else vocabulary[number] for number in ids) + ("" if row["ends"] else "…")
        parts.setdefault((row["document_id"], row["repeat"]), []).append((row["document_offset"], text))
    whole = {}
    for key, pieces in parts.items():
        pieces.sort()
        offset = 0
        for begin, text in pieces:
            assert begin == offset, "pieces of a document follow each other without a gap"
            offset = begin + len(text.replace("…", ""))
        joined = "".join(text.removesuffix("…") for _, text in pieces)
        whole[key] = joined + ("…" if pieces[-1][1].endswith("…") else "")
    return Counter((name, repeat, text) for (name, repeat), text in whole.items())


def _vocabulary(dataset: Dataset) -> dict[str, int]:
    import tokenizers

    return dict(tokenizers.Tokenizer.from_file(dataset.resolve(dataset.manifest.tokenizer.path)).get_vocab())


@pytest.mark.parametrize("packing_name", PACKINGS)
def test_documents_of_every_awkward_length_come_back_whole(tmp_path: Path, packing_name: str) -> None:
    """Case 22: exactly a row, one less, one more, ten rows, larger than a shard, and many small ones."""
    lengths = [SEQ_LEN, SEQ_LEN - 1, SEQ_LEN + 1, 10 * SEQ_LEN, 40 * SEQ_LEN + 3, 2, 2, 1 + 2 * SEQ_LEN] + [
        random.Random(1).randrange(2, SEQ_LEN // 2) for _ in range(100)
    ]
    records = records_of_lengths(lengths)
    dataset = build_texts(
        tmp_path / "d",
        [records],
        example={"seq_len": SEQ_LEN, "packing": packing_name},
        shards={"max_bytes": 20_000},
    )
    assert problems_of(dataset) == []
    train = dataset.manifest.splits["train"]
    assert train.num_shards > 4
    sizes = {shard.num_examples for shard in train.shards}
    assert max(sizes) - min(sizes) <= 1
    assert max(shard.num_bytes for shard in train.shards) <= 20_000
    dropped = dataset.manifest.num_dropped_tokens
    assert train.num_tokens + dropped == sum(lengths) == dataset.manifest.sources["letters"].tokens
    expected = Counter((name, 0, text) for name, text in records)
    if packing_name == "best_fit":
        assert dropped == 0
        assert decoded(dataset) == expected
    else:
        assert dropped < SEQ_LEN
        # The stream's last tokens are dropped: of one document the end, and a whole one or more after it.
        missing = expected - decoded(dataset)
        assert sum(len(text) + 1 for _, _, text in missing) < dropped + max(lengths)
        assert (decoded(dataset) - expected).total() <= 1


def test_best_fit_cuts_no_document_that_fits_a_row(tmp_path: Path) -> None:
    lengths = [random.Random(seed).randrange(2, SEQ_LEN + 1) for seed in range(300)]
    dataset = build_texts(
        tmp_path / "d", [records_of_lengths(lengths)], example={"seq_len": SEQ_LEN, "packing": "best_fit"}
    )
    rows = lineage_of(dataset).to_pylist()
    assert len(rows) == 300
    assert all(row["document_offset"] == 0 and row["ends"] for row in rows)
    assert all(row["first_token"] + row["num_tokens"] <= SEQ_LEN for row in rows)
    train = dataset.manifest.splits["train"]
    assert train.num_padding_tokens == train.num_examples * SEQ_LEN - sum(lengths)
    assert np.count_nonzero(examples_of(dataset) == 65_535) == train.num_padding_tokens


def test_the_loader_masks_padding_and_keeps_documents_apart(tmp_path: Path) -> None:
    """Case 23, what comes out; what goes in: test_short_documents_and_a_mix_with_many_that_nearly_fill_a_row_..."""
    lengths = [9, 5, SEQ_LEN, 7, 2 * SEQ_LEN + 4]
    dataset = build_texts(
        tmp_path / "d", [records_of_lengths(lengths)], example={"seq_len": SEQ_LEN, "packing": "best_fit"}
    )
    assert (dataset.manifest.splits["train"].num_examples, problems_of(dataset)) == (5, [])
    batches = list(Loader(dataset, global_batch=5))
    columns = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    num_tokens = sum(lengths)
    padding = columns["document_ids"] == -1
    assert int((~padding).sum()) == num_tokens
    assert (columns["labels"][padding] == -100).all()
    assert (columns["input_ids"][padding] == 0).all()
    # Each token but the last of its document in its row is followed by a target.
    rows_of_documents = sum(-(-n // SEQ_LEN) for n in lengths)
    assert int((columns["labels"] != -100).sum()) == num_tokens - rows_of_documents
    starts = columns["position_ids"][~padding] == 0
    assert int(starts.sum()) == rows_of_documents


@pytest.mark.parametrize("packing_name", PACKINGS)
def test_neither_files_nor_their_order_nor_buckets_decide_a_byte(
    tmp_path: Path, packing_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 15 for this stage: groups smaller than a bucket and larger, one file and many, twins that differ in white
    space only.
    """
    monkeypatch.setattr(packing, "MIN_GROUP_TOKENS", 512)
    monkeypatch.setattr(packing, "MIN_GROUP_ROWS", 8)
    records = records_of_lengths([random.Random(seed).randrange(2, 40) for seed in range(400)])
    records += [("twin", "a b c"), ("twin", "a  bc"), ("twin", "ab  c"), ("twin", "a b c")]
    shuffled = random.Random(3).sample(records, len(records))
    digests = set()
    for number, (files, num_buckets) in enumerate(
        [([records], 1), ([records[::-1]], 4), ([shuffled[:50], shuffled[50:60], shuffled[60:]], 256)]
    ):
        monkeypatch.setattr("pipeline.build.num_buckets_for", lambda _bytes, n=num_buckets: n)
        dataset = build_texts(
            tmp_path / str(number),
            files,
            example={"seq_len": SEQ_LEN, "packing": packing_name},
            shards={"max_bytes": 100_000},
            weight=1.5,
        )
        assert problems_of(dataset) == []
        train = dataset.manifest.splits["train"]
        digests.add(tuple(shard.sha256 for shard in train.shards))
    assert len(digests) == 1


@pytest.mark.parametrize("packing_name", PACKINGS)
def test_runs_and_shards_on_s3_give_the_digest_of_the_local_build(
    tmp_path: Path, packing_name: str, s3_root: str
) -> None:
    records = records_of_lengths([random.Random(seed).randrange(2, 40) for seed in range(200)])
    keys: dict[str, Any] = {
        "example": {"seq_len": SEQ_LEN, "packing": packing_name},
        "shards": {"max_bytes": 100_000},
    }
    local = build_texts(tmp_path / "local", [records], **keys)
    remote = build_texts(tmp_path / "remote", [records], output=f"{s3_root}/{packing_name}", **keys)
    assert remote.manifest.digest == local.manifest.digest
    assert problems_of(remote) == []


@pytest.mark.parametrize("packing_name", PACKINGS)
@pytest.mark.parametrize("where", ["local", "s3"])
def test_files_encoded_together_and_shards_written_together_give_the_same_digest(
    tmp_path: Path, packing_name: str, where: str, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of a corpus of terabytes: a run of several files' documents, by way of the local disk, and several shards
    from one reading of every run.
    """
    records = records_of_lengths([random.Random(seed).randrange(2, 40) for seed in range(400)])
    files = [records[:150], records[150:160], records[160:300], records[300:]]
    keys: dict[str, Any] = {
        "example": {"seq_len": SEQ_LEN, "packing": packing_name},
        "shards": {"max_bytes": 50_000},
        "weight": 1.5,
    }
    expected = build_texts(tmp_path / "one", files, **keys)
    monkeypatch.setattr(group_inputs, "__defaults__", (1, *(group_inputs.__defaults__ or ())[1:]))
    monkeypatch.setattr("pipeline.build.num_buckets_for", lambda _: 64)
    monkeypatch.setattr(encode, "MAX_UNITS", 2)
    monkeypatch.setattr(encode, "MAX_RUN_TOKENS", 1000)
    monkeypatch.setattr(encode, "MERGE_BUCKETS", 4)
    monkeypatch.setattr(write, "RUNS_PER_SHARD", 1)
    units: list[tuple[str, int]] = []
    run = InlineRuntime.run

    def recorded(self: InlineRuntime, stage: str, function: Any, tasks: Any, check: Any = None) -> Any:
        units.append((stage, len(tasks)))
        return run(self, stage, function, tasks, check)

    monkeypatch.setattr(InlineRuntime, "run", recorded)
    output = str(tmp_path / "together") if where == "local" else f"{s3_root}/together"
    dataset = build_texts(tmp_path / "in", files, output=output, **keys)
    assert dataset.manifest.digest == expected.manifest.digest
    assert problems_of(dataset) == []
    num_shards = dataset.manifest.splits["train"].num_shards
    assert num_shards > 3
    assert ("encode", 2) in units
    assert ("write", -(-num_shards // 2)) in units


@pytest.mark.parametrize("packing_name", PACKINGS)
def test_a_weight_of_two_and_a_half_gives_every_document_twice_and_half_of_them_a_third_time(
    tmp_path: Path, packing_name: str
) -> None:
    records = records_of_lengths([random.Random(seed).randrange(2, 30) for seed in range(1000)])
    dataset = build_texts(tmp_path / "d", [records], weight=2.5, example={"seq_len": SEQ_LEN, "packing": packing_name})
    assert problems_of(dataset) == []
    texts = dict(records)
    repeats: dict[str, set[int]] = {}
    for name, repeat, _ in decoded(dataset):
        repeats.setdefault(name, set()).add(repeat)
    thirds = sum(found == {0, 1, 2} for found in repeats.values())
    assert 450 < thirds < 550
    # A tail of fewer tokens than a row is dropped by concat, and a document or two with it.
    others = sum(found == {0, 1} for found in repeats.values())
    assert thirds + others >= (1000 if packing_name == "best_fit" else 996)
    if packing_name == "best_fit":
        expected = sum((len(texts[name]) + 1) * len(found) for name, found in repeats.items())
        assert dataset.manifest.sources["letters"].tokens == expected
        assert dataset.manifest.built["copies_by_weight"] == {"letters": 1000 + thirds}


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_535, "uint16"), (65_536, "uint32"), (65_537, "uint32")])
def test_ids_at_the_edge_of_sixteen_bits_are_widened_in_time(tmp_path: Path, vocab_size: int, dtype: str) -> None:
    """Case 21: EOS bears the largest id, so a width too narrow would make it padding or wrap it to 0."""
    fields = json.loads(a_token_a_byte())
    vocabulary = fields["model"]["vocab"]
    eos = vocabulary.pop("<|endoftext|>")
    vocabulary["unused"] = eos
    for number in range(len(vocabulary), vocab_size - 1):
        vocabulary[f"unused-{number}"] = number
    fields["added_tokens"][0]["id"] = vocab_size - 1
    data = json.dumps(fields).encode()
    assert read_tokenizer(data).vocab_size == vocab_size
    dataset = build_texts(
        tmp_path / "d",
        [records_of_lengths([3, 9, 20, 5])],
        tokenizer=data,
        example={"seq_len": 8, "packing": "best_fit"},
    )
    example = dataset.manifest.example
    assert (example.dtype, dataset.manifest.tokenizer.eos_id) == (dtype, vocab_size - 1)
    tokens = examples_of(dataset)
    assert np.count_nonzero(tokens == vocab_size - 1) == 4
    assert np.count_nonzero(tokens == example.padding_id) == dataset.manifest.splits["train"].num_padding_tokens
    assert problems_of(dataset) == []


def test_identical_texts_and_ids_of_any_letters_give_unique_keys_that_tar_and_webdataset_read(tmp_path: Path) -> None:
    """Case 24."""
    names = ["a.b/c.tokens", "наряд/№ 5.txt", "../../etc/passwd", "", "d" * 300]
    records = [(f"{names[number % 5]}{number}", "x" * (SEQ_LEN - 1)) for number in range(23)]
    dataset = build_texts(
        tmp_path / "d", [records], example={"seq_len": SEQ_LEN}, shards={"max_bytes": 10 * 1024 + 1024 + 5}
    )
    assert problems_of(dataset) == []
    shards = dataset.manifest.splits["train"].shards
    assert [shard.num_examples for shard in shards] == [7, 8, 8]
    keys, rows = [], []
    for shard in shards:
        path = dataset.resolve(shard.path)
        assert Path(path).stat().st_size == shard.num_bytes <= 10 * 1024 + 1024 + 5
        listing = subprocess.run(["tar", "-t", "-f", path], capture_output=True, text=True, check=True).stdout.split()
        keys += listing
        rows += [sample["tokens.npy"].tolist() for sample in webdataset.WebDataset(path, shardshuffle=False).decode()]
    assert len(set(keys)) == len(keys) == 23
    assert all(key.removesuffix(".tokens.npy").count(".") == 0 for key in keys)
    assert rows == examples_of(dataset).tolist()
    assert len({tuple(row) for row in rows}) == 1
    assert sorted(row["document_id"] for row in lineage_of(dataset).to_pylist()) == sorted(name for name, _ in records)


SPECIAL_TEXTS = ["<|endoftext|>", "a </s> b <|im_start|>", "<s>[SEP]<|endoftext|><|endoftext|>", "plain"]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_special_token_strings_in_text_end_no_document(tmp_path: Path, engine: str) -> None:
    """Case 19."""
    dataset = build_texts(
        tmp_path / "d",
        [[(str(number), text) for number, text in enumerate(SPECIAL_TEXTS)]],
        example={"seq_len": 8, "packing": "best_fit"},
        tokenizer_keys={"engine": engine},
    )
    assert problems_of(dataset) == []
    assert np.count_nonzero(examples_of(dataset) == 0) == len(SPECIAL_TEXTS)
    found = {name: text.replace("Ġ", " ") for name, _, text in decoded(dataset)}
    assert found == {str(number): text for number, text in enumerate(SPECIAL_TEXTS)}


def starts_by_itself() -> bytes:
    """A token a byte, and a post-processor that puts `<s>`, id 257, before every text."""
    fields = json.loads(a_token_a_byte())
    fields["added_tokens"].append({**fields["added_tokens"][0], "content": "<s>", "id": 257})
    text = {"Sequence": {"id": "A", "type_id": 0}}
    fields["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}},
    }
    return json.dumps(fields).encode()


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("packing_name", PACKINGS)
def test_bos_that_the_tokenizer_puts_itself_begins_every_document_and_eos_ends_it_once(
    tmp_path: Path, packing_name: str, engine: str
) -> None:
    """Case 20: BOS is not lost because EOS is put in, nor either doubled."""
    texts = ["one", "<s> two <s>", "x", "four four"]
    dataset = build_texts(
        tmp_path / "d",
        [[(str(number), text) for number, text in enumerate(texts)]],
        example={"seq_len": 16, "packing": packing_name},
        tokenizer=starts_by_itself(),
        tokenizer_keys={"engine": engine},
    )
    assert problems_of(dataset) == []
    assert (dataset.manifest.tokenizer.bos_id, dataset.manifest.tokenizer.eos_id) == (257, 0)
    tokens = examples_of(dataset)
    stream = tokens[tokens != dataset.manifest.example.padding_id].tolist()
    assert len(stream) == sum(len(text) + 2 for text in texts) - dataset.manifest.num_dropped_tokens
    bounds = [token for token in stream if token in (257, 0)]
    assert bounds == [257, 0] * (len(bounds) // 2)
    assert stream[0] == 257
    assert len(bounds) == 2 * len(texts)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"eos": "</end>"}, "tokenizer.eos is '</end>', which is not among the tokenizer's 257 tokens"),
        ({"eos": "a"}, "tokenizer.eos is 'a' .id 65., which ordinary text is encoded to as well"),
        ({"bos": "<|endoftext|>"}, "tokenizer.bos is '<.endoftext.>', which is the end-of-document token too"),
    ],
)
def test_a_tokenizer_that_cannot_end_documents_stops_the_build_before_it_reads(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    """Case 20: none, wrong or double."""
    with pytest.raises(ValueError, match=message):
        build_texts(tmp_path / "d", [[("a", "text")]], example={"seq_len": 8}, tokenizer_keys=keys)
    assert not (tmp_path / "d" / "data" / ".build" / "read").exists()
