"""The hyperbolic tangent in place against torch's own, wherever a model may be used."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from parllel.torch.models.mlp_model import tanh_


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def outside_place(x: Tensor) -> Tensor:
    return tanh_(x * 1)


def test_it_replaces_what_it_is_given(x: Tensor) -> None:
    expected = x.tanh()
    assert tanh_(x) is x
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_floats_of_any_size(x: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(outside_place(x.to(dtype)), x.to(dtype).tanh())


def test_first_and_second_derivatives_are_those_of_finite_differences(x: Tensor) -> None:
    x = x.double().requires_grad_()
    assert torch.autograd.gradcheck(outside_place, x)
    assert torch.autograd.gradgradcheck(outside_place, x)


def test_gradients_are_those_of_torch(x: Tensor) -> None:
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    outside_place(ours).square().sum().backward()  # type: ignore[no-untyped-call]
    theirs.tanh().square().sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_transforms_of_functions(x: Tensor) -> None:
    torch.testing.assert_close(torch.vmap(outside_place)(x), x.tanh())
    gradient = torch.func.grad(lambda x: outside_place(x).sum())(x)
    torch.testing.assert_close(gradient, 1 - x.tanh().square())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
def test_a_traced_function_computes_for_new_inputs(x: Tensor) -> None:
    traced = torch.jit.trace(outside_place, x)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(traced(x + 1), (x + 1).tanh())


def test_an_exported_function_computes_for_new_inputs(x: Tensor) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return outside_place(x)

    exported = torch.export.export(Model(), (x,)).module()
    torch.testing.assert_close(exported(x + 1), (x + 1).tanh())
