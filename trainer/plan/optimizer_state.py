"""Bytes of what each optimizer keeps, by making its state on parameters without memory: nothing is typed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from trainer.update_rules import OPTIMIZERS


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """split: over the ranks of a copy, as parameters are. whole: on every rank. Step counts are left out."""

    split: int
    whole: int

    @property
    def total(self) -> int:
        """In one copy, as a checkpoint stores it."""
        return self.split + self.whole

    def on_one_of(self, ranks: int) -> float:
        return self.split / ranks + self.whole


def state_bytes(parameters: Iterable[torch.Tensor]) -> Mapping[str, StateBytes]:
    """By optimizer. A state is split where it has a parameter's first dimension, which FSDP2 splits.

    Of experts, which parallel.py may cut by a later dimension, Adafactor's means count by the first all the same: a
    trifle, and the total is right.
    """
    bare = [torch.empty_like(parameter, device="meta") for parameter in parameters]
    found = {}
    for name, rule in OPTIMIZERS.items():
        split = whole = 0
        for parameter in bare:
            states = [state for state in rule.state(parameter).values() if state.ndim > 0]
            split += sum(state.nbytes for state in states if len(state) == len(parameter))
            whole += sum(state.nbytes for state in states if len(state) != len(parameter))
        found[name] = StateBytes(split=split, whole=whole)
    return found
