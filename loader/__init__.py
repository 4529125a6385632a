"""Manifest, seed and position -> the same batches, on any number of ranks and workers, from any place at once.

    manifest, seed, B, L, K   -> order.py      which example is row i of global batch t: arithmetic, nothing else
    rank, world size          -> order.py      the lanes a rank owns, so the shards it reads
    order, position           -> residency.py  from when until when a shard is needed, and the bytes that takes
    residency                 -> fetch.py      object storage -> cache.py, ahead of need; local shards stay in place
    files, rows               -> rows.py       memory maps -> where the rows lie
    rows                      -> columns.py    input_ids, labels, position_ids, document_ids; by kernel.py, which
                                               machine_code.py keeps compiled, by numpy while it is not yet
    columns                   -> batches.py    tensors, here or in worker processes
    tensors                   -> staging.py    a device, ahead of need; these two alone know torch
    all of it                 -> loader.py     Loader: iterate, advance(), state_dict(), load_state_dict()

position.py is the state of a run and says why another one does not fit; permutation.py the shuffle, written out.
`python -m loader trace` prints the order without reading a shard (trace.py). The pure modules import without torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loader.loader import Loader

__all__ = ["Loader"]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: the order alone, as the trace needs it, should not wait a second for torch.
    if name == "Loader":
        from loader.loader import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
