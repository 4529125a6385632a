"""`python -m loader peek`: the examples of one global batch as text, with their documents drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from loader.mixture import blocks_of, lanes_of_rank, order_of
from loader.order import RunShape
from loader.rows import map_shard
from loader.shards import ShardTable
from manifests import Dataset, storage
from manifests.shard import TOKENS_OFFSET

# How text shows what would break a line.
_VISIBLE = {ord("\n"): "⏎", ord("\t"): "→", ord("\r"): "␍"}


def lines(
    datasets: Sequence[Dataset],
    weights: Sequence[float],
    *,
    split: str,
    shape: RunShape,
    step: int,
    num_rows: int,
    width: int = 100,
) -> Iterator[str]:
    """The first `num_rows` rows of global batch number `step` of a run, one block each.

    weights: of the datasets, which are then mixed; none for one dataset.
    """
    tables = [ShardTable(dataset=dataset, split=split) for dataset in datasets]
    order = order_of([table.num_examples for table in tables], weights, shape)
    epoch, consumed = order.at_step(step)
    [rows] = next(blocks_of(order, lanes_of_rank(order, 0, 1), epoch, consumed, 1)).steps()
    shards = [(table, number) for table in tables for number in range(len(table.entries))]
    decode = _decoder(datasets[0])
    yield f"step {step} (epoch {epoch}): {min(num_rows, shape.global_batch)} of {shape.global_batch} rows"
    for row, (shard, index) in enumerate(rows[:num_rows]):
        table, number = shards[shard]
        yield ""
        yield f"row {row}: example {index} of {table.url(number) if weights else table.entries[number].path}"
        yield from _drawn(_tokens(table, number, index), datasets[0], decode, width)


def _drawn(tokens: np.ndarray, dataset: Dataset, decode: _Decode, width: int) -> Iterator[str]:
    """Each document of a row: where it lies, and its two ends."""
    manifest = dataset.manifest
    num_real = int((tokens != manifest.example.padding_id).sum())
    ends = (np.flatnonzero(tokens[:num_real] == manifest.tokenizer.eos_id) + 1).tolist()
    starts = [0, *ends]
    stops = [*ends, num_real]
    for document, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if start == stop:
            continue
        is_ended = stop in ends
        room = (width - 8) // 2
        text = decode(tokens[start : stop - is_ended].tolist()).translate(_VISIBLE)
        shown = text if len(text) <= 2 * room else f"{text[:room]} … {text[-room:]}"
        yield f"  ┌ document {document}: tokens {start:,} .. {stop - 1:,} ({stop - start:,})"
        yield f"  │ {shown}"
        yield "  └ EOS" if is_ended else "  ┆ goes on in another row" if stop == len(tokens) else "  └ padding follows"
    if num_real < len(tokens):
        yield f"  ░ padding: tokens {num_real:,} .. {len(tokens) - 1:,} ({len(tokens) - num_real:,})"


class _Decode:
    """Token ids -> text."""

    def __init__(self, tokenizer: object) -> None:
        self._tokenizer = tokenizer

    def __call__(self, ids: list[int]) -> str:
        if self._tokenizer is None:
            return " ".join(map(str, ids))
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))  # type: ignore[attr-defined]  # untyped


def _decoder(dataset: Dataset) -> _Decode:
    """By the manifest's tokenizer; where its file is not there, the ids themselves are shown."""
    from tokenizers import Tokenizer  # a quarter of a second that only this command needs

    try:
        text = storage.read_bytes(dataset.resolve(dataset.manifest.tokenizer.path)).decode("utf-8")
        json.loads(text)
    except (FileNotFoundError, ValueError):
        return _Decode(None)
    return _Decode(Tokenizer.from_str(text))


def _tokens(table: ShardTable, shard: int, index: int) -> np.ndarray:
    """One example: mapped where its shard is local, by one ranged read where it is not."""
    example = table.dataset.manifest.example
    path = table.local_path(shard)
    if path is not None:
        return map_shard(table.local_shard(shard, path), example)[index]
    start = index * example.stride + TOKENS_OFFSET
    data = storage.read_bytes(table.url(shard), start, example.seq_len * example.itemsize)
    return np.frombuffer(data, dtype=example.numpy_dtype)
