"""Other loaders on the same examples, one measurement a process: run by benchmarks/loader.py with the peers' Python.

    loader_peers.py prepare WHO TOKENS.npy FOLDER        writes the peer's own format
    loader_peers.py measure WHO TOKENS.npy FOLDER JSON   prints one JSON line; JSON: {"workers":, "dtype":, "batch":}
    loader_peers.py start WHO TOKENS.npy FOLDER JSON     time to the first batch alone; JSON: {"workers":, "batch":}
    loader_peers.py first WHO s3://PLACE CACHE JSON      time to the first batch from S3; JSON: {"batch":, "is_signed":}

Each peer is used as its documentation says, with its own shuffle, and gives batches of tokens as one tensor.
"""

import importlib
import importlib.machinery
import json
import os
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.loader_measure import measure

CHUNK_BYTES = 16 << 20
SHUFFLE_BUFFER = 1000  # webdataset's documentation uses 1,000


def prepare(who: str, tokens: np.ndarray, folder: str) -> None:
    if who == "streaming":
        _without_torchvision()
        from streaming import MDSWriter  # type: ignore[import-not-found]  # only the peers' Python has it

        columns = {"tokens": f"ndarray:{tokens.dtype}:{tokens.shape[1]}"}
        with MDSWriter(out=folder, columns=columns, size_limit=CHUNK_BYTES) as writer:
            for row in tokens:
                writer.write({"tokens": row})
    elif who == "litdata":
        from litdata import TokensLoader, optimize  # type: ignore[import-not-found]  # only the peers' Python has it

        optimize(
            fn=_LitdataRows(tokens),
            inputs=list(range(0, len(tokens), 256)),
            output_dir=folder,
            chunk_bytes="16MB",
            num_workers=1,
            item_loader=TokensLoader(block_size=tokens.shape[1]),
        )


class _LitdataRows:
    def __init__(self, tokens: np.ndarray) -> None:
        self._tokens = tokens

    def __call__(self, first: int) -> Iterator[torch.Tensor]:
        for row in self._tokens[first : first + 256]:
            yield torch.from_numpy(row.astype(np.int32))


class Rows(torch.utils.data.Dataset[Any]):
    """np.memmap, the plainest of all."""

    def __init__(self, path: str) -> None:
        self._rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.from_numpy(self._rows[number].view(np.int32).copy())


def loader_of(who: str, path: str, folder: str, batch: int, workers: int) -> Any:
    if who == "memmap":
        return torch.utils.data.DataLoader(
            Rows(path), batch_size=batch, shuffle=True, drop_last=True, num_workers=workers
        )
    if who == "streaming":
        _without_torchvision()
        from streaming import StreamingDataLoader, StreamingDataset
        from streaming.base.util import clean_stale_shared_memory  # type: ignore[import-not-found]  # only the peers' Python has it

        clean_stale_shared_memory()
        dataset = StreamingDataset(local=folder, shuffle=True, batch_size=batch)
        return StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, drop_last=True, collate_fn=_stacked)
    if who == "litdata":
        from litdata import StreamingDataLoader as LitLoader
        from litdata import StreamingDataset as LitDataset
        from litdata import TokensLoader

        rows = np.load(path, mmap_mode="r")
        data = LitDataset(folder, item_loader=TokensLoader(block_size=rows.shape[1]), shuffle=True, drop_last=True)
        return LitLoader(data, batch_size=batch, num_workers=workers)
    return _webdataset(sorted(str(shard) for shard in Path(folder).glob("*.tar")), batch, workers)


def _webdataset(shards: list[str], batch: int, workers: int) -> Any:
    import webdataset

    pipeline = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(SHUFFLE_BUFFER).decode()
    pipeline = pipeline.map(_tokens).batched(batch, collation_fn=_stacked_arrays, partial=False)
    return webdataset.WebLoader(pipeline, batch_size=None, num_workers=workers)


def _tokens(row: dict[str, Any]) -> np.ndarray:
    tokens: np.ndarray = row["tokens.npy"]
    return tokens.view(np.int32)


def _stacked(rows: list[dict[str, Any]]) -> torch.Tensor:
    return torch.from_numpy(np.stack([row["tokens"] for row in rows]).view(np.int32))


def _stacked_arrays(rows: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(rows))


