"""Tensors that are recipes: what transformers makes of the tensors in files, of which any box can be read by itself.

Files may hold a parameter in parts (mixtral: each expert's matrices), or turned, or as a part of another. transformers
knows how, and says it in torch operations. Run over `Deferred` tensors, they read nothing; each result remembers what
it is made of. A rank then reads its share of a parameter, and only those bytes of the files are touched:

    gate_up = torch.cat([torch.stack(gates), torch.stack(ups)], dim=1)     256 experts, 14 GB
    gate_up.read((slice(8, 16), slice(0, 4096), slice(0, 7168)))           8 experts' gates and ups are read

An operation without a rule below is computed on whole operands, and the box cut from its result: right, but not lean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

Box = tuple[slice, ...]  # a start and a stop for each dimension; never empty
Read = Callable[[Box], torch.Tensor]

_ATEN = torch.ops.aten
# 64 MiB in fp32.
_COMPARED_ELEMENTS = 2**24


class Deferred(torch.Tensor):
    """Shape and type of a CPU tensor, and a way to `read` any box of it."""

    read: Read

    @staticmethod
    def __new__(cls, shape: Sequence[int], dtype: torch.dtype, read: Read) -> Deferred:
        make: Any = torch.Tensor._make_wrapper_subclass
        tensor: Deferred = make(cls, torch.Size(shape), dtype=dtype, device="cpu")
        tensor.read = read
        return tensor

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def whole(self) -> torch.Tensor:
        return self.read(tuple(slice(0, size) for size in self.shape)).contiguous()

    def __repr__(self) -> str:  # type: ignore[override]  # torch's would ask for values
        return f"Deferred({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own is a placeholder of another form
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _ATEN.equal.default:
            return _equal(*args)
        if func in _SAME_SHAPE:
            operand: Deferred = args[0]
            dtype = kwargs.get("dtype") or operand.dtype
            return cls(operand.shape, dtype, lambda box: func(operand.read(box), *args[1:], **kwargs))
        result = func(*_emptied(args), **_emptied(kwargs))
        if not isinstance(result, torch.Tensor):
            assert func in _SPLITS, f"{func} gives several tensors"
            return [
                cls(part.shape, part.dtype, _slice(args[0], _dim(args, kwargs), start))
                for part, start in zip(result, _starts(result, _dim(args, kwargs)), strict=True)
            ]
        rule = _RULES.get(func)
        read = rule(*args, **kwargs) if rule is not None else _whole(func, args, kwargs)
        return cls(result.shape, result.dtype, read)


def _equal(one: Deferred, other: Deferred) -> bool:
    """Of matrices, some rows at a time: a tied embedding that files hold twice may be larger than a rank's share."""
    if one.shape != other.shape:
        return False
    piece = max(1, _COMPARED_ELEMENTS * len(one) // max(1, one.numel()))
    inner = tuple(slice(0, size) for size in one.shape[1:])
    boxes = [(slice(start, min(len(one), start + piece)), *inner) for start in range(0, len(one), piece)]
    return all(torch.equal(one.read(box), other.read(box)) for box in boxes)


def _emptied(arguments: Any) -> Any:
    """The arguments with tensors of no memory instead: what torch tells shapes and types from."""
    return tree_map_only(torch.Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype, device="meta"), arguments)


def _whole(func: Any, args: Any, kwargs: Any) -> Read:
    def read(box: Box) -> torch.Tensor:
        made, named = tree_map_only(Deferred, lambda operand: operand.whole(), (args, kwargs))
        result: torch.Tensor = func(*made, **named)
        return result[box]

    return read


def _dim(args: Any, kwargs: Any) -> int:
    """Of split(tensor, sizes, dim=0)."""
    dim: int = args[2] if len(args) > 2 else kwargs.get("dim", 0)
    return dim % args[0].ndim


def _starts(parts: Sequence[torch.Tensor], dim: int) -> list[int]:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + part.shape[dim])
    return ends[:-1]


def _with(box: Box, dim: int, part: slice) -> Box:
    return (*box[:dim], part, *box[dim + 1 :])


def _slice(tensor: Deferred, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Read:
    dim, size = dim % tensor.ndim, tensor.shape[dim]
    first = 0 if start is None else min(start + size if start < 0 else start, size)
    if step != 1:
        return _whole(_ATEN.slice.Tensor, (tensor, dim, start, end, step), {})
    return lambda box: tensor.read(_with(box, dim, slice(first + box[dim].start, first + box[dim].stop)))


def _select(tensor: Deferred, dim: int, index: int) -> Read:
    dim, index = dim % tensor.ndim, index % tensor.shape[dim]
    return lambda box: tensor.read((*box[:dim], slice(index, index + 1), *box[dim:])).select(dim, 0)


def _squeeze(tensor: Deferred, dim: int) -> Read:
    return tensor.read if tensor.shape[dim] != 1 else _select(tensor, dim, 0)


def _unsqueeze(tensor: Deferred, dim: int) -> Read:
    dim = dim % (tensor.ndim + 1)
    return lambda box: tensor.read((*box[:dim], *box[dim + 1 :])).unsqueeze(dim)


def _permute(tensor: Deferred, dims: Sequence[int]) -> Read:
    order = [dim % tensor.ndim for dim in dims]

    def read(box: Box) -> torch.Tensor:
        inner = tuple(box[order.index(dim)] for dim in range(tensor.ndim))
        return tensor.read(inner).permute(order)

    return read


def _transpose(tensor: Deferred, dim0: int, dim1: int) -> Read:
    order = list(range(tensor.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(tensor, order)


def _stack(tensors: Sequence[Deferred], dim: int = 0) -> Read:
    dim = dim % (tensors[0].ndim + 1)

    def read(box: Box) -> torch.Tensor:
        inner = (*box[:dim], *box[dim + 1 :])
        return torch.stack([tensor.read(inner) for tensor in tensors[box[dim]]], dim)

    return read


def _cat(tensors: Sequence[Deferred], dim: int = 0) -> Read:
    dim = dim % tensors[0].ndim
    starts = _starts(tensors, dim)

    def read(box: Box) -> torch.Tensor:
        parts = []
        for tensor, start in zip(tensors, starts, strict=True):
            low, high = max(0, box[dim].start - start), min(tensor.shape[dim], box[dim].stop - start)
            if low < high:
                parts.append(tensor.read(_with(box, dim, slice(low, high))))
        return torch.cat(parts, dim)

    return read


_SAME_SHAPE = {
    _ATEN.alias.default,
    _ATEN.clone.default,
    _ATEN.detach.default,
    _ATEN.lift_fresh.default,
    _ATEN._to_copy.default,
}
_SPLITS = {_ATEN.split.Tensor, _ATEN.split_with_sizes.default}
_RULES: dict[Any, Callable[..., Read]] = {
    _ATEN.cat.default: _cat,
    _ATEN.permute.default: _permute,
    _ATEN.select.int: _select,
    _ATEN.slice.Tensor: _slice,
    _ATEN.squeeze.dim: _squeeze,
    _ATEN.stack.default: _stack,
    _ATEN.t.default: lambda tensor: _transpose(tensor, 0, tensor.ndim - 1),
    _ATEN.transpose.int: _transpose,
    _ATEN.unsqueeze.default: _unsqueeze,
}
