"""A recipe read box by box is what torch makes of whole tensors, and touches only what lies in the box."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.deferred import Box, Deferred

# What conversions of transformers are made of, on (4, 6) tensors a and b.
RECIPES: dict[str, Callable[[Any, Any], Any]] = {
    "itself, in another type": lambda a, _: a.to(torch.float64),
    "experts stacked, gate beside up": lambda a, b: torch.cat([torch.stack([a, b, a]), torch.stack([b, a, b])], dim=1),
    "stacked last": lambda a, b: torch.stack([a, b], dim=-1),
    "one below the other": lambda a, b: torch.cat([a, b, a]),
    "turned": lambda a, _: a.transpose(0, 1).contiguous(),
    "turned in three dimensions": lambda a, b: torch.stack([a, b]).permute(2, 0, 1),
    "t()": lambda a, _: a.t(),
    "a third": lambda a, _: a.chunk(3, dim=1)[1],
    "an unequal part": lambda a, _: a.split([1, 3])[1],
    "narrowed": lambda a, _: a[1:3, -4:],
    "every other row, without a rule": lambda a, _: a[::2],
    "one row": lambda a, _: a[-1],
    "a dimension more and less": lambda a, _: a.unsqueeze(1).unsqueeze(-1).squeeze(1).squeeze(0),
    "heads interleaved, without a rule": lambda a, _: a.view(2, 2, 6).transpose(0, 1).reshape(4, 6),
    "a sum, without a rule": lambda a, b: a + b,
}


def recorded(value: torch.Tensor, touched: list[Box]) -> Deferred:
    def read(box: Box) -> torch.Tensor:
        assert all(0 <= part.start < part.stop <= size for part, size in zip(box, value.shape, strict=True))
        touched.append(box)
        return value[box]

    return Deferred(value.shape, value.dtype, read)


@pytest.mark.parametrize("name", RECIPES)
@given(data=st.data())
def test_any_box_of_a_recipe_is_that_box_of_the_result(name: str, data: st.DataObject) -> None:
    a, b = torch.arange(24.0).view(4, 6), -torch.arange(24.0).view(4, 6)
    expected = RECIPES[name](a, b)
    made = RECIPES[name](recorded(a, []), recorded(b, []))
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    box = []
    for size in expected.shape:
        start = data.draw(st.integers(0, size - 1))
        box.append(slice(start, data.draw(st.integers(start + 1, size))))
    assert torch.equal(made.read(tuple(box)), expected[tuple(box)])
    assert torch.equal(made.whole(), expected)


def test_a_box_of_fused_experts_reads_only_those_experts() -> None:
    touched: list[list[Box]] = [[] for _ in range(4)]
    gates = [recorded(torch.full((2, 3), float(expert)), touched[expert]) for expert in range(4)]
    ups = [recorded(torch.full((2, 3), 10.0 + expert), touched[expert]) for expert in range(4)]
    fused = torch.cat([torch.stack(gates), torch.stack(ups)], dim=1)
    assert fused.shape == (4, 4, 3)
    part = fused.read((slice(1, 3), slice(0, 4), slice(0, 3)))
    assert part[:, :, 0].tolist() == [[1.0, 1.0, 11.0, 11.0], [2.0, 2.0, 12.0, 12.0]]
    everything = (slice(0, 2), slice(0, 3))
    assert touched == [[], [everything, everything], [everything, everything], []]


def test_a_recipe_can_be_a_parameter_and_says_what_it_is() -> None:
    parameter = torch.nn.Parameter(recorded(torch.ones(2, 3), []))
    assert isinstance(parameter, Deferred)
    assert torch.equal(parameter.whole(), torch.ones(2, 3))
    assert repr(recorded(torch.ones(2, 3), [])) == "Deferred([2, 3], torch.float32)"
