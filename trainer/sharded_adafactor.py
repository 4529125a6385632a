"""torch's Adafactor over sharded parameters. Shazeer and Stern 2018, arXiv:1804.04235.

It keeps of a matrix (rows x columns) the mean square of each row's gradient and of each column's, of a vector every
element's: rows + columns numbers in place of twice rows x columns. FSDP2 splits the rows, so

    row_var (rows, 1)       split as the rows are
    col_var (1, columns)    whole on every rank: a mean over all ranks
    root mean squares       of the value and of the update: a norm over all ranks

torch's own class stops at the second ("in-place operations that require placement changes are not supported"): a mean
over split rows is a DTensor whose parts are still to be summed, and it goes on in place. Here they are summed where
they arise. That costs a small exchange each, four a matrix and step, and the device is waited for in two of them. A
matrix of fewer rows than ranks (a router's) is multiplied out whole by torch, and has to be cut again to be added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.overrides import TorchFunctionMode

# Of a gradient's root mean square; its square is the paper's epsilon 1, 1e-30. torch's default, 1e-7, also bounds the
# mean *square*: of a clipped gradient of 7e9 parameters, elements of 1e-5, all of them would lie below.
_EPS = 1e-15
# Smallest root mean square a parameter's step is taken relative to (the paper's epsilon 2).
_SMALLEST_SCALE = 1e-3


class _WholeSums(TorchFunctionMode):
    """While it is active, no result is left as parts that the ranks still have to sum, and what changes a tensor in
    place is first placed as that tensor is.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.__name__.endswith("_") and not func.__name__.endswith("__") and isinstance(args[0], DTensor):
            args = [_placed_as(args[0], value) for value in args]
        result = func(*args, **(kwargs or {}))
        if isinstance(result, DTensor) and any(placement.is_partial() for placement in result.placements):
            whole = [Replicate() if placement.is_partial() else placement for placement in result.placements]
            return result.redistribute(placements=whole)
        return result


def _placed_as(changed: DTensor, value: Any) -> Any:
    same = not isinstance(value, DTensor) or value.shape != changed.shape or value.placements == changed.placements
    return value if same else value.redistribute(placements=changed.placements)


class ShardedAdafactor(torch.optim.Adafactor):
    """A step moves a parameter by `lr` times its own root mean square (1e-3 at least), so lr is relative: 1e-2 is the
    paper's. torch never takes more than 1 / sqrt(step) of it. Weight decay is lr x weight_decay, as AdamW's.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, eps=(_EPS, _SMALLEST_SCALE))

    @torch.no_grad()
    def step(self, *_: None) -> None:  # type: ignore[override]  # it never gets a closure
        with _WholeSums():
            super().step()  # type: ignore[no-untyped-call]  # torch leaves it unannotated


@torch.no_grad()
def factored_state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """torch's names, shapes and step count; `row_var` and `col_var` placed as above."""
    zeros, step = torch.zeros_like(parameter), torch.zeros((), dtype=torch.float32)
    if parameter.ndim < 2:
        return {"step": step, "variance": zeros}
    with _WholeSums():
        return {"step": step, "row_var": zeros.mean(-1, keepdim=True), "col_var": zeros.mean(-2, keepdim=True)}