def first(who: str, place: str, cache: str, batch: int, is_signed: bool) -> None:
    """One JSON line: seconds and CPU seconds from here, where torch is imported, to the first batch from S3.

    is_signed: of webdataset, that its URLs are given: signing them is no part of the time.
    """
    torch.set_num_threads(1)
    urls = _signed(place) if is_signed else None
    started, cpu = time.perf_counter(), time.process_time()
    loader: Any
    if who == "streaming":
        _without_torchvision()
        from streaming import StreamingDataLoader, StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()
        dataset = StreamingDataset(remote=place, local=cache, shuffle=True, batch_size=batch)
        loader = StreamingDataLoader(dataset, batch_size=batch, num_workers=0, drop_last=True, collate_fn=_stacked)
    elif who == "litdata":
        from litdata import StreamingDataLoader as LitLoader
        from litdata import StreamingDataset as LitDataset
        from litdata import TokensLoader

        # Its S3 client refuses a server without TLS otherwise.
        downloader = importlib.import_module("litdata.streaming.downloader")
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
        item_loader = TokensLoader(block_size=4096)
        data = LitDataset(place, cache_dir=cache, item_loader=item_loader, shuffle=True, drop_last=True)
        loader = LitLoader(data, batch_size=batch, num_workers=0)
    else:
        loader = _webdataset(urls or _signed(place), batch, 0)
    batches = iter(loader)  # kept: ending an iteration is no part of the time
    next(batches)
    print(json.dumps({"all_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)


def _signed(place: str) -> list[str]:
    """URLs that webdataset reads through curl, as its documentation shows, without credentials of its own."""
    import boto3

    bucket, prefix = place.removeprefix("s3://").split("/", 1)
    store = boto3.client("s3")
    keys = [f"{prefix}/shards/train/v1-{number:06d}.tar" for number in range(12)]
    urls = [store.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}) for key in keys]
    return [f"pipe:curl -s '{url}'" for url in urls]


def start(who: str, path: str, folder: str, batch: int, workers: int) -> None:
    """One JSON line: seconds of imports, then from making the loader to its first batch, and the CPU time of that."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    _import(who)
    imported, cpu = time.perf_counter(), time.process_time()
    batches = iter(loader_of(who, path, folder, batch, workers))
    next(batches)
    times = {"first_batch_s": time.perf_counter() - imported, "cpu_s": time.process_time() - cpu}
    print(json.dumps({"imports_s": imported - began, **times}))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)


def _import(who: str) -> None:
    """What a training imports once, whoever its loader is, is not part of a loader's start."""
    if who == "streaming":
        _without_torchvision()
    if who != "memmap":
        importlib.import_module(who)


def main() -> None:
    command, who, path, folder = sys.argv[1:5]
    if command == "prepare":
        prepare(who, np.load(path, mmap_mode="r"), folder)
        return
    if command == "first":
        first(who, path, folder, **json.loads(sys.argv[5]))
        return
    options = json.loads(sys.argv[5])
    if command == "start":
        start(who, path, folder, options["batch"], options["workers"])
        return
    _import(who)
    dtype = getattr(torch, options["dtype"])

    def batches(loader: Any) -> Iterator[torch.Tensor]:
        for batch in loader:
            yield batch.to(dtype)

    def make() -> Any:
        return loader_of(who, path, folder, options["batch"], options["workers"])

    def resumed(steps: int) -> Iterator[torch.Tensor]:
        loader = make()
        if who == "webdataset" or who == "memmap":
            # Neither has a state: what was seen is read again.
            skipped = batches(loader)
            for _ in range(steps):
                next(skipped)
            return skipped
        state: dict[str, Any]
        if who == "streaming":
            state = loader.dataset.state_dict(steps * options["batch"], from_beginning=True)
            loader.dataset.load_state_dict(state)
            return batches(loader)
        running = batches(loader)
        for _ in range(steps):
            next(running)
        state = loader.state_dict()
        again = make()
        again.load_state_dict(state)
        resumed.started = time.perf_counter()  # type: ignore[attr-defined]  # the clock starts after the state exists
        return batches(again)

    print(json.dumps(measure(make, batches, resumed, options)))  # noqa: T201 - what benchmarks/loader.py reads
    sys.stdout.flush()
    os._exit(0)  # some peers' threads outlive their iteration


def _without_torchvision() -> None:
    """streaming imports torchvision for images. Where none is installed, a stand-in lets the rest of it work."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        names = ("", ".datasets", ".datasets.folder", ".io", ".transforms", ".transforms.functional")
        for name in names:
            module = _Anything(f"torchvision{name}")
            module.__path__ = []
            module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
            sys.modules[module.__name__] = module


class _Anything(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


if __name__ == "__main__":
    main()
