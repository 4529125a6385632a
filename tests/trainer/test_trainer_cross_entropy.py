"""The loss from hidden states in chunks equals the plain one, its gradients too, and all logits never exist at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from trainer import cross_entropy
from trainer.cross_entropy import linear_loss_sum
from trainer.loss import token_loss_sum


@pytest.fixture
def chunks_of_7_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "_CHUNK_LOGITS", 7 * 101)


def make(dtype: torch.dtype, seed: int = 0, share_ignored: float = 0.2) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, 16, 24, generator=random).to(dtype).requires_grad_()
    weight = torch.randn(101, 24, generator=random).to(dtype).requires_grad_()
    labels = torch.randint(0, 101, (2, 16), generator=random)
    labels[torch.rand(2, 16, generator=random) < share_ignored] = -100
    return hidden, weight, labels


def relative(value: torch.Tensor, expected: torch.Tensor) -> float:
    return float((value.double() - expected.double()).norm() / expected.double().norm())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), share_ignored=st.sampled_from([0.0, 0.3, 0.9]), factor=st.floats(1e-3, 1e3))
def test_loss_and_gradients_equal_the_plain_ones(seed: int, share_ignored: float, factor: float) -> None:
    hidden, weight, labels = make(torch.float32, seed, share_ignored)
    plain = token_loss_sum(hidden @ weight.T, labels)
    expected = torch.autograd.grad(plain * factor, (hidden, weight))
    chunked = linear_loss_sum(hidden, weight, labels)
    gradients = torch.autograd.grad(chunked * factor, (hidden, weight))
    assert float(chunked.detach()) == pytest.approx(float(plain.detach()), rel=1e-6)
    for gradient, right in zip(gradients, expected, strict=True):
        assert float((gradient - right).norm()) <= 1e-6 * float(right.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_it_is_no_further_from_the_truth_than_the_plain_one(
    dtype: torch.dtype, chunks_of_7_tokens: None
) -> None:
    hidden, weight, labels = make(dtype)
    truth = token_loss_sum(hidden.double() @ weight.double().T, labels)
    right = torch.autograd.grad(truth, (hidden, weight))
    plain = torch.autograd.grad(token_loss_sum(hidden @ weight.T, labels), (hidden, weight))
    chunked = linear_loss_sum(hidden, weight, labels)
    assert relative(chunked.detach(), truth.detach()) < 1e-3
    for ours, theirs, expected in zip(torch.autograd.grad(chunked, (hidden, weight)), plain, right, strict=True):
        assert relative(ours, expected) < 1.3 * relative(theirs, expected)


def test_a_batch_without_labels_has_no_loss_and_no_gradient() -> None:
    hidden, weight, labels = make(torch.float32)
    loss = linear_loss_sum(hidden, weight, torch.full_like(labels, -100))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_all_logits_never_exist_at_once(chunks_of_7_tokens: None) -> None:
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            is_of_logits = isinstance(result, torch.Tensor) and result.shape[-1:] == (101,)
            if is_of_logits and result.shape[0] != 24:  # that one is the head, transposed
                largest = max(largest, result.numel())
            return result

    hidden, weight, labels = make(torch.float32)
    with Watch():
        linear_loss_sum(hidden, weight, labels).backward()
    assert largest == 7 * 101
    assert hidden.grad is not None


def test_without_gradient_none_is_made() -> None:
    hidden, weight, labels = make(torch.float32)
    with torch.no_grad():
        loss = linear_loss_sum(hidden, weight, labels)
    assert not loss.requires_grad
    assert float(loss) == pytest.approx(float(token_loss_sum(hidden @ weight.T, labels).detach()), rel=1e-6)
