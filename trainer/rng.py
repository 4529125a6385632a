"""The random state of one rank: torch, CUDA, numpy, Python. Saved and restored; derived anew when the world changes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from manifests.canonical import derived_seed


def seed_all(seed: int, step: int, rank: int) -> None:
    """Set every generator from (seed, step, rank): no two ranks or restarts share a stream by accident."""
    torch.manual_seed(derived_seed("torch", seed, step, rank))  # CUDA's generators too
    random.seed(derived_seed("python", seed, step, rank))
    # numpy's global generator takes 32 bits.
    np.random.seed(derived_seed("numpy", seed, step, rank) % 2**32)


def capture() -> dict[str, Any]:
    """All generators' states as tensors and plain values, which torch.load reads with weights_only."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": random.getstate(),
        "numpy": (kind, [int(word) for word in keys], int(position), int(has_gauss), float(gauss)),
    }


def restore(state: dict[str, Any]) -> None:
    """Put back what `capture` took. CUDA's state is left alone where either side has no GPU."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    random.setstate(state["python"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
